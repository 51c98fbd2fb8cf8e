"""Runs any method: prepare -> (train -> search -> score -> select -> apply)* -> retrain."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from torch import nn

from splinecut.errors import InputError
from splinecut.moved import renamed, renamed_arguments
from splinecut.networks.groups.values import keep_at_least_one
from splinecut.networks.model_state import clone_state
from splinecut.pruning import apply
from splinecut.pruning.budget import Budget, Keep
from splinecut.pruning.detect import EarlyBird
from splinecut.pruning.engine.context import RunContext, TrainingResult
from splinecut.pruning.engine.hooks import DetectorHook, Snapshot
from splinecut.pruning.engine.stages import Stage, first_training
from splinecut.pruning.method import Method, Recovery, Round, Scores
from splinecut.pruning.ticket import Ticket
from splinecut.pruning.weight_mask import WeightMaskHook, apply_weight_mask
from splinecut.training.hooks import Hook, KeepBest
from splinecut.training.ledger import FORWARD, Phase

RESTART = Phase("reinitialise")  # pretraining of the fresh weights of a cut network


@dataclass(frozen=True)
class PruningResult:
    """A pruned network. `ticket` indexes units of the dense network, whatever the number of rounds."""

    ticket: Ticket
    dense: TrainingResult | None
    final: TrainingResult


@renamed_arguments(bird="detector", see="on_pruned")
def prune(
    context: RunContext,
    name: str,
    method: Method,
    budget: Budget,
    detector: EarlyBird | None = None,
    recovery: Recovery | None = None,
    on_pruned: Callable[[nn.Module], object] = lambda model: None,
) -> PruningResult:
    """Run `method`. `on_pruned` is called with the pruned model, before its weights are replaced or retrained.

    detector: ends the first training once the partition has settled. recovery: what follows the last cut; the method's
    own by default.
    """
    return _PruningRun(context, name, method, budget, detector, recovery or method.recovery, on_pruned).run()


@dataclass
class _PruningRun:
    """The state of one call of `prune`: the network, what it keeps, and the snapshot to rewind to."""

    context: RunContext
    name: str
    method: Method
    budget: Budget
    detector: EarlyBird | None
    recovery: Recovery
    on_pruned: Callable[[nn.Module], object]

    def run(self) -> PruningResult:
        context, method = self.context, self.method
        self.model = method.prepare(context, context.initial_model())
        self.snapshot = Snapshot(self.recovery.step)
        self.snapshot.weights = clone_state(self.model) if self.recovery.step == 0 else {}
        dense = self._first_training() if method.trains_first else None
        self.groups = context.evidence(self.model, method).groups if method.units == "channels" else None
        self.facts: dict[str, Any] = {}
        self.keep: Keep = self.groups.full_keep() if self.groups else {}
        rounds = method.rounds(self.budget, self.groups)
        for number, round_ in enumerate(rounds):
            is_last = number == len(rounds) - 1
            if number:
                self._train_between(number)
            self._prune_round(round_)
            if is_last:
                self.on_pruned(self.model)
            self._recover(is_last)
        return self._retrain(dense)

    def _first_training(self) -> TrainingResult:
        context, method = self.context, self.method
        hooks: list[Hook] = [*method.hooks(context, self.model, self.budget)]
        if self.detector is not None:
            hooks.append(DetectorHook(self.detector))
        rewind_step = self.recovery.step if self.recovery.weights == "rewind" else 0
        if rewind_step:
            hooks.append(self.snapshot)
        stage = first_training(
            method.first_training(self.budget), self.detector.facts() if self.detector else None, rewind_step
        )
        return context.train(self.model, stage, hooks)

    def _train_between(self, number: int) -> None:
        context, method = self.context, self.method
        hooks = [*method.hooks(context, self.model, self.budget), *self._mask_hooks()]
        start = self.recovery.step if self.recovery.weights == "rewind" else 0
        context.train(self.model, Stage(Phase("round", str(number)), method.between(context.plan), start), hooks)

    def _prune_round(self, round_: Round) -> None:
        """Search, score, select, apply, once."""
        context, method = self.context, self.method
        search_result = method.search(context, self.model, round_)
        evidence = context.evidence(self.model, method, search_result)
        scores = method.score(evidence, round_.budget)
        context.ledger.charge(Phase("score"), method.flops(evidence, context.flops(self.model)), 1, FORWARD)
        # Select with the budget of the dense network: counts are exact after every round, and kept sets are nested.
        keep = method.select(_at_full_size(scores, self.keep), round_.budget, self.groups, search_result)
        if round_.only is not None:
            keep = {**self.keep, round_.only: keep[round_.only]}
        part = _restricted(keep, self.keep) if self.groups else keep
        self.keep = keep
        groups = evidence.groups if self.groups else None
        self.facts = dict(getattr(scores, "facts", {}))
        ticket = Ticket(part, groups, self.name, round_.budget, self._options(), self.facts)
        self.model = method.apply(context, self.model, ticket, evidence)

    def _recover(self, is_last: bool) -> None:
        """Rewind or reinitialise the weights of the pruned network, where the recovery asks for it."""
        context, weights = self.context, self.recovery.weights
        if weights == "inherit" or (weights == "reinit" and not is_last):
            return
        fresh = context.build(context.seed + (weights == "reinit")).to(context.device, context.dtype)
        if weights == "rewind":
            if not self.snapshot.weights:
                raise InputError(
                    f"cannot rewind to step {self.recovery.step}: the first training ended before it; use a smaller one"
                )
            fresh.load_state_dict(self.snapshot.weights)
        self.model = apply.cut(fresh, self.ticket) if self.groups else fresh
        if not self.groups:
            apply_weight_mask(self.model, self.keep)
        elif weights == "reinit":
            self.model = context.pretrain(self.model, self.recovery.start, RESTART)

    def _retrain(self, dense: TrainingResult | None) -> PruningResult:
        context, recovery = self.context, self.recovery
        if recovery.length == "none":
            final = TrainingResult(self.model, dense.history if dense else [], KeepBest())
            return PruningResult(self.ticket, dense, final)
        mask_hooks = self._mask_hooks()
        start = dense.steps if dense and recovery.length == "remaining" else 0
        start = recovery.step if recovery.weights == "rewind" else start
        hooks = [*self.method.retrain_hooks(context, self.model, self.budget), *mask_hooks]
        config = context.plan.model_copy(update={"epochs": recovery.epochs}) if recovery.epochs else None
        final = context.train(self.model, Stage(Phase("retrain"), config, start), hooks)
        for mask_hook in mask_hooks:  # a method may have moved its mask during training
            self.keep = mask_hook.keep
        return PruningResult(self.ticket, dense, final)

    def _mask_hooks(self) -> Sequence[WeightMaskHook]:
        return [] if self.groups else [self.method.mask_hook(self.keep)]

    @property
    def ticket(self) -> Ticket:
        """What is kept of the dense network so far."""
        return Ticket(self.keep, self.groups, self.name, self.budget, self._options(), self.facts)

    def _options(self) -> dict[str, Any]:
        return {**asdict(self.method), "seed": self.context.seed}


def _at_full_size(scores: Scores, keep: Keep) -> Scores:
    """Scores of the remaining units at their indices in the dense network; removed units rank below all others."""
    full = {}
    for name, values in scores.items():
        kept = keep.get(name)
        if kept is None or kept.all():
            full[name] = values
        elif values.shape == kept.shape:  # single weights: the network keeps its size
            full[name] = np.where(kept, values, -np.inf)
        else:
            full[name] = np.full(kept.shape, -np.inf)
            full[name][kept] = values
    return full


def _restricted(keep: Keep, before: Keep) -> Keep:
    """A keep map of the dense network as one of the network that `before` left, stand-ins of empty groups included."""
    return {name: kept[keep_at_least_one(before[name])] if name in before else kept for name, kept in keep.items()}


__getattr__ = renamed(__name__, {"Outcome": "PruningResult", "Detect": "DetectorHook"})
