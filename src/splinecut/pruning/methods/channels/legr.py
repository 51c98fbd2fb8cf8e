"""LeGR (Chin et al. 2020): one ranking of all filters, made comparable across layers by a searched scale and shift.

A filter of layer l ranks alpha_l |w|^2 + kappa_l. Norms under batch norm are free of scale, so layers can only be
compared once (alpha, kappa) are known: they are found by regularised evolution, whose fitness is the validation loss
of the network cut by the ranking and trained for a few steps. One search serves all budgets.

A layer here is a group: of layers tied by a residual stream the squares are added, and they share one (alpha, kappa).
That keeps two properties of the formula which a pair for each tied layer would break: a constant added to all kappa,
or a factor on all alpha and kappa, changes nothing.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from jaxtyping import Float
from torch import nn

from splinecut.errors import InputError
from splinecut.networks.groups.values import Groups
from splinecut.networks.model_state import weights_digest
from splinecut.pruning import apply
from splinecut.pruning.budget import Budget, Keep, best, select
from splinecut.pruning.evidence import Evidence
from splinecut.pruning.method import Method, Round, Scores
from splinecut.pruning.options import Count, NotNegative, NotNegativeInt, Positive, Share
from splinecut.pruning.ticket import Ticket
from splinecut.pruning.unit_parameters import filter_norm
from splinecut.training.config import Optimizer, Schedule
from splinecut.training.evaluate import evaluate
from splinecut.training.hooks import Hook, TrainState
from splinecut.training.ledger import FORWARD, Ledger, Phase
from splinecut.training.loop import Diverged, train

if TYPE_CHECKING:
    from splinecut.pruning.engine.context import RunContext
    from splinecut.training.config import TrainingConfig


@dataclass(frozen=True, eq=False)
class Ranking:
    """One scale and one shift for each layer."""

    alpha: Float[np.ndarray, " layers"]
    kappa: Float[np.ndarray, " layers"]

    def scores(self, squares: Mapping[str, Float[np.ndarray, " units"]]) -> Scores:
        """alpha |w|^2 + kappa of every unit; squares: layer -> |w|^2 of its units."""
        rows = zip(squares.items(), self.alpha, self.kappa, strict=True)
        return {name: alpha * values + kappa for (name, values), alpha, kappa in rows}

    @property
    def key(self) -> str:
        """A digest of its numbers."""
        return hashlib.sha256(self.alpha.tobytes() + self.kappa.tobytes()).hexdigest()[:16]


@dataclass(frozen=True)
class RankingSearch:
    """The best ranking, and the loss of every candidate in the order they were tried."""

    ranking: Ranking
    losses: list[float]


@dataclass(frozen=True)
class LeGR(Method):
    """The search's size, and how candidates are compared (defaults: the authors' for CIFAR).

    steps:       of SGD, before a candidate's validation loss is taken; 0 takes it right after the cut.
    mutated:     share of the layers that a child changes.
    search_keep: share of the FLOPs that candidates keep; the ranking found there serves every budget.
    least:       share of every layer that stays, as far as the budget allows.
    """

    reference: ClassVar[str] = "Chin et al. 2020"

    population: Count = 64
    tournament: Count = 16
    candidates: Count = 400
    mutated: Share = 0.1
    steps: NotNegativeInt = 200
    learning_rate: Positive = 0.01
    batch_size: Count = 128
    weight_decay: NotNegative = 5e-4
    search_keep: Share = 0.5
    least: Share = 0.1

    def score(self, evidence: Evidence, budget: Budget) -> Scores:
        squares = squared_norms(evidence.model, evidence.groups)
        ranking = evidence.search_result.ranking if evidence.search_result else identity(len(squares))
        return ranking.scores(squares)

    def flops(self, evidence: Evidence, forward_flops: int) -> int:
        """A multiplication and an addition for every weight."""
        return 2 * evidence.groups.parameters()

    def select(self, scores: Scores, budget: Budget, groups: Groups | None, search_result: Any) -> Keep:
        return select(lifted(scores, self.least), budget, groups)

    def search(self, context: RunContext, model: nn.Module, turn: Round) -> RankingSearch:
        if not len(context.dataset.validation):
            raise InputError(
                "legr compares candidates on validation images and there are none; set data.validation=0.1"
            )
        groups = context.evidence(model, self).groups
        squares = squared_norms(model, groups)
        decides = {"weights": weights_digest(model), "options": asdict(self), "residual": context.residual}
        with context.search_cache("legr", decides) as cache:

            def loss(ranking: Ranking) -> float:
                compute = partial(self._loss, context, model, groups, ranking.scores(squares))
                cached = cache.get_or_compute(ranking.key, compute)
                return math.inf if cached is None else cached  # None: JSON has no infinity

            spread = np.array([values.std() for values in squares.values()])
            return evolve(self, spread, loss, np.random.default_rng([context.seed, len(squares)]))

    def _loss(
        self, context: RunContext, model: nn.Module, groups: Groups, scores: Scores, ledger: Ledger
    ) -> float | None:
        """Validation loss of the network cut by `scores` and trained for `steps`; None where training diverged."""
        # At one budget for all candidates, and in FLOPs: rankings that cut more would lose by their size alone.
        keep = self.select(scores, Budget(self.search_keep, "flops"), groups, None)
        smaller = apply.cut(model, Ticket(keep, groups))
        if not self.steps:
            measured = evaluate(smaller, context.dataset.validation, context.dataset.task, device=context.device)
            ledger.charge(Phase("search"), groups.flops(keep), measured.images, FORWARD)
            return measured.loss if math.isfinite(measured.loss) else None
        hooks = [_StopAfter(self.steps)]
        try:
            history = train(
                smaller,
                context.dataset,
                self._plan(context),
                seed=context.seed,
                device=context.device,
                ledger=ledger,
                phase=Phase("search"),
                hooks=hooks,
            )
        except Diverged:
            return None
        return float(history[-1]["validation_loss"])

    def _plan(self, context: RunContext) -> TrainingConfig:
        epochs = -(-self.steps * self.batch_size // len(context.dataset.train))
        optimizer = Optimizer(lr=self.learning_rate, weight_decay=self.weight_decay)
        changes = {"epochs": epochs, "batch_size": self.batch_size, "optimizer": optimizer}
        return context.plan.model_copy(update={**changes, "schedule": Schedule(name="constant")})


class _StopAfter(Hook):
    def __init__(self, steps: int) -> None:
        self.steps = steps

    def after_step(self, state: TrainState) -> bool:
        return state.step >= self.steps


def squared_norms(model: nn.Module, groups: Groups) -> dict[str, Float[np.ndarray, " units"]]:
    """|w|^2 of every unit, added over the layers that make it."""
    return {group.name: filter_norm(model, group) ** 2 for group in groups}


def identity(n_layers: int) -> Ranking:
    """alpha = 1, kappa = 0: all filters ranked by their norm."""
    return Ranking(np.ones(n_layers), np.zeros(n_layers))


def lifted(scores: Scores, least: float) -> Scores:
    """Scores under which the best `least` of every layer leave after all other units; orders within both stay."""
    values = np.concatenate(list(scores.values()))
    height = values.max() - values.min() + 1  # lifts a unit above every other
    return {name: value + height * best(value, math.ceil(least * len(value) - 1e-9)) for name, value in scores.items()}


def evolve(
    legr: LeGR,
    spread: Float[np.ndarray, " layers"],
    loss: Callable[[Ranking], float],
    generator: np.random.Generator,
) -> RankingSearch:
    """Regularised evolution: the best of a random few is changed a little, the child enters, the oldest leaves.

    spread: standard deviation of each layer's ranks, the size of a change of kappa. The last of the first generation
    is the identity, so the result is never worse than ranking by norm.
    """
    n_first = min(legr.population, legr.candidates)
    alive: list[tuple[float, Ranking]] = []
    champion, losses = (math.inf, identity(len(spread))), []
    for i in range(legr.candidates):
        sigma = 1 - i / (1.25 * legr.candidates)  # changes get smaller, and never vanish
        child = identity(len(spread))
        if i < n_first - 1:
            child = _changed(child, np.arange(len(spread)), sigma, spread, generator)
        elif i >= n_first:
            few = generator.choice(len(alive), min(legr.tournament, len(alive)), replace=False)
            parent = min((alive[place] for place in few), key=lambda one: one[0])[1]
            n_changed = max(1, round(legr.mutated * len(spread)))
            which = generator.choice(len(spread), n_changed, replace=False)
            child = _changed(parent, which, sigma, spread, generator)
            alive.pop(0)  # the oldest, not the worst (Real et al. 2019): a lucky loss does not live for ever
        alive.append((loss(child), child))
        losses.append(alive[-1][0])
        champion = min(champion, alive[-1], key=lambda one: one[0])
    return RankingSearch(champion[1], losses)


def _changed(
    ranking: Ranking, which: np.ndarray, sigma: float, spread: np.ndarray, generator: np.random.Generator
) -> Ranking:
    """alpha times exp(N(0, sigma)), which stays positive, and kappa plus N(0, spread), in the layers `which`."""
    alpha, kappa = ranking.alpha.copy(), ranking.kappa.copy()
    alpha[which] *= np.exp(generator.normal(0, sigma, len(which)))
    kappa[which] += generator.normal(0, spread[which])
    return replace(ranking, alpha=alpha, kappa=kappa)
