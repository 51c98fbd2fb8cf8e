"""Network slimming: training shrinks batch-norm scales towards zero, and the channels behind the smallest leave.

Liu et al. (2017): the sub-gradient s sign(gamma) of s |gamma| is added to the gradient of every scale in each step;
after training, channels are ranked by |gamma| over all layers (or layer by layer, as the budget's scope says), cut
once, and the smaller network is trained again without the penalty.

Departures: exactly k channels stay, where the reference removes one too many. Of a unit that several norms scale (a
residual stream) the scales are added; units without any norm are ranked by the length of their filters. A floor of 0
lets layers go empty, as the reference does, with a warning.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from torch import nn

from splinecut.pruning.budget import Budget
from splinecut.pruning.engine.schedules import geometric
from splinecut.pruning.evidence import Evidence
from splinecut.pruning.method import Method, Round, Scores
from splinecut.pruning.options import Count, NotNegative
from splinecut.pruning.ticket import emptied
from splinecut.pruning.unit_parameters import BatchNorm, batch_norm_scale, batch_norms
from splinecut.training.hooks import Hook

if TYPE_CHECKING:
    from splinecut.networks.groups.values import Groups
    from splinecut.pruning.engine.context import RunContext
    from splinecut.pruning.ticket import Ticket
    from splinecut.training.hooks import TrainState


class ShrinkScales(Hook):
    """Adds s sign(gamma) to the gradient of every batch-norm scale; weight decay acts beside it."""

    def __init__(self, strength: float) -> None:
        self.strength = strength

    def after_backward(self, state: TrainState) -> None:
        for module in state.model.modules():
            if isinstance(module, BatchNorm) and module.weight is not None and module.weight.grad is not None:
                # Not in the loss: the sub-gradient needs no graph, and losses stay comparable with other methods'.
                module.weight.grad.add_(module.weight.detach().sign(), alpha=self.strength)


@dataclass(frozen=True)
class Slimming(Method):
    """|gamma| of each unit. `l1` is s: 1e-4 for VGG, 1e-5 for very deep residual networks (Liu et al. 2017)."""

    reference: ClassVar[str] = "Liu et al. 2017"
    residual: ClassVar[Literal["tied", "select", "inner"]] = "select"

    l1: NotNegative = 1e-4

    def hooks(self, context: RunContext, model: nn.Module, budget: Budget) -> Sequence[Hook]:
        return (ShrinkScales(self.l1),) if self.l1 else ()

    def first_training(self, budget: Budget) -> dict[str, Any]:
        return {"l1": self.l1} if self.l1 else {}

    def score(self, evidence: Evidence, budget: Budget) -> Scores:
        return {group.name: batch_norm_scale(evidence.model, group) for group in evidence.groups}

    def flops(self, evidence: Evidence, forward_flops: int) -> int:
        """Reading scales off is free; units without a norm cost what L2 costs."""
        bare = [group for group in evidence.groups if not batch_norms(evidence.model, group)]
        weights = [producer.weight for group in bare for producer in group.producers if producer.weight]
        return sum(2 * evidence.model.get_parameter(weight).numel() for weight in weights)

    def apply(self, context: RunContext, model: nn.Module, ticket: Ticket, evidence: Evidence) -> nn.Module:
        if context.processes.is_main and (names := emptied(ticket.keep)):
            context.progress.message(
                f"layer collapse: nothing is left of {', '.join(names)}, so no signal passes there; where no shortcut "
                "leads around, the network gives every input the same answer. A floor of 1 prevents this"
            )
        return context.apply(model, ticket)


@dataclass(frozen=True)
class SlimmingIterative(Slimming):
    """Slimming in `n_rounds` cuts that each keep the same share, with the whole plan and the penalty before each.

    You et al. (2022) compare with it and do not say how many rounds; one round is network slimming itself.
    """

    reference: ClassVar[str] = "Liu et al. 2017, in rounds"

    n_rounds: Count = 3

    def rounds(self, budget: Budget, groups: Groups | None) -> Sequence[Round]:
        return geometric(budget, self.n_rounds)
