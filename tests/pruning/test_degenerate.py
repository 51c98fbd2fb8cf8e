"""Probes and networks without information: what comes back is finite, or one sentence says why nothing does."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from itertools import product
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import splinecut as sc
from splinecut.errors import InputError, ProbeWarning
from splinecut.experiments.records import Record
from splinecut.pruning import apply
from splinecut.pruning.refit.batch_norms import recalibrate


def convolutional(dead: bool = False, gain: float = 1.0) -> nn.Module:
    torch.manual_seed(0)
    model = nn.Sequential(
        nn.Conv2d(3, 12, 3, padding=1, bias=False),
        nn.BatchNorm2d(12),
        nn.ReLU(),
        nn.Conv2d(12, 16, 3, padding=1),
        nn.ReLU(),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(16, 24),
        nn.BatchNorm1d(24),
        nn.ReLU(),
        nn.Linear(24, 4),
    )
    with torch.no_grad():
        for norm in (model[1], model[8]):
            norm.weight.mul_(gain)
        if dead:
            model[3].weight.zero_()
            model[3].bias.fill_(-1)  # a ReLU behind it is off everywhere
    return model.eval()


NETWORKS: dict[str, Callable[[], nn.Module]] = {
    "ordinary": convolutional,
    "a dead layer": lambda: convolutional(dead=True),
    "zero gains": lambda: convolutional(gain=0.0),
}
ORDINARY = torch.randn(20, 3, 6, 6, generator=torch.Generator().manual_seed(1))
PROBES: dict[str, Tensor] = {
    "constant": torch.ones(20, 3, 6, 6),
    "zero": torch.zeros(20, 3, 6, 6),
    "tiny": ORDINARY * 1e-38,
    "huge": ORDINARY * 1e30,
    "NaN": torch.full((20, 3, 6, 6), torch.nan),
    "one image": ORDINARY[:1],
}
DRAWN: dict[str, dict[str, Any]] = {
    "spline": {},
    "corrected": {"form": "corrected"},
    "l2": {"method": "l2"},
}
CASES = [*product(NETWORKS, PROBES, ("spline", "l2")), *product(("ordinary",), PROBES, ("corrected",))]


@pytest.mark.parametrize(("network", "probe", "drawn"), CASES)
def test_degenerate_probes_and_networks_give_finite_networks_or_a_refusal(
    network: str, probe: str, drawn: str, tmp_path: Path
) -> None:
    model, x = NETWORKS[network](), PROBES[probe]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ProbeWarning)
        try:
            ticket = sc.draw(model, x, budget=sc.Budget(0.5), **DRAWN[drawn])
        except InputError:
            assert probe in ("huge", "NaN")  # which are no inputs of a network at all
            ticket = sc.draw(model, ORDINARY, budget=sc.Budget(0.5), **DRAWN[drawn])
        for how in (None, "fold", "least_squares"):
            try:
                smaller = sc.cut(model, ticket, refit=how, probe=x)
            except InputError:
                assert how == "least_squares" and probe in ("huge", "NaN")
                continue
            assert all(tensor.isfinite().all() for tensor in smaller.state_dict().values())
            assert smaller(ORDINARY).isfinite().all()
            sc.save(smaller, tmp_path / "model.safetensors")
        try:
            recalibrate(smaller, x)
            assert all(tensor.isfinite().all() for tensor in smaller.state_dict().values())
        except InputError:
            assert probe in ("huge", "NaN")


def test_there_are_42_of_these_cases() -> None:
    assert len(CASES) == 42


def test_a_refit_on_two_inputs_does_not_explode() -> None:
    model = convolutional()
    ticket = sc.draw(model, ORDINARY, method="l2", keep=0.5)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ProbeWarning)
        fitted = sc.cut(model, ticket, refit="least_squares", probe=ORDINARY[:2])
    whole, plain = model(ORDINARY), sc.cut(model, ticket)
    assert (fitted(ORDINARY) - whole).square().mean() < 2 * (plain(ORDINARY) - whole).square().mean()


def test_a_network_with_nan_is_not_saved_and_the_tensor_is_named(tmp_path: Path) -> None:
    model = convolutional()
    model[3].weight.data[0, 0, 0, 0] = torch.nan
    with pytest.raises(InputError, match=r"3\.weight"):
        sc.save(model, tmp_path / "model.safetensors")
    assert not (tmp_path / "model.safetensors").exists()


def test_infinities_in_a_buffer_may_be_saved(tmp_path: Path) -> None:
    model = convolutional()
    model.register_buffer("mask", torch.full((2, 2), -torch.inf).triu(1))
    assert sc.save(model, tmp_path / "model.safetensors").exists()


def test_a_network_that_came_with_infinities_is_cut_with_them_and_new_ones_are_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    model = convolutional()
    ticket = sc.draw(model, ORDINARY, method="l2", keep=0.5)
    model[10].bias.data[0] = torch.inf
    assert sc.cut(model, ticket)[10].bias[0] == torch.inf  # type: ignore[index]

    def spoil(whole: nn.Module, smaller: nn.Module, *_: Any) -> None:
        smaller.get_parameter("7.weight").data.fill_(torch.nan)

    monkeypatch.setattr(apply, "fold", spoil)
    with pytest.raises(InputError, match=r"7\.weight"):
        sc.cut(model, ticket, refit="fold")


def test_a_record_with_a_number_that_is_none_is_refused_and_its_place_is_named(tmp_path: Path) -> None:
    test = {"last": {"accuracy": 0.5, "loss": float("nan")}}
    record = Record("run", "0", {}, test, [], 1, 1, {}, {}, "0", {}, None, "cpu")
    with pytest.raises(InputError, match=r"test\.last\.loss is nan"):
        record.save(tmp_path)
    assert not list(tmp_path.iterdir())
