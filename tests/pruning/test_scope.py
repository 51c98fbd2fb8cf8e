"""A method's own scope decides the selection, and what is recorded is what was done."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

import pytest

import splinecut as sc
from splinecut.errors import InputError
from splinecut.experiments import paper_numbers as published
from splinecut.experiments import runner
from splinecut.experiments.plan import method_and_budget
from splinecut.experiments.spec import Experiment
from splinecut.experiments.sweep import spec as grid
from splinecut.networks import models
from splinecut.pruning.budget import Budget
from splinecut.training import data

BASE: dict[str, Any] = {
    "name": "small",
    "model": {"name": "convnet", "preset": "digits", "width": 0.5},
    "data": {"name": "digits", "train_size": 200},
    "training": {"epochs": 1, "batch_size": 64},
    "probe": 64,
}


def asked(method: dict[str, Any], **more: Any) -> Experiment:
    return Experiment.from_dict({**BASE, "method": {"name": "spline", **method}, **more})


@pytest.mark.parametrize("scope", ["global", "layer", "stage"])
def test_the_scope_of_a_recipes_method_is_the_budgets(scope: str) -> None:
    method, budget = method_and_budget(asked({"scope": scope}))
    assert budget.scope == method.scope == scope  # type: ignore[attr-defined]


@pytest.mark.parametrize("scope", ["global", "layer", "stage"])
def test_the_scope_of_a_recipes_budget_is_the_methods(scope: str) -> None:
    method, budget = method_and_budget(asked({}, budget={"scope": scope}))
    assert budget.scope == method.scope == scope  # type: ignore[attr-defined]


@pytest.mark.parametrize(("own", "given"), [("layer", "global"), ("global", "layer"), ("stage", "layer")])
def test_two_scopes_that_differ_are_refused_by_name(own: str, given: str) -> None:
    with pytest.raises(InputError, match=f"method.scope = '{own}'.*budget.scope = '{given}'"):
        method_and_budget(asked({"scope": own}, budget={"scope": given}))


def test_a_sweep_with_two_scopes_is_refused_before_anything_is_trained() -> None:
    axes = {"seeds": 1, "methods": [{"name": "spline", "scope": "global"}]}
    with pytest.raises(InputError, match="scope"):
        grid.expand(grid.from_dict({**BASE, "budget": {"scope": "layer"}, "sweep": axes}))


def test_a_scope_there_is_not_is_refused() -> None:
    with pytest.raises(InputError, match="unknown scope 'galaxy'"):
        method_and_budget(asked({"scope": "galaxy"}))


def test_a_run_by_layer_keeps_the_same_share_of_every_layer_and_says_so(tmp_path: Path) -> None:
    experiment = asked({"form": "corrected", "scope": "layer"})
    record = runner.run(experiment, tmp_path, device="cpu")
    assert record.pruning is not None
    assert all(kept == round(0.5 * size) for kept, size in record.pruning["layers"].values())
    assert record.pruning["options"]["scope"] == record.pruning["budget"]["scope"] == "layer"
    assert record.spec["budget"]["scope"] == "layer"
    # What the folder says gives the same experiment again, although both scopes are now spelled out.
    again = Experiment.from_dict(tomllib.loads((tmp_path / experiment.folder / "recipe.toml").read_text()))
    assert again == experiment and again.digest == experiment.digest
    assert method_and_budget(again) == method_and_budget(experiment)


def test_a_run_that_selected_globally_under_the_name_of_a_layer_scope_is_not_taken_for_this_one() -> None:
    assert asked({"scope": "layer"}).digest == asked({"scope": "layer"}, budget={"scope": "layer"}).digest
    assert asked({"scope": "layer"}).digest != "cbb55147d7e0"  # of 0.1.0, which selected globally


def test_the_papers_numbers_are_held_against_the_scope_that_selected() -> None:
    """Records of 0.1.0 may name a scope in the method's options that nothing followed."""
    spec = {
        "model": {"name": "vgg16"},
        "data": {"name": "cifar10"},
        "training": {"optimizer": {"name": "sgd"}},
        "method": {"name": "spline", "form": "paper", "scope": "layer"},
        "budget": {"keep": 0.5, "scope": "global"},
    }
    result = {"model": "vgg16", "data": "cifar10"}
    assert published._is_about({**result, "scope": "global"}, spec)
    assert not published._is_about({**result, "scope": "layer"}, spec)


def test_draw_follows_the_methods_scope_where_the_budget_has_the_default() -> None:
    digits = data.load("digits", train_size=200)
    model = models.build("convnet", preset="digits", width=0.5, classes=10, input_shape=(1, 8, 8))
    example = digits.train.examples(list(range(64)))
    ticket = sc.draw(model, example, "spline", budget=Budget(0.5), form="corrected", scope="layer")
    assert all(kept.sum() == round(0.5 * kept.size) for kept in ticket.keep.values())
    assert ticket.budget is not None and ticket.budget.scope == "layer" == ticket.options["scope"]
    with pytest.raises(InputError, match=r"'layer'.*'stage'"):
        sc.draw(model, example, "spline", budget=Budget(0.5, scope="stage"), scope="layer")
