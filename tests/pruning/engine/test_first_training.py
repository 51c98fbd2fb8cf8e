"""Methods share a first training only where it is the same one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from torch import Tensor, nn

from splinecut.pruning.budget import Budget
from splinecut.pruning.engine.context import RunContext
from splinecut.pruning.engine.driver import prune
from splinecut.pruning.evidence import Evidence
from splinecut.pruning.method import NO_RETRAINING, Method, Scores
from splinecut.pruning.methods.catalogue import METHODS
from splinecut.pruning.methods.channels.baselines import L2
from splinecut.pruning.methods.channels.slimming import Slimming
from splinecut.training.hooks import Hook, TrainState
from support.contexts import context

HALF = Budget(0.5)


class Shrink(Hook):
    """A penalty on all weights: a training with it is another one."""

    def __init__(self, strength: float) -> None:
        self.strength = strength

    def loss(self, state: TrainState, outputs: Tensor, targets: Tensor, loss: Tensor) -> Tensor:
        return loss + self.strength * sum(p.square().sum() for p in state.model.parameters())


@dataclass(frozen=True)
class Forgetful(Method):
    """Trains in its own way and does not say so."""

    strength: float = 0.1

    def score(self, evidence: Evidence, budget: Budget) -> Scores:
        return {group.name: np.arange(group.size, dtype=float) for group in evidence.groups}

    def hooks(self, context: RunContext, model: nn.Module, budget: Budget) -> Sequence[Hook]:
        return [Shrink(self.strength)]


@dataclass(frozen=True)
class ForgetfulSlimming(Slimming):
    """Changes the training of a method that tells of its own."""

    def hooks(self, context: RunContext, model: nn.Module, budget: Budget) -> Sequence[Hook]:
        return [*super().hooks(context, model, budget), Shrink(0.1)]


@dataclass(frozen=True)
class Prepared(Forgetful):
    """Starts from other weights and trains as its base does."""

    def prepare(self, context: RunContext, model: nn.Module) -> nn.Module:
        return model


class Mixin:
    def hooks(self, context: RunContext, model: nn.Module, budget: Budget) -> Sequence[Hook]:
        return [Shrink(0.2)]


@dataclass(frozen=True)
class Mixed(Mixin, L2):
    """Gets its hooks from a class that is no method."""


@dataclass(frozen=True)
class Frank(Forgetful):
    """Says itself what its training is."""

    def first_training(self, budget: Budget) -> dict[str, float]:
        return {"shrink": self.strength}


def test_a_method_with_hooks_has_a_training_of_its_own() -> None:
    methods = [Forgetful(), Forgetful(0.2), Prepared(), ForgetfulSlimming(), Slimming(), Mixed(), L2()]
    trainings = [method.first_training(HALF) for method in methods]
    assert all(a != b for i, a in enumerate(trainings) for b in trainings[:i])
    assert Forgetful().first_training(HALF) == Forgetful().first_training(HALF)
    assert Forgetful().first_training(HALF) != Forgetful().first_training(Budget(0.4))


def test_what_a_method_says_of_its_training_stands() -> None:
    assert Frank().first_training(HALF) == {"shrink": 0.1}
    assert Slimming(0.5).first_training(HALF) == {"l1": 0.5}


def test_a_subclass_that_changes_no_training_shares_it() -> None:
    @dataclass(frozen=True)
    class Other(Slimming):
        def score(self, evidence: Evidence, budget: Budget) -> Scores:
            return {}

    assert Other().first_training(HALF) == Slimming().first_training(HALF)


@pytest.mark.parametrize("method", METHODS)
def test_a_method_of_the_catalogue_says_itself_how_it_trains(method: str) -> None:
    """The default for hooks would be safe, but shares less than it could."""
    assert "options" not in METHODS[method]().first_training(HALF)


def test_runs_of_a_method_with_hooks_do_not_read_the_dense_training_of_a_sweep(tmp_path: Path) -> None:
    def first(name: str, method: Method) -> Tensor:
        here = context(epochs=1, folder=tmp_path / name, shared=tmp_path / "shared")
        outcome = prune(here, name, method, HALF, recovery=NO_RETRAINING)
        assert outcome.dense is not None
        return next(iter(outcome.dense.best.weights.values()))

    dense, own, stronger = first("l2", L2()), first("own", Forgetful()), first("stronger", Forgetful(0.5))
    assert not dense.equal(own) and not own.equal(stronger)
    assert len(list((tmp_path / "shared").iterdir())) == 3
    assert first("again", Forgetful()).equal(own)
    assert len(list((tmp_path / "shared").iterdir())) == 3
