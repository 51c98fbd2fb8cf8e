"""Base class of pruning methods: a frozen dataclass with a `score` and optional overrides.

One driver (`pruning.engine.driver`) runs every method:

    prepare -> (train -> search -> score -> select -> apply)* -> retrain

The fields of a method are its hyper-parameters, `score` is its formula, and it overrides the other steps only where it
differs from the rest. It keeps no state: what a step finds is passed on by the driver.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import numpy as np
from jaxtyping import Float

from splinecut.pruning.budget import Budget, Keep, select
from splinecut.pruning.options import check_options
from splinecut.training.initialization import Initialization

if TYPE_CHECKING:
    from torch import nn

    from splinecut.networks.groups.values import Groups
    from splinecut.pruning.engine.context import RunContext
    from splinecut.pruning.evidence import Evidence
    from splinecut.pruning.ticket import Ticket
    from splinecut.pruning.weight_mask import WeightMaskHook
    from splinecut.training.config import TrainingConfig
    from splinecut.training.hooks import Hook

Scores = dict[str, Float[np.ndarray, " *units"]]


@dataclass(frozen=True)
class Recovery:
    """How the network is trained after the last cut: for how long, and from which weights.

    length:  "full" the whole plan again, "remaining" what the first training left of it, "none" nothing.
    weights: "inherit" those that were kept, "rewind" the same ones as they were after `step` steps of the first
             training (0: as initialised), "reinit" fresh ones.
    start:   what fresh weights are trained for before they are trained by the plan.
    epochs:  with "full", how long, instead of as long as the plan.
    """

    length: Literal["full", "remaining", "none"] = "full"
    weights: Literal["inherit", "rewind", "reinit"] = "inherit"
    step: int = 0
    start: Initialization = field(default_factory=Initialization)
    epochs: int | None = None


FINE_TUNE = Recovery()
CONTINUE = Recovery("remaining")
REINIT = Recovery(weights="reinit")
NO_RETRAINING = Recovery("none")


@dataclass(frozen=True)
class Round:
    """One cut: what stays of the dense network after it; `only` names the one group that it may cut."""

    budget: Budget
    only: str | None = None


@dataclass(frozen=True)
class Method:
    """What most methods do: train, score once, cut, train again.

    units:        what it removes.
    state:        when it scores, in words; `reference`: where it was published. Both for tables.
    trains_first: whether a dense training comes before the first score.
    is_random:    the score depends on the seed or on the place of a unit, so permuting units does not permute it.
    has_search:   it needs a run (`search`) before it can score; set where `search` is overridden.
    scope_option: it has a field `scope`, which decides the budget's scope.
    refit, residual: what a recipe uses where it says nothing else; `residual` as in `sc.groups`.
    """

    units: ClassVar[Literal["channels", "weights"]] = "channels"
    state: ClassVar[str] = "after training"
    reference: ClassVar[str] = ""
    trains_first: ClassVar[bool] = True
    is_random: ClassVar[bool] = False
    has_search: ClassVar[bool] = False
    scope_option: ClassVar[bool] = False
    refit: ClassVar[Literal["none", "fold", "least_squares"]] = "none"
    residual: ClassVar[Literal["auto", "tied", "select", "inner"]] = "tied"

    def __init_subclass__(cls) -> None:
        """Sets what follows from the steps that a class overrides, unless it says so itself."""
        super().__init_subclass__()
        if "search" in vars(cls) and "has_search" not in vars(cls):
            cls.has_search = True
        if "holder" in vars(cls):
            warnings.warn(f"{cls.__name__}.holder is now mask_hook; the old name goes in 0.3", DeprecationWarning, 2)
            cls.mask_hook = vars(cls)["holder"]  # type: ignore[method-assign]
        # A class that changes the first training and does not say how must not share it: other runs would take a
        # training with its hooks for a dense one.
        depth = {name: _depth(cls, name) for name in ("prepare", "hooks", "first_training")}
        if min(depth["prepare"], depth["hooks"]) < depth["first_training"]:
            cls.first_training = _all_its_own  # type: ignore[method-assign]

    def __post_init__(self) -> None:
        """Checks every field against its annotation; a method with checks of its own calls this one first."""
        check_options(type(self).__name__, type(self), vars(self))

    @property
    def recovery(self) -> Recovery:
        """What follows the last cut, unless the experiment says otherwise."""
        return FINE_TUNE

    def score(self, evidence: Evidence, budget: Budget) -> Scores:
        """One finite number a unit, larger stays; the network and the random state are left as found."""
        raise NotImplementedError(f"{type(self).__name__} has no score; a method must define one")

    def flops(self, evidence: Evidence, forward_flops: int) -> int:
        """What one call of `score` executes; `forward_flops` is one image's forward pass."""
        return 0

    def select(self, scores: Scores, budget: Budget, groups: Groups | None, search_result: Any) -> Keep:
        """Which units stay. `groups`: None where units are single weights; `search_result`: what `search` returned."""
        return select(scores, budget, groups)

    def prepare(self, context: RunContext, model: nn.Module) -> nn.Module:
        """The network that the first training starts from."""
        return model

    def hooks(self, context: RunContext, model: nn.Module, budget: Budget) -> Sequence[Hook]:
        """What steps into every training before the last cut."""
        return ()

    def retrain_hooks(self, context: RunContext, model: nn.Module, budget: Budget) -> Sequence[Hook]:
        """What steps into the training after the last cut."""
        return ()

    def first_training(self, budget: Budget) -> dict[str, Any]:
        """All that `prepare` and `hooks` make of the first training: methods that say the same can share it.

        Nothing, where neither is overridden. A class that overrides one of them and not this shares its training only
        with its own kind: the same class, options and budget. Override it to share more, as `Slimming` does.
        """
        return {}

    def rounds(self, budget: Budget, groups: Groups | None) -> Sequence[Round]:
        """The cuts; before each but the first the network is trained by the plan of `between`."""
        return (Round(budget),)

    def between(self, plan: TrainingConfig) -> TrainingConfig:
        """How the network is trained between two rounds."""
        return plan

    def search(self, context: RunContext, model: nn.Module, turn: Round) -> Any:
        """Work that precedes the score; what it returns is `evidence.search_result`. It may train `model` in place."""
        return None

    def apply(self, context: RunContext, model: nn.Module, ticket: Ticket, evidence: Evidence) -> nn.Module:
        """The network with the ticket applied: cut and refitted, or with its removed weights at zero."""
        return context.apply(model, ticket)

    def mask_hook(self, keep: Keep) -> WeightMaskHook:
        """The hook that keeps removed single weights at zero in training."""
        from splinecut.pruning.weight_mask import WeightMaskHook

        return WeightMaskHook(keep)


def _depth(kind: type, name: str) -> int:
    """How far up among its bases a class finds the attribute `name`."""
    return next(i for i, base in enumerate(kind.__mro__) if name in vars(base))


def _all_its_own(self: Method, budget: Budget) -> dict[str, Any]:
    """What decides a first training of which only the class is known."""
    name = f"{type(self).__module__}:{type(self).__qualname__}"
    return {"method": name, "options": asdict(self), "budget": asdict(budget)}
