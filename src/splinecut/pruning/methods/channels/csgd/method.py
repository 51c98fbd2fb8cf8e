"""Centripetal SGD: filters of a cluster are trained until they are equal, and then merged without loss.

Ding et al. (2019): the filters of a layer are clustered, as many clusters H as filters are to stay, and a filter w of
H is moved by

    mean over H of the gradients  +  decay * w  +  strength * (w - mean over H of the filters) ,

and so are its bias, scale and shift. Under plain SGD a filter's distance from its cluster's mean shrinks by exactly
1 - lr (decay + strength) in each step, while the mean descends as always. Once all filters of a cluster are alike, so
are their channels: one stays, and the next layer's weights from all of them are added up. Nothing is trained again.

In a residual stream the filters of the first layer that writes to it, the pacesetter, are clustered, and all others
follow: a group of units with several producers.

Departures: the optimiser's own weight decay is the rule's, so it stands for all parameters. Scales and shifts are
pulled as strongly as filters (the authors' code: a tenth). A plan too short for the filters to meet gets a larger
strength, see `sufficient`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import numpy as np
import torch
from jaxtyping import Int64
from torch import nn

from splinecut.errors import InputError
from splinecut.networks.groups.values import Groups, UnitGroup
from splinecut.pruning.budget import Budget, Keep, even_keep
from splinecut.pruning.engine.schedules import geometric
from splinecut.pruning.engine.stages import Stage
from splinecut.pruning.evidence import Evidence
from splinecut.pruning.method import NO_RETRAINING, Method, Recovery, Round, Scores
from splinecut.pruning.methods.channels.csgd.clusters import (
    CLUSTERINGS,
    Clusters,
    Slices,
    clustered,
    is_main,
    merged,
    places,
    spread,
)
from splinecut.pruning.options import Count, Positive
from splinecut.training.config import Optimizer, TrainingConfig
from splinecut.training.hooks import Hook
from splinecut.training.ledger import Charge, Phase

if TYPE_CHECKING:
    from splinecut.pruning.engine.context import RunContext
    from splinecut.pruning.ticket import Ticket
    from splinecut.training.hooks import TrainState

MET = 1e-6  # of a filter's distance to its cluster's mean, left at the end: filters have met
ALIKE = 1e-4  # of a tensor's largest entry: merging filters further apart than this changes what the network computes


@dataclass(frozen=True)
class CentripetalSGD(Method):
    """`strength` and `lr` are those of the authors' CIFAR runs; epochs, batches and schedule are the experiment's.

    clusters "kmeans" or "even" (neighbouring filters). `n_rounds` cuts that each keep the same share, with a
    centripetal training before each.
    """

    reference: ClassVar[str] = "Ding et al. 2019"
    state: ClassVar[str] = "after a second training that makes filters alike"
    residual: ClassVar[Literal["tied", "select", "inner"]] = "tied"
    is_random: ClassVar[bool] = True  # k-means starts from filters drawn by the seed

    clusters: Literal["kmeans", "even"] = "kmeans"
    strength: Positive = 3e-3
    lr: Positive = 0.03
    n_rounds: Count = 1

    @property
    def recovery(self) -> Recovery:
        return NO_RETRAINING

    def rounds(self, budget: Budget, groups: Groups | None) -> Sequence[Round]:
        return geometric(budget, self.n_rounds)

    def between(self, plan: TrainingConfig) -> TrainingConfig:
        """Nothing: every round has a training of its own in `search`."""
        return plan.model_copy(update={"epochs": 0})

    def search(self, context: RunContext, model: nn.Module, turn: Round) -> Clusters:
        """Clusters the filters, as many clusters as units may stay, and trains until those of a cluster are alike."""
        groups = context.evidence(model, self).groups
        # Budgets speak of the dense network, and after the first round `model` is a smaller one.
        dense = model if self.n_rounds == 1 else context.build(context.seed).to(context.device)
        dense_groups = groups if dense is model else context.evidence(dense, self).groups
        keep = even_keep(dense_groups, turn.budget)
        clusters = {
            group.name: self._clustered(model, group, int(keep[group.name].sum()), context.seed) for group in groups
        }
        if all(cluster.max(initial=-1) + 1 == len(cluster) for cluster in clusters.values()):
            return clusters  # one unit a cluster: nothing to merge
        plan = self._plan(context.plan)
        strength = sufficient(self.strength, plan, context.steps_per_epoch)
        pull = Centripetal(groups, clusters, strength)
        phase = Phase("centripetal", "" if self.n_rounds == 1 else f"{turn.budget.keep:g}")
        context.train(model, Stage(phase, plan), [pull])
        # The paper charges C-SGD a second training at the width that it leaves; it is done at full width.
        spent = context.ledger.phases.get(str(phase), Charge())
        share = dense_groups.flops(keep) / max(1, dense_groups.flops())
        context.ledger.phases[str(phase)] = replace(spent, paper_flops=round(share * spent.flops))
        self._warn_if_apart(context, model, pull)
        return pull.clusters

    def _plan(self, plan: TrainingConfig) -> TrainingConfig:
        momentum = plan.optimizer.momentum if plan.optimizer.name == "sgd" else Optimizer().momentum
        sgd = Optimizer(lr=self.lr, momentum=momentum, weight_decay=plan.optimizer.weight_decay)
        return plan.model_copy(update={"optimizer": sgd})

    def _clustered(self, model: nn.Module, group: UnitGroup, n: int, seed: int) -> Int64[np.ndarray, " units"]:
        pacesetter = group.producers[0]  # Ding et al. 2019: layers tied by a residual stream follow the first one
        if pacesetter.weight is None:
            raise InputError(
                f"csgd merges filters, and {group.name} only selects channels; use residual = 'tied' or 'inner'"
            )
        member = next(m for m in group.members if (m.key, m.axis) == (pacesetter.weight, pacesetter.axis))
        weight = model.get_parameter(member.key).detach().movedim(member.axis, 0)
        filters = weight.double().cpu()[places(member, group)].flatten(1)
        return CLUSTERINGS[self.clusters](filters.numpy(), max(1, n), seed)

    def _warn_if_apart(self, context: RunContext, model: nn.Module, pull: Centripetal) -> None:
        apart = spread(model, pull.groups, pull.clusters)
        if apart > ALIKE and context.processes.is_main:
            context.progress.message(
                f"csgd: filters of a cluster still differ by {apart:.1e} of the largest weight, so merging them "
                "changes the network; train for more epochs"
            )

    def score(self, evidence: Evidence, budget: Budget) -> Scores:
        """1 for the first unit of each cluster, 0 for those that merge with it."""
        return {name: is_main(cluster).astype(float) for name, cluster in evidence.search_result.items()}

    def select(self, scores: Scores, budget: Budget, groups: Groups | None, search_result: Any) -> Keep:
        """One of each cluster: they were made to fit the budget."""
        return {name: values > 0 for name, values in scores.items()}

    def apply(self, context: RunContext, model: nn.Module, ticket: Ticket, evidence: Evidence) -> nn.Module:
        return context.apply(merged(model, evidence.groups, evidence.search_result), ticket)


class Centripetal(Hook):
    """Gives all units of a cluster one gradient, the mean of theirs, and adds the pull towards the cluster's mean."""

    name = "centripetal"

    def __init__(self, groups: Groups, clusters: Clusters, strength: float) -> None:
        self.groups, self.clusters, self.strength = groups, clusters, strength
        self._own: list[Slices] = []

    def start(self, state: TrainState) -> None:
        parameters = dict(state.model.named_parameters())
        self._own = list(clustered(parameters, self.groups, self.clusters, "producer", "follower"))

    def after_backward(self, state: TrainState) -> None:
        for own in self._own:
            gradient = own.tensor.grad
            if gradient is not None:
                # Into the gradient, not into the weights: the optimizer's momentum then acts on the pull as well,
                # which is the recursion that `sufficient` runs.
                weight = own.get(own.tensor)
                own.put(gradient, own.means(own.get(gradient)) + self.strength * (weight - own.means(weight)))

    def state(self) -> dict[str, Any]:
        return {name: torch.from_numpy(cluster) for name, cluster in self.clusters.items()}

    def restore(self, state: dict[str, Any]) -> None:
        """Clusters are not computed again: on another machine k-means may differ in the last digit."""
        self.clusters = {name: cluster.cpu().numpy() for name, cluster in state.items()}


