"""An experiment as a typed value, checked when it is made and named by its digest."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, Self, get_args

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError, model_validator

from splinecut.errors import InputError, unknown
from splinecut.experiments.recipes import read, toml_text
from splinecut.training.config import Frozen, TrainingConfig
from splinecut.training.initialization import Initialization

SCHEMA = 1
DENSE = "dense"  # the label of a run without a method


def _named(value: Any) -> Any:
    """`model = "vgg16"` is short for a table that only gives the name."""
    return {"name": value} if isinstance(value, str) else value


def _length(value: Any) -> Any:
    """`retrain = "remaining"` is short for a table that only gives the length."""
    return {"length": value} if isinstance(value, str) else value


class ModelSpec(Frozen):
    """Which network. Further keys (`preset`, `hidden`, ...) go to its factory, which refuses those it does not know."""

    model_config = ConfigDict(frozen=True, extra="allow")

    name: str
    width: Annotated[float, Field(gt=0, le=16)] = 1.0
    activation: str = "relu"

    @property
    def options(self) -> dict[str, Any]:
        """The keys beyond the three that every network has."""
        return dict(self.model_extra or {})


class DataSpec(Frozen):
    """Which data set, and how much of it. `validation` is the share of the training images held out for decisions."""

    name: str
    validation: Annotated[float, Field(ge=0, lt=1)] = 0.1
    train_size: Annotated[int, Field(ge=1)] | None = None  # a stratified sample of the training images
    image_size: Annotated[int, Field(ge=1)] | None = None  # folders of photographs: the side they are cropped to


class DetectorSpec(Frozen):
    """What may stop the dense training early. Left out, `threshold` and `window` are the rule's own."""

    name: Literal["early-bird-spline"]
    rule: Literal["paper", "authors"] = "paper"
    threshold: Annotated[float, Field(gt=0, le=1)] | None = None
    window: Annotated[int, Field(ge=1)] | None = None
    every: Literal["epoch"] | Annotated[int, Field(ge=1)] = "epoch"
    probe: Annotated[int, Field(ge=1)] = 256  # training images it watches


class MethodSpec(Frozen):
    """Which pruning method. Further keys (`form`, `rho`, ...) are its own, and it refuses those it does not know."""

    model_config = ConfigDict(frozen=True, extra="allow")

    name: str

    @property
    def options(self) -> dict[str, Any]:
        """The method's own keys."""
        return dict(self.model_extra or {})


class BudgetSpec(Frozen):
    """How much stays. Left out, `scope` is the method's own where its table gives one."""

    keep: Annotated[float, Field(gt=0, le=1)] = 0.5
    of: Literal["channels", "weights", "flops", "blocks"] = "channels"
    scope: Literal["global", "layer", "stage"] = "global"
    floor: Annotated[int, Field(ge=0)] = 1


class RetrainSpec(Frozen):
    """What follows the cut: how much of the plan is trained, from which weights; left out, the method's way."""

    length: Literal["full", "remaining", "none"] | None = None
    epochs: Annotated[int, Field(ge=1)] | None = None  # of a full retraining, instead of the plan's
    weights: Literal["inherit", "rewind", "reinit"] | None = None
    start: Annotated[Initialization, BeforeValidator(_named)] = Initialization()  # of fresh weights


class FilmSpec(Frozen):
    """Partitions to store for the report: during the first training, then cut to several shares, all on one slice.

    Inputs of two numbers are seen whole. Others are seen on a plane through three training inputs, in a window about a
    place where classes meet, shrunk until no partition in it has more than `max_regions` regions.
    """

    steps: tuple[Annotated[int, Field(ge=1)], ...] = ()  # beside the first and the last
    keeps: tuple[Annotated[float, Field(gt=0, lt=1)], ...] = ()
    method: str = "spline"  # what cuts to `keeps`; the weights are refitted and not trained further
    through: tuple[int, int, int] | None = None  # rows of the training set; left out: three classes, drawn by the seed
    max_regions: Annotated[int, Field(ge=1)] = 5_000


