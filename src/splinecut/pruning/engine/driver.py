"""One driver for every method: prepare -> (train -> search -> score -> select -> apply)* -> retrain."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from torch import Tensor, nn

from splinecut.errors import InputError
from splinecut.networks.groups.values import with_stand_in
from splinecut.pruning import apply
from splinecut.pruning.budget import Budget, Keep
from splinecut.pruning.detect import EarlyBird
from splinecut.pruning.engine.context import KeepBest, RunContext, TrainingResult
from splinecut.pruning.method import Method, Recovery, Round, Scores
from splinecut.pruning.ticket import Ticket
from splinecut.pruning.weight_mask import WeightMaskHook, apply_weight_mask
from splinecut.training.hooks import Hook, TrainState
from splinecut.training.ledger import FORWARD

RESTART = "reinitialise"  # the phase of what fresh weights of a cut network are trained for first


class DetectorHook(Hook):
    """Shows the network to an early bird and ends training when it is drawn; each look is charged."""

    name = "detector"

    def __init__(self, bird: EarlyBird) -> None:
        self.bird = bird

    def after_step(self, state: TrainState) -> bool | None:
        return self._look(state) if self.bird.every != "epoch" else None

    def after_epoch(self, state: TrainState) -> bool:
        return self._look(state) if self.bird.every == "epoch" else False

    def _look(self, state: TrainState) -> bool:
        before = len(self.bird.seen)
        verdict = self.bird.observe(state.model)
        images = len(self.bird.probe) * (len(self.bird.seen) - before)
        state.ledger.charge("detect", state.forward_flops, images, FORWARD)
        return verdict.drawn

    def state(self) -> dict[str, Any]:
        return self.bird.state()

    def restore(self, state: dict[str, Any]) -> None:
        self.bird.restore(state)


class Snapshot(Hook):
    """Holds the weights as they were after `step` steps, for rewinding."""

    name = "snapshot"

    def __init__(self, step: int) -> None:
        self.step = step
        self.weights: dict[str, Tensor] = {}

    def start(self, state: TrainState) -> None:
        self._look(state)

    def after_step(self, state: TrainState) -> None:
        self._look(state)

    def _look(self, state: TrainState) -> None:
        if state.step == self.step and not self.weights:
            self.weights = {name: tensor.detach().clone() for name, tensor in state.model.state_dict().items()}

    def state(self) -> dict[str, Any]:
        return {"weights": self.weights}

    def restore(self, state: dict[str, Any]) -> None:
        self.weights = state["weights"]


@dataclass(frozen=True)
class PruningResult:
    """A pruned network. `ticket` speaks of the whole network, whatever the number of rounds."""

    ticket: Ticket
    dense: TrainingResult | None
    final: TrainingResult


def prune(
    context: RunContext,
    name: str,
    method: Method,
    budget: Budget,
    bird: EarlyBird | None = None,
    recovery: Recovery | None = None,
    see: Callable[[nn.Module], object] = lambda model: None,
) -> PruningResult:
    """Takes `method` through its course; `see` is shown the network after the last cut, before recovery."""
    return _PruningRun(context, name, method, budget, bird, recovery or method.recovery, see).run()


@dataclass
class _PruningRun:
    context: RunContext
    name: str
    method: Method
    budget: Budget
    bird: EarlyBird | None
    recovery: Recovery
    see: Callable[[nn.Module], object]

    def run(self) -> PruningResult:
        context, method = self.context, self.method
        self.model = method.prepare(context, context.initial_model())
        self.snapshot = Snapshot(self.recovery.step)
        self.snapshot.weights = _copied(self.model) if self.recovery.step == 0 else {}
        dense = self._first_training() if method.trains_first else None
        self.groups = context.evidence(self.model, method).groups if method.units == "channels" else None
        self.keep: Keep = self.groups.everything() if self.groups else {}
        turns = method.rounds(self.budget, self.groups)
        for number, turn in enumerate(turns):
            if number:
                hooks = [*method.hooks(context, self.model, self.budget), *self._holders()]
                start = self.recovery.step if self.recovery.weights == "rewind" else 0
                context.train(self.model, f"round-{number}", hooks, method.between(context.plan), start)
            self._turn(turn)
            if number == len(turns) - 1:
                self.see(self.model)
            self._recover(is_last=number == len(turns) - 1)
        return self._retrain(dense)

    def _first_training(self) -> TrainingResult:
        context, method = self.context, self.method
        hooks: list[Hook] = [*method.hooks(context, self.model, self.budget)]
        decided: dict[str, Any] = {"method": method.first_training(self.budget)}
        if self.bird is not None:
            hooks.append(DetectorHook(self.bird))
            decided["detector"] = self.bird.facts()
        if self.recovery.weights == "rewind" and self.recovery.step:
            hooks.append(self.snapshot)
            decided["snapshot"] = self.recovery.step
        return context.train(self.model, "train", hooks, decided_by=decided)

    def _turn(self, turn: Round) -> None:
        """Search, score, select, apply, once."""
        context, method = self.context, self.method
        found = method.search(context, self.model, turn)
        evidence = context.evidence(self.model, method, found)
        scores = method.score(evidence, turn.budget)
        context.ledger.charge("score", method.flops(evidence, context.flops(self.model)), 1, FORWARD)
        keep = method.select(_at_full_size(scores, self.keep), turn.budget, self.groups, found)
        if turn.only is not None:
            keep = {**self.keep, turn.only: keep[turn.only]}
        part = _restricted(keep, self.keep) if self.groups else keep
        self.keep = keep
        groups = evidence.groups if self.groups else None
        ticket = Ticket(part, groups, self.name, turn.budget, self._options())
        self.model = method.apply(context, self.model, ticket, evidence)

    def _recover(self, is_last: bool) -> None:
        """Puts other weights into the pruned network, where the recovery wants that."""
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
        holders = self._holders()
        start = dense.steps if dense and recovery.length == "remaining" else 0
        start = recovery.step if recovery.weights == "rewind" else start
        hooks = [*self.method.retrain_hooks(context, self.model, self.budget), *holders]
        plan = context.plan.model_copy(update={"epochs": recovery.epochs}) if recovery.epochs else None
        final = context.train(self.model, "retrain", hooks, plan, start_step=start)
        for holder in holders:  # a method may have moved its mask on the way
            self.keep = holder.keep
        return PruningResult(self.ticket, dense, final)

    def _holders(self) -> Sequence[WeightMaskHook]:
        return [] if self.groups else [self.method.mask_hook(self.keep)]

    @property
    def ticket(self) -> Ticket:
        """What stays of the whole network so far."""
        return Ticket(self.keep, self.groups, self.name, self.budget, self._options())

    def _options(self) -> dict[str, Any]:
        return {**asdict(self.method), "seed": self.context.seed}


def _at_full_size(scores: Scores, keep: Keep) -> Scores:
    """Scores of the units there are, at their places in the whole network; what is gone stays gone."""
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
    """A keep map of the whole network as one of the network that `before` left, stand-ins of empty groups included."""
    return {name: kept[with_stand_in(before[name])] if name in before else kept for name, kept in keep.items()}


def _copied(model: nn.Module) -> dict[str, Tensor]:
    return {name: tensor.detach().clone() for name, tensor in model.state_dict().items()}