def sufficient(strength: float, plan: TrainingConfig, steps_per_epoch: int) -> float:
    """`strength`, doubled until a training by `plan` lets filters of a cluster meet, or as near as it can.

    Their distance d follows the optimiser's own recursion, v <- m v + (decay + strength) d, d <- d - lr v, which is
    simply run. Too strong a pull makes d swing, so in very short plans the best strength is the one before that.
    """
    steps = plan.epochs * steps_per_epoch
    rates = [plan.optimizer.lr * plan.schedule.factor(step, plan.epochs, steps_per_epoch) for step in range(steps)]
    left, best = _left(strength, plan, rates), strength
    while left > MET:
        stronger = _left(2 * best, plan, rates)
        if not stronger < left:  # also where it has swung beyond all numbers
            break
        left, best = stronger, 2 * best
    return best


def _left(strength: float, plan: TrainingConfig, rates: Sequence[float]) -> float:
    """The share of the first distance that is there at the end, and what momentum could still bring back."""
    distance, velocity, pull = 1.0, 0.0, plan.optimizer.weight_decay + strength
    for rate in rates:
        velocity = plan.optimizer.momentum * velocity + pull * distance
        distance -= rate * velocity
    return max(abs(distance), abs(rates[-1] * velocity) if rates else 0.0)
