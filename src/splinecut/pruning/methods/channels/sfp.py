"""Soft filter pruning: the shortest filters are set to zero after every epoch and may grow back in the next.

He et al. (2018): in each layer the filters of smallest L2 norm are zeroed at the end of each epoch, all of them go on
training, and what is zero after the last epoch is cut; there is no retraining. Give the budget scope "layer", as the
paper does. Its cost is one dense training (two from a trained network); nothing is saved before the cut.

A zeroed filter before batch norm and ReLU has no gradient at all where the norm's shift is not positive; there it
grows back only by the momentum it had. So momentum is left alone here, and every epoch says how many grew back.

Departures: counts are those of the shared selection, round(keep n) of n filters, where the reference zeroes
floor((1 - keep) n). A zeroed filter still sends on a constant, relu(shift - ...), which its cut takes away: batch
norms behind it take new statistics from the probe. Selectors of pre-activation blocks have no filters; they are cut
at the end by their scale.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import torch
from torch import Tensor, nn

from splinecut.networks.groups.read import groups as read_groups
from splinecut.networks.groups.values import Groups
from splinecut.networks.inputs import as_arguments, count
from splinecut.pruning.budget import Budget, Keep, select
from splinecut.pruning.engine.stages import Stage
from splinecut.pruning.evidence import Evidence
from splinecut.pruning.method import NO_RETRAINING, Recovery, Round
from splinecut.pruning.methods.channels.baselines import L2
from splinecut.pruning.refit.batch_norms import recalibrate
from splinecut.pruning.unit_parameters import filters
from splinecut.training.hooks import Hook
from splinecut.training.ledger import FORWARD, Phase

if TYPE_CHECKING:
    from splinecut.pruning.engine.context import RunContext
    from splinecut.pruning.ticket import Ticket
    from splinecut.training.hooks import TrainState


@dataclass(frozen=True)
class SoftFilters(L2):
    """L2 norm of filters that were trained under soft pruning.

    from_trained: first train the plan as usual, then once more under soft pruning at a tenth of the learning rate.
    """

    state: ClassVar[str] = "in training"
    reference: ClassVar[str] = "He et al. 2018"

    from_trained: bool = False

    @property
    def recovery(self) -> Recovery:
        return NO_RETRAINING

    def hooks(self, context: RunContext, model: nn.Module, budget: Budget) -> Sequence[Hook]:
        return () if self.from_trained else (self._zeroing(context, model, budget),)

    def first_training(self, budget: Budget) -> dict[str, Any]:
        return {} if self.from_trained else {"soft": asdict(budget)}

    def search(self, context: RunContext, model: nn.Module, turn: Round) -> None:
        if self.from_trained:
            gentle = context.plan.optimizer.model_copy(update={"lr": context.plan.optimizer.lr / 10})
            plan = context.plan.model_copy(update={"optimizer": gentle})
            context.train(model, Stage(Phase("soft"), plan), [self._zeroing(context, model, turn.budget)])

    def apply(self, context: RunContext, model: nn.Module, ticket: Ticket, evidence: Evidence) -> nn.Module:
        smaller = context.apply(model, ticket)
        is_cut = not all(kept.all() for kept in ticket.keep.values())
        if is_cut and context.refit != "least_squares":  # which corrects them itself
            recalibrate(smaller, evidence.probe)
            n_inputs = count(as_arguments(evidence.probe))
            context.ledger.charge(Phase("recalibrate"), context.flops(smaller), n_inputs, FORWARD)
        return smaller

    def _zeroing(self, context: RunContext, model: nn.Module, budget: Budget) -> ZeroShortest:
        probe = context.probe()
        return ZeroShortest(read_groups(model, probe, context.residual), probe, budget)


class ZeroShortest(Hook):
    """Zeroes, after each epoch, the filters that the budget would remove; `regrown` in the history counts revivals."""

    name = "soft"

    def __init__(self, groups: Groups, probe: Tensor, budget: Budget) -> None:
        self.groups, self.probe, self.budget = groups, probe, budget
        self.keep: Keep = {}

    def after_epoch(self, state: TrainState) -> bool:
        evidence = Evidence(state.model, self.groups, self.probe)
        scores = L2().score(evidence, self.budget)
        state.ledger.charge(Phase("score"), L2().flops(evidence, state.forward_flops), 1, FORWARD)
        has_filters = {group.name for group in self.groups if group.kind == "channels"}
        zeroed = {name: ~kept for name, kept in self.keep.items() if name in has_filters}
        state.history[-1]["regrown"] = sum(int((scores[name][gone] > 0).sum()) for name, gone in zeroed.items())
        self.keep = select(scores, self.budget, self.groups)
        # Weights only: a filter without gradient can grow back by its momentum alone.
        zero_filters(state.model, self.groups, self.keep)
        return False

    def state(self) -> dict[str, Any]:
        return {name: torch.from_numpy(kept) for name, kept in self.keep.items()}

    def restore(self, state: dict[str, Any]) -> None:
        self.keep = {name: kept.cpu().numpy().astype(bool) for name, kept in state.items()}


@torch.no_grad()
def zero_filters(model: nn.Module, groups: Groups, keep: Keep) -> None:
    """Sets the filters and biases of removed units to zero, in place; norms, momentum and next layers stay."""
    for group in groups:
        for tensor, axis, units in filters(model, group):
            gone = np.flatnonzero((units >= 0) & ~keep[group.name][units])
            tensor.index_fill_(axis, torch.from_numpy(gone).to(tensor.device), 0)
