"""A sweep as a value: an experiment, and the methods, budgets, seeds and other keys it is repeated with.

    description = "..."              # all keys of an experiment, and beside them:

    [sweep]
    seeds = 5                        # 0 to 4; or a list
    keeps = [0.7, 0.5, 0.3]
    methods = [
      "l2",
      { name = "spline", form = "paper", label = "Spline" },
      { name = "spline", form = "paper", label = "EB Spline", detector = "early-bird-spline", retrain = "remaining" },
    ]

    [sweep.over]                     # every combination of these
    model = ["preresnet101", "vgg16"]
    "training.optimizer" = [{ name = "sgd" }, { name = "adam", lr = 1e-3 }]

In a method's table the keys that an experiment has itself (start, detector, retrain, ...) go there; `label` names its
rows and `keeps` replaces the sweep's; the rest are the method's own options. The network that is not pruned is always
among the runs, once a seed.
"""

from __future__ import annotations

import copy
import itertools
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import Field, ValidationError

from splinecut.errors import InputError
from splinecut.experiments import recipes, spec
from splinecut.experiments.spec import Experiment
from splinecut.training.config import Frozen
from splinecut.training.initialization import merge_tables

Seed = Annotated[int, Field(ge=0)]
Keep = Annotated[float, Field(gt=0, le=1)]

if TYPE_CHECKING:
    from splinecut.experiments.plan import Plan

OF_PRUNING = ("detector", "method", "budget", "residual", "refit", "probe", "retrain")
LIFTED = ("start", "training", *OF_PRUNING)  # keys of an experiment that may stand in a method's table


class Axes(Frozen):
    """The [sweep] table: along which axes the experiment is repeated."""

    seeds: Annotated[int, Field(ge=1)] | tuple[Seed, ...] = 5
    keeps: tuple[Keep, ...] = (0.5,)
    methods: tuple[str | dict[str, Any], ...] = ()
    over: dict[str, tuple[Any, ...]] = Field(default_factory=dict)


@dataclass(frozen=True)
class Sweep:
    """A recipe with a [sweep] table: what all runs have in common (`base`), and the axes."""

    name: str
    description: str
    base: dict[str, Any]
    axes: Axes


def load(recipe: str | Path, overrides: Sequence[str] = ()) -> Sweep:
    """The sweep in a recipe; one without a [sweep] table is refused."""
    tables = recipes.read(recipe, overrides)
    if "sweep" not in tables:
        raise InputError(f"recipe {recipe} has no [sweep] table; use `splinecut run {recipe}`, or add one")
    return from_dict(tables)


def from_dict(tables: dict[str, Any]) -> Sweep:
    """The sweep that a recipe's tables describe."""
    base = copy.deepcopy(tables)
    try:
        axes = Axes.model_validate(base.pop("sweep"))
    except ValidationError as error:
        raise spec.explained(error, Axes, ["sweep"]) from None
    return Sweep(_folder_name(base.pop("name", "sweep")), base.pop("description", ""), base, axes)


def _folder_name(name: Any) -> str:
    """The name of a sweep, which is also that of its folder; refuses what would lead elsewhere."""
    if not isinstance(name, str) or not re.fullmatch(r"\w[\w .,()\[\]+=-]*", name) or ".." in name:
        raise InputError(
            f"the name of a sweep is also that of its folder, got {name!r}; begin with a letter or digit and use "
            "letters, digits, spaces and .,()[]+=-_ only, without '..'"
        )
    return name


def expand(sweep: Sweep) -> list[Experiment]:
    """The experiments of `plans`."""
    return [planned.experiment for planned in plans(sweep)]


def plans(sweep: Sweep) -> list[Plan]:
    """Every run of a sweep, each once; seed by seed, the dense network before the pruned ones.

    Unknown methods, options and budgets are refused here, before anything is trained.
    """
    from splinecut.experiments.plan import plan

    axes = sweep.axes
    seeds = range(axes.seeds) if isinstance(axes.seeds, int) else axes.seeds
    runs: dict[str, Plan] = {}
    for seed, point in itertools.product(seeds, _points(axes)):
        for tables in _runs(sweep, point):
            experiment = Experiment.from_dict({**tables, "seed": seed, "description": sweep.description})
            if experiment.digest not in runs:
                runs[experiment.digest] = plan(experiment)
    return list(runs.values())


def _points(axes: Axes) -> Iterator[dict[str, Any]]:
    """Every combination of the values in [sweep.over]."""
    for values in itertools.product(*axes.over.values()):
        yield dict(zip(axes.over, values, strict=True))


def _runs(sweep: Sweep, point: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """The tables of the dense run, then of every method and budget, at one point of the grid."""
    base = copy.deepcopy(sweep.base)
    for key, value in point.items():
        recipes.put(base, key, copy.deepcopy(value))
    suffix = "".join(
        f" [{_short(value)}]" for key, value in point.items() if key.split(".")[0] not in ("model", "data")
    )
    yield {**{key: value for key, value in base.items() if key not in OF_PRUNING}, "name": spec.DENSE + suffix}
    for method in sweep.axes.methods:
        for keep in _keeps(method, sweep.axes):
            yield _pruned(base, method, keep, suffix)


def _keeps(method: str | dict[str, Any], axes: Axes) -> tuple[float, ...]:
    return tuple(method.get("keeps", axes.keeps)) if isinstance(method, dict) else axes.keeps


def _pruned(base: dict[str, Any], method: str | dict[str, Any], keep: float, suffix: str) -> dict[str, Any]:
    """The tables of one method at one budget."""
    asked = {"name": method} if isinstance(method, str) else copy.deepcopy(method)
    if "name" not in asked:
        raise InputError(f"a method of a sweep needs a name, got {method!r}; see `splinecut list methods`")
    asked.pop("keeps", None)
    given = asked.pop("label", None)
    lifted = {key: asked.pop(key) for key in LIFTED if key in asked}
    tables = {**merge_tables(base, lifted), "method": asked}  # options of the base's method are not inherited
    tables["budget"] = {**_budget(tables.get("budget", {}), asked["name"]), "keep": keep}
    return {**tables, "name": (given or spec.label(asked, "detector" in tables)) + suffix}


def _budget(budget: dict[str, Any], method: str) -> dict[str, Any]:
    """The budget without `of` for methods that remove single weights, which have one unit only."""
    from splinecut.pruning.methods.catalogue import method_class

    units = method_class(method).units
    return {key: value for key, value in budget.items() if key != "of" or units != "weights"}


def _short(value: Any) -> str:
    return str(value["name"]) if isinstance(value, dict) and "name" in value else str(value)
