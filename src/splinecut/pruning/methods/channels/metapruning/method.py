"""MetaPruning (Liu et al. 2019): train a PruningNet, search widths with its weights, train the winner from scratch.

Which units stay is no question here, only how many of each group: they are the first ones. The PruningNet and the
fitness of every width vector serve all budgets; the search itself is made for one.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, ClassVar

import numpy as np
import torch
from torch import nn

from splinecut.errors import InputError
from splinecut.networks.groups.values import Groups
from splinecut.networks.model_state import weights_digest
from splinecut.pruning.budget import Budget
from splinecut.pruning.engine.stages import Stage
from splinecut.pruning.evidence import Evidence
from splinecut.pruning.method import REINIT, Method, Recovery, Round, Scores
from splinecut.pruning.methods.channels.metapruning.pruning_net import (
    DrawWidths,
    PruningNet,
    Widths,
    first_units,
    width_of,
)
from splinecut.pruning.options import Count, NotNegative, Positive, Share
from splinecut.pruning.refit.batch_norms import recalibrate
from splinecut.training.evaluate import evaluate
from splinecut.training.ledger import FORWARD, Ledger, Phase
from splinecut.training.seeding import generator

if TYPE_CHECKING:
    from splinecut.pruning.engine.context import RunContext
    from splinecut.training.config import TrainingConfig

Genes = tuple[int, ...]
"""For each group the number of its width level, the narrowest being 0."""

Fitness = tuple[float, float]
"""Validation accuracy, and minus the validation loss, which decides between equal accuracies."""


@dataclass(frozen=True)
class WidthSearch:
    """The best widths, and the best fitness so far after each generation."""

    widths: dict[str, int]
    best: list[Fitness]


@dataclass(frozen=True)
class MetaPruning(Method):
    """The sizes of the hyper-network and of the search (defaults: the CIFAR adaptation of the authors' ImageNet ones).

    narrowest, levels: width ratios are `levels` equal steps from `narrowest` to 1.
    hidden:    units between the ratios and a weight.
    share:     of the plan's epochs, for which the PruningNet is trained (40 of 160); short plans want more than 1.
    recalibration: training images from which a candidate's batch norms take their statistics.
    window:    how far below the budget a candidate may lie, as a share of it; none lies above. What the winner leaves
               of the budget is spent by widening all groups alike.
    """

    reference: ClassVar[str] = "Liu et al. 2019"
    state: ClassVar[str] = "before training"
    trains_first: ClassVar[bool] = False
    is_random: ClassVar[bool] = True  # the first units stay, whatever they are

    narrowest: Share = 0.1
    levels: Count = 11
    hidden: Count = 32
    share: Positive = 0.25
    label_smoothing: NotNegative = 0.1
    generations: Count = 10
    candidates: Count = 20
    parents: Count = 10
    mutated: Share = 0.1
    recalibration: Count = 2000
    window: Share = 0.05

    @property
    def recovery(self) -> Recovery:
        """The winner is trained from scratch."""
        return REINIT

    @property
    def ratios(self) -> list[float]:
        """The width ratios there are, the narrowest first."""
        return np.linspace(self.narrowest, 1, self.levels).round(6).tolist() if self.levels > 1 else [1.0]

    def score(self, evidence: Evidence, budget: Budget) -> Scores:
        """Minus each unit's place as a share of its group's width: selecting widens or narrows all groups alike."""
        result = evidence.search_result
        widths = result.widths if result else {group.name: group.size for group in evidence.groups}
        return {group.name: -(np.arange(group.size) + 0.5) / widths[group.name] for group in evidence.groups}

    def search(self, context: RunContext, model: nn.Module, turn: Round) -> WidthSearch:
        if not len(context.dataset.validation):
            raise InputError("metapruning compares widths on validation images, got none; set data.validation=0.1")
        groups = context.evidence(model, self).groups
        net = self.trained(context, model, groups)
        space = Space(groups, turn.budget, self.ratios, self.window)
        random = np.random.default_rng([context.seed, turn.budget.keep.as_integer_ratio()[0] % 2**32])
        decides = {"weights": weights_digest(net), "recalibration": self.recalibration, "ratios": self.ratios}
        with context.search_cache("widths", decides) as cache:

            def fitness(genes: Genes) -> Fitness:
                compute = partial(self.measured, context, net, space.widths(genes))
                accuracy, negative_loss = cache.get_or_compute(" ".join(map(str, genes)), compute)
                return accuracy, negative_loss

            return search(self, space, fitness, random)

    def trained(self, context: RunContext, model: nn.Module, groups: Groups) -> PruningNet:
        """The PruningNet of `model`, trained; all budgets share it."""
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(context.seed)
            net = PruningNet(model, groups, self.hidden).to(context.device)
        decides = {
            "method": "metapruning",
            "ratios": self.ratios,
            "hidden": self.hidden,
            "residual": context.residual,
        }
        hooks = [DrawWidths(self.ratios, context.seed)]
        stage = Stage(Phase("pruning-net"), self._plan(context.plan), decided_by=decides, in_paper=False)
        context.train(net, stage, hooks)
        return net

    def measured(self, context: RunContext, net: PruningNet, widths: Widths, ledger: Ledger) -> Fitness:
        """Accuracy of these widths on the validation images, with generated weights and recalibrated batch norms."""
        started = time.perf_counter()
        network = net.network(widths)
        rows = torch.randperm(len(context.dataset.train), generator=generator(context.seed))[: self.recalibration]
        # Batch norms of a generated network have seen no data yet.
        recalibrate(network, context.dataset.train.examples(rows, context.device))
        result = evaluate(network, context.dataset.validation, context.dataset.task, device=context.device)
        flops, images = net.groups.flops(first_units(net.groups, widths)), len(rows) + result.images
        ledger.charge(Phase("search"), flops, images, FORWARD, seconds=time.perf_counter() - started)
        ledger.charge(Phase("search", part="generate weights"), net.generating_flops, 1, FORWARD)
        return result.accuracy or 0.0, -result.loss

    def _plan(self, plan: TrainingConfig) -> TrainingConfig:
        epochs = max(min(1, plan.epochs), round(self.share * plan.epochs))
        return plan.model_copy(update={"epochs": epochs, "label_smoothing": self.label_smoothing})


@dataclass(frozen=True)
class Space:
    """Width vectors within a budget."""

    groups: Groups
    budget: Budget
    ratios: Sequence[float]
    window: float

    def widths(self, genes: Genes) -> dict[str, int]:
        """Units of each group."""
        return width_of(self.groups, [self.ratios[gene] for gene in genes])

    def share(self, genes: Genes) -> float:
        """What this vector keeps as a share of what the budget allows."""
        keep = first_units(self.groups, self.widths(genes))
        if self.budget.of in ("flops", "weights"):
            cost = self.groups.flops if self.budget.of == "flops" else self.groups.parameters
            return cost(keep) / (self.budget.keep * cost())
        return sum(int(kept.sum()) for kept in keep.values()) / (self.budget.keep * self.groups.n_units)

    def within(self, genes: Sequence[int], random: np.random.Generator) -> Genes:
        """`genes` brought into the window, a random group by a level at a time.

        Groups shrink until the budget is met. Then they grow until the window is reached, or no group can grow
        without leaving the budget: in small networks one level may weigh more than the window is wide.
        """
        genes, top = list(genes), len(self.ratios) - 1
        while self.share(tuple(genes)) > 1 and any(genes):
            genes[random.choice(np.flatnonzero(genes))] -= 1
        # Up to the budget, not only below it: otherwise narrow candidates would lose by their size alone.
        can_grow = [place for place in range(len(genes)) if genes[place] < top]
        while self.share(tuple(genes)) < 1 - self.window and can_grow:
            place = can_grow[random.integers(len(can_grow))]
            genes[place] += 1
            if self.share(tuple(genes)) > 1:
                genes[place] -= 1
                can_grow.remove(place)
            elif genes[place] == top:
                can_grow.remove(place)
        return tuple(int(gene) for gene in genes)


def search(
    method: MetaPruning, space: Space, fitness: Callable[[Genes], Fitness], random: np.random.Generator
) -> WidthSearch:
    """Evolution by generations: the best so far are the parents; half of the children mutate one, half cross two."""
    n_groups, n_levels = len(space.groups), len(space.ratios)
    measured: dict[Genes, Fitness] = {}
    best: list[Fitness] = []
    fresh = random.integers(n_levels, size=(method.candidates, n_groups)).tolist()
    children = [space.within(genes, random) for genes in fresh]
    for _ in range(method.generations):
        for genes in children:
            measured[genes] = fitness(genes)
        parents = sorted(measured, key=lambda genes: measured[genes], reverse=True)[: method.parents]
        best.append(measured[parents[0]])
        children = []
        for number in range(method.candidates):
            a, b = (parents[place] for place in random.integers(len(parents), size=2))
            child = mutated(a, n_levels, method.mutated, random) if number % 2 else crossed(a, b, random)
            children.append(space.within(child, random))
    return WidthSearch(space.widths(parents[0]), best)


def mutated(genes: Genes, n_levels: int, share: float, random: np.random.Generator) -> Genes:
    """Each gene drawn anew with probability `share`."""
    fresh = random.integers(n_levels, size=len(genes))
    return tuple(np.where(random.random(len(genes)) < share, fresh, genes).tolist())


def crossed(a: Genes, b: Genes, random: np.random.Generator) -> Genes:
    """Each gene from one of the two parents."""
    return tuple(np.where(random.random(len(a)) < 0.5, a, b).tolist())
