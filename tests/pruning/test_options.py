"""Budgets, shares and options of a wrong type: one line that says what was expected."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import splinecut as sc
from splinecut.errors import InputError
from splinecut.pruning.method import Method
from splinecut.pruning.methods.catalogue import METHODS, resolve_method

NAN = float("nan")


def network() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2))


X = torch.randn(40, 4, generator=torch.Generator().manual_seed(1))


@pytest.mark.parametrize("keep", ["0.5", None, {"0": 0.5}, {}, [0.5], True, NAN, 0, -1, 1.5, 1j, torch.ones(2)])
def test_a_budget_that_is_no_share_is_refused_in_one_line(keep: Any) -> None:
    with pytest.raises(InputError, match=r"keep must be in \(0, 1\], got"):
        sc.Budget(keep)


@pytest.mark.parametrize("keep", ["0.5", {"0": 0.5}, {}, [0.5], True, NAN])
def test_a_share_of_a_wrong_type_is_refused_by_draw(keep: Any) -> None:
    with pytest.raises(InputError, match="keep must be in"):
        sc.draw(network(), X, keep=keep)


@pytest.mark.parametrize(
    ("budget", "remedy"), [(0.5, "write keep=0.5"), ("flops", "sc.Budget"), ({"keep": 1}, "keep=")]
)
def test_a_budget_that_is_none_is_refused_by_draw(budget: Any, remedy: str) -> None:
    with pytest.raises(InputError, match=rf"budget must be a Budget, got .*{remedy}"):
        sc.draw(network(), X, budget=budget)


@pytest.mark.parametrize("floor", ["1", None, -1, 0.5, NAN, True])
def test_a_floor_that_is_no_count_is_refused(floor: Any) -> None:
    with pytest.raises(InputError, match="floor must be a count"):
        sc.Budget(0.5, floor=floor)


@pytest.mark.parametrize("number", [np.float32(0.5), np.float64(0.5)])
def test_numpys_numbers_will_do_and_can_be_saved(number: Any, tmp_path: Any) -> None:
    ticket = sc.draw(network(), X, "l2", budget=sc.Budget(number, floor=np.int64(1)))  # type: ignore[arg-type]
    assert sc.Ticket.load(ticket.save(tmp_path / "ticket.json")) == ticket


@pytest.mark.parametrize(
    ("method", "options", "message"),
    [
        ("spline", {"n_rounds": "3"}, "n_rounds of spline must be a whole number, got '3'; write 3 without quotation"),
        ("spline", {"rho": "0.05"}, "rho of spline must be a number, got '0.05'; write 0.05 without quotation"),
        ("spline", {"rho": NAN}, "rho of spline must be a number, got nan"),
        ("spline", {"n_rounds": True}, "must be a whole number, got True"),
        ("spline", {"n_rounds": 1.5}, "must be a whole number, got 1.5"),
        ("spline", {"between_epochs": "two"}, "must be a whole number or nothing, got 'two'"),
        ("spline", {"form": 3}, "unknown form of spline '3'"),
        ("spline", {"form": ["joint"]}, "unknown form of spline"),
        ("legr", {"population": "64"}, "population of legr must be a whole number, got '64'"),
        ("thinet", {"rescale": 1}, "rescale of thinet must be true or false, got 1"),
        ("legr", {"population": 0}, "population of legr must be at least 1, got 0; the default is 64"),
        ("legr", {"mutated": 1.5}, r"mutated of legr must be in \(0, 1\], got 1.5; the default is 0.1"),
        ("csgd", {"lr": 0}, "lr of csgd must be positive, got 0; the default is 0.03"),
        ("gal", {"strength": -1.0}, "strength of gal must be at least 0, got -1.0; the default is None"),
        (None, {}, "method must be a name"),
        ({}, {}, "method must be a name"),
    ],
)
def test_options_of_a_wrong_type_are_refused_in_one_line(method: Any, options: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        resolve_method(method, options)


@pytest.mark.parametrize("name", METHODS)
def test_a_method_made_by_hand_checks_its_fields_too(name: str) -> None:
    """Every field of every method refuses a list, and one of a number the same number as text."""
    kind = METHODS[name]
    for field in fields(kind):
        with pytest.raises(InputError, match=f"{field.name} of {kind.__name__}"):
            kind(**{field.name: []})
        if isinstance(field.default, int | float):
            with pytest.raises(InputError, match=f"{field.name} of {kind.__name__} must be .*, got '"):
                kind(**{field.name: str(field.default)})


def test_fields_that_cannot_be_checked_are_left_to_the_method() -> None:
    @dataclass(frozen=True)
    class Own(Method):
        """With types of its own."""

        levels: tuple[float, ...] = (0.5,)
        anything: Any = None

    assert Own(levels=[1.0], anything=3).levels == [1.0]  # type: ignore[arg-type]
    with pytest.raises(InputError, match="levels of Own must be"):
        Own(levels=2)  # type: ignore[arg-type]


@pytest.mark.parametrize("method", METHODS)
def test_every_method_accepts_its_own_defaults_and_numpys_numbers(method: str) -> None:
    from dataclasses import asdict

    defaults = asdict(METHODS[method]())
    as_numpy = {name: np.float64(value) for name, value in defaults.items() if type(value) is float}
    assert asdict(resolve_method(method, {**defaults, **as_numpy})[1]) == defaults
