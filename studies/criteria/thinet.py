"""Whether ThiNet's samples of the next layer choose better channels than chance does.

    python -m studies.criteria.thinet --seeds 5 --out results/beats-random-thinet.json

Layers of a trained network are cut one by one to the same share, without training in between and without new batch
norm statistics. Read are how much of the next layer's output what is kept explains (on images and outputs that no
decision was made on, mean over layers), the accuracy of the cut network, and that after one epoch at a small learning
rate. A twin chooses at random among the same counts and is rescaled or not as its method is.
"""

from __future__ import annotations

import statistics
from dataclasses import dataclass, replace

import numpy as np
from torch import nn

from splinecut.experiments.measurements import measure
from splinecut.networks.groups.values import UnitGroup
from splinecut.pruning.activations import consumer_layers
from splinecut.pruning.budget import Budget, best, even_keep
from splinecut.pruning.engine.context import RunContext
from splinecut.pruning.engine.stages import Stage
from splinecut.pruning.evidence import Evidence
from splinecut.pruning.method import Scores
from splinecut.pruning.methods.channels.thinet import ThiNet, channel_contributions, least_squares
from splinecut.pruning.ticket import Ticket
from splinecut.training.ledger import Phase
from studies.criteria.slimming import context_for
from studies.support.pairing import compare

BUDGET = Budget(0.4, scope="layer")
DRAWS = 3  # random choices that a twin is the mean of
GENTLE = ThiNet(tune_lr=0.01)


@dataclass(frozen=True)
class Chance(ThiNet):
    """ThiNet with the choice left to chance."""

    def score(self, evidence: Evidence, budget: Budget) -> Scores:
        generator = np.random.default_rng(evidence.seed)
        return {group.name: generator.random(group.size) for group in evidence.groups}


def results(context: RunContext) -> dict[str, float]:
    """Every variant and its twin at every moment, for one seed."""
    dense = context.build(context.seed)
    context.train(dense, "train")
    accuracies = {"dense": _accuracy(context, dense)}
    for rescale in (False, True):
        how = "rescaled" if rescale else "weights left alone"
        draws = [cut_by(context, dense, Chance(rescale=rescale), DRAWS * context.seed + n) for n in range(DRAWS)]
        for variant in ("removal", "selection"):
            method = ThiNet(variant, rescale=rescale)
            for state, value in cut_by(context, dense, method, context.seed).items():
                accuracies[f"{variant}, {how} | {state}"] = value
                accuracies[f"{variant}, {how} twin | {state}"] = statistics.fmean(draw[state] for draw in draws)
    return accuracies


def cut_by(context: RunContext, model: nn.Module, method: ThiNet, seed: int) -> dict[str, float]:
    """What a variant achieves when it cuts all layers in turn."""
    explained = []
    for name, kept in even_keep(context.evidence(model, method).groups, BUDGET).items():
        evidence = replace(context.evidence(model, method), seed=seed)
        chosen = best(method.score(evidence, BUDGET)[name], int(kept.sum()))
        explained.append(_explained(context, method, evidence, evidence.groups[name], chosen))
        model = method.apply(context, model, Ticket({name: chosen}, evidence.groups), evidence)
    facts = {"explained": statistics.fmean(explained), "at once": _accuracy(context, model)}
    context.train(model, Stage(Phase("one epoch on"), GENTLE.between(context.plan)))
    return {**facts, "one epoch on": _accuracy(context, model)}


def _explained(context: RunContext, method: ThiNet, evidence: Evidence, group: UnitGroup, kept: np.ndarray) -> float:
    """1 - |y - X_kept w|^2 / |y|^2 on images behind those of the probe; w from the probe, as the method takes it."""
    (consumer,) = consumer_layers(evidence.model, group)
    n = len(evidence.probe)
    fresh = channel_contributions(
        evidence.model, [group], context.probe(2 * n)[n:], method.positions, evidence.seed + 1
    )
    factors = np.ones(int(kept.sum()))
    if method.rescale:
        factors = least_squares(method.contributions(evidence, [group])[consumer.place], kept)
    parts = fresh[consumer.place]
    missing = parts.sum(1) - parts[:, kept] @ factors
    return 1 - float(np.square(missing).sum() / np.square(parts.sum(1)).sum())


def _accuracy(context: RunContext, model: nn.Module) -> float:
    return float(measure(context, model)["last"]["accuracy"])


if __name__ == "__main__":
    compare(__doc__, __spec__, lambda recipe, seed: results(context_for(recipe, seed)))
