"""Whether filters that were trained together and merged end better than random filters cut off.

    python -m studies.criteria.csgd --seeds 5 --out results/beats-random-csgd.json

Every arm starts from one trained network and trains as many epochs again, at the same learning rate. Centripetal SGD
then merges and is done; its twin trains as usual, loses random filters, with the same count in every layer, and gets
new batch norm statistics. A harder control, not to be beaten but to be seen, loses its random filters before the
second training, which then is a retraining. Also read: what the merge takes from the accuracy, which is to be nothing.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

from torch import nn

from splinecut.experiments.measurements import measure
from splinecut.pruning.apply import cut
from splinecut.pruning.budget import Budget
from splinecut.pruning.engine.context import RunContext
from splinecut.pruning.engine.driver import prune
from splinecut.pruning.engine.stages import first_training
from splinecut.pruning.evidence import Evidence
from splinecut.pruning.methods.channels.csgd.method import CentripetalSGD
from splinecut.pruning.refit.batch_norms import recalibrate
from splinecut.pruning.ticket import Ticket, random_twin
from studies.criteria.slimming import context_for
from studies.support.pairing import compare

KEEPS = (0.5, 0.25)
CLUSTERS = ("kmeans", "even")
DRAWS = 3  # random choices that a twin is the mean of


def results(context: RunContext) -> dict[str, float]:
    """Final accuracy of every arm, and what merging took from it, for one seed."""
    scores = {"dense": _accuracy(context, trained(context))}
    longer = context.train(trained(context), "again").model
    for keep in KEEPS:
        budget = Budget(keep, scope="layer")
        for clusters in CLUSTERS:
            row = f"{clusters}, keep {keep}"
            ticket, scores[f"{row} | final"], scores[f"{row} | taken by the merge"] = merged(context, clusters, budget)
        tickets = [random_twin(ticket, DRAWS * context.seed + number) for number in range(DRAWS)]
        last = statistics.fmean(cut_last(context, longer, each) for each in tickets)
        first = statistics.fmean(
            _accuracy(context, context.train(cut(trained(context), t), "again").model) for t in tickets
        )
        for clusters in CLUSTERS:
            scores[f"{clusters}, keep {keep} twin | final"] = last
            scores[f"{clusters}, keep {keep} cut before training | final"] = first
    return scores


def trained(context: RunContext) -> nn.Module:
    """The network that every arm starts from; trained once."""
    return context.train(context.build(context.seed), first_training({})).model


def cut_last(context: RunContext, model: nn.Module, ticket: Ticket) -> float:
    """Accuracy after a cut, with new batch norm statistics."""
    smaller = cut(model, ticket)
    recalibrate(smaller, context.probe())
    return _accuracy(context, smaller)


def merged(context: RunContext, clusters: str, budget: Budget) -> tuple[Ticket, float, float]:
    """The ticket of centripetal SGD, its final accuracy, and what the merge took from it."""
    before: list[float] = []

    class Watched(CentripetalSGD):
        def apply(self, context: RunContext, model: nn.Module, ticket: Ticket, evidence: Evidence) -> nn.Module:
            before.append(_accuracy(context, model))
            return super().apply(context, model, ticket, evidence)

    method = Watched(clusters, lr=context.plan.optimizer.lr)  # type: ignore[arg-type]
    outcome = prune(context, "csgd", method, budget)
    after = _accuracy(context, outcome.final.model)
    return outcome.ticket, after, before[0] - after


def _accuracy(context: RunContext, model: nn.Module) -> float:
    return float(measure(context, model)["last"]["accuracy"])


def _one_seed(recipe: str, seed: int) -> dict[str, float]:
    with TemporaryDirectory() as shared:  # the dense training, done once for all arms
        return results(replace(context_for(recipe, seed), shared=Path(shared)))


def _most_taken(by_seed: Sequence[dict[str, float]]) -> dict[str, float]:
    taken = [100 * value for seed in by_seed for place, value in seed.items() if place.endswith("merge")]
    return {"most taken by a merge, points": max(taken)}


if __name__ == "__main__":
    compare(__doc__, __spec__, _one_seed, _most_taken)