class Experiment(Frozen):
    """Everything that decides the outcome of a run; without a method the network is trained and not pruned."""

    name: str = "experiment"
    description: str = ""
    seed: Annotated[int, Field(ge=0)] = 0
    model: Annotated[ModelSpec, BeforeValidator(_named)]
    data: Annotated[DataSpec, BeforeValidator(_named)]
    start: Annotated[Initialization, BeforeValidator(_named)] = Initialization()
    training: TrainingConfig = TrainingConfig()
    detector: Annotated[DetectorSpec | None, BeforeValidator(_named)] = None
    method: Annotated[MethodSpec | None, BeforeValidator(_named)] = None
    budget: BudgetSpec = BudgetSpec()
    residual: Literal["auto", "tied", "select", "inner"] | None = None  # left out: the method's own
    refit: Literal["none", "fold", "least_squares"] | None = None  # left out: the method's own
    probe: Annotated[int, Field(ge=1)] = 512  # training images that criteria and refit may look at
    retrain: Annotated[RetrainSpec, BeforeValidator(_length)] = RetrainSpec()
    film: FilmSpec | None = None

    @model_validator(mode="after")
    def _scope_of_the_method(self) -> Self:
        """Writes the method's scope into a budget that gives none: spec, digest and record say what is selected."""
        scope = self.method.options.get("scope") if self.method else None
        scopes = get_args(BudgetSpec.model_fields["scope"].annotation)
        if scope in scopes and "scope" not in self.budget.model_fields_set:
            # The model is frozen for its users; here it is still being made.
            self.__dict__["budget"] = self.budget.model_copy(update={"scope": scope})
        return self

    @property
    def digest(self) -> str:
        """Twelve hexadecimal digits of a hash of the configuration.

        Only what differs from the defaults is hashed, so that a new key with a default does not orphan old results;
        name and description do not count.
        """
        given = self.model_dump(mode="json", exclude_defaults=True, exclude={"name", "description"})
        if self.method is not None and self.method.name == "spline" and "form" not in self.method.options:
            # The default was "joint" in 0.1: records of it must not be taken for those of another criterion.
            given["method"]["form"] = "output"
        text = json.dumps({"schema": SCHEMA, **given}, sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:12]

    @property
    def folder(self) -> str:
        """The run folder's name: a readable name, then the digest."""
        slug = re.sub(r"[^A-Za-z0-9._-]+", "-", self.name).strip("-.")[:60] or "experiment"
        return f"{slug}-{self.digest}"

    def to_toml(self) -> str:
        """The whole resolved experiment as a recipe that gives the same one again."""
        tables = self.model_dump(mode="json", exclude_none=True)
        if self.budget.of == "channels":  # the default, which methods that remove single weights refuse as a request
            del tables["budget"]["of"]
        return toml_text(tables)

    @classmethod
    def from_dict(cls, recipe: dict[str, Any]) -> Experiment:
        """The experiment that a recipe's tables describe."""
        try:
            return cls.model_validate(recipe)
        except ValidationError as error:
            raise explained(error, cls) from None


def load(recipe: str | Path, overrides: Sequence[str] = ()) -> Experiment:
    """The experiment in a TOML file (or in a recipe that ships with splinecut, by name), with `a.b=c` overrides."""
    tables = read(recipe, overrides)
    if "sweep" in tables:
        raise InputError(f"recipe {recipe} is a sweep of several runs, not one; use `splinecut sweep {recipe}`")
    return Experiment.from_dict(tables)


def label(method: dict[str, Any] | None, is_early: bool) -> str:
    """The table of a method as one text: name, options given, and whether a detector stops the training early."""
    if method is None:
        return DENSE
    options = ", ".join(f"{key}={value}" for key, value in method.items() if key != "name" and value is not None)
    name = f"{method['name']} ({options})" if options else method["name"]
    return f"early bird, {name}" if is_early else name


def explained(error: ValidationError, root: type[BaseModel], prefix: Sequence[str] = ()) -> InputError:
    """One line for the first thing wrong: where, what was expected, what came. `root` stands at `prefix`."""
    first = error.errors()[0]
    where = ".".join([*prefix, *(str(part) for part in first["loc"])])
    if first["type"] == "extra_forbidden":
        allowed = _keys(root, [str(part) for part in first["loc"][:-1]])
        return unknown("key", where, [".".join([*prefix, key]) for key in allowed])
    if first["type"] == "missing":
        return InputError(f"the recipe does not say {where!r}; add it")
    if first["type"] == "value_error":
        return InputError(f"{where}: {first['msg'].removeprefix('Value error, ')}")
    expected = first["msg"].removeprefix("Input should be ").replace("'", "")
    return InputError(f"{where} should be {expected}, got {first['input']!r}")


def _keys(root: type[BaseModel], table: list[str]) -> list[str]:
    """The keys that may stand in `table` of `root`, with its name in front."""
    kind: Any = root
    for part in table:
        kind = kind.model_fields[part].annotation
        kind = next((option for option in get_args(kind) if option is not type(None)), kind)
    assert issubclass(kind, BaseModel)
    return [".".join([*table, field]) for field in kind.model_fields]
