"""Whether batch-norm scales, gates and soft pruning choose better channels than chance does.

    python -m studies.criteria.slimming --seeds 5 --out results/beats-random-slimming.json

After each cut batch norms are recalibrated on the probe, in every arm; accuracy is read there and after one more
epoch at a small learning rate. A criterion's twin keeps as many units of every layer and chooses them at random,
which isolates the criterion; `uniform` keeps the same share of every layer at random, which tests the allocation too.
Soft pruning is compared after as many epochs with random filters cut at the end of an ordinary training, and, not to
be beaten but to be seen, with a network that was randomly cut before it was trained.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

from rich.console import Console
from torch import nn

from splinecut.experiments import runner, spec
from splinecut.experiments.measurements import measure
from splinecut.experiments.plan import bench_of
from splinecut.pruning.apply import cut
from splinecut.pruning.budget import Budget
from splinecut.pruning.draw import drawn
from splinecut.pruning.engine.context import Bench
from splinecut.pruning.engine.driver import prune
from splinecut.pruning.method import Method
from splinecut.pruning.methods.channels.baselines import L2, Random
from splinecut.pruning.methods.channels.early_bird import EarlyBirdTicket
from splinecut.pruning.methods.channels.gdp import GlobalDynamic
from splinecut.pruning.methods.channels.sfp import SoftFilters
from splinecut.pruning.methods.channels.slimming import Slimming
from splinecut.pruning.methods.weights.random_masks import twin
from splinecut.pruning.refit.least_squares import recalibrate
from splinecut.pruning.ticket import Ticket
from splinecut.training import devices
from splinecut.training.config import Optimizer, Schedule
from splinecut.training.progress import Watch
from studies.support.pairing import compare

PENALTY = 1e-2  # 15 epochs are few: a penalty of 1e-4 would hardly move a scale
DRAWS = 3  # random tickets that a control is the mean of
ROWS: dict[str, tuple[Method, Budget]] = {
    "slimming, keep 0.5": (Slimming(), Budget(0.5, floor=2)),
    "slimming by layer, keep 0.5": (Slimming(), Budget(0.5, scope="layer")),
    "slimming by layer, keep 0.4": (Slimming(), Budget(0.4, scope="layer")),
    "gdp's gates, keep 0.5": (GlobalDynamic(), Budget(0.5, floor=2)),
    "gdp's gates, keep 0.4": (GlobalDynamic(), Budget(0.4, floor=2)),
    "L2 by layer, keep 0.5": (L2(), Budget(0.5, scope="layer")),
}
EARLY = (EarlyBirdTicket(l1=PENALTY), Budget(0.5, floor=2))
SOFT_EPOCHS = (15, 60)  # zeroed filters grow back for many epochs; in few, soft pruning does not settle
MOMENTS = ("recalibrated", "one epoch on")


def accuracies(bench: Bench) -> dict[str, float]:
    """Test accuracy of every arm at every moment, for one seed."""
    penalised = Slimming(l1=PENALTY)
    dense = bench.build(bench.seed)
    bench.train(dense, "train", penalised.hooks(bench, dense, Budget(0.5)))
    found = {"dense": _accuracy(bench, dense)}
    for row, (method, budget) in ROWS.items():
        found |= _compared(bench, row, dense, method, budget)
    plain = bench.train(bench.build(bench.seed), "train").model
    found |= _compared(bench, "L2 by layer, keep 0.5, no penalty", plain, *ROWS["L2 by layer, keep 0.5"])
    bird, budget = EARLY
    model = bench.build(bench.seed)
    found["drawn epoch"] = len(bench.train(model, "train", bird.hooks(bench, model, budget)).history)
    found |= _compared(bench, "early-bird, keep 0.5", model, bird, budget)
    for epochs in SOFT_EPOCHS:
        found |= _soft(replace(bench, plan=bench.plan.model_copy(update={"epochs": epochs})))
    return found


def _compared(bench: Bench, row: str, model: nn.Module, method: Method, budget: Budget) -> dict[str, float]:
    """A criterion's accuracy, its twins' and that of a uniform random choice, for one network and budget."""
    evidence = bench.evidence(model, method)
    ticket = drawn(evidence, row, method, budget)

    def uniform(seed: int) -> Ticket:
        return drawn(replace(evidence, seed=seed), "uniform", Random(), Budget(budget.keep, scope="layer"))

    arms = {"": [ticket], " twin": _draws(bench, lambda s: twin(ticket, s)), " uniform": _draws(bench, uniform)}
    found = {}
    for arm, tickets in arms.items():
        both = [list(_after(bench, model, each)) for each in tickets]
        for moment, values in zip(MOMENTS, zip(*both, strict=True), strict=True):
            found[f"{row}{arm} | {moment}"] = statistics.fmean(values)
    return found


def _draws(bench: Bench, draw: Callable[[int], Ticket]) -> list[Ticket]:
    return [draw(DRAWS * bench.seed + number) for number in range(DRAWS)]


def _after(bench: Bench, model: nn.Module, ticket: Ticket) -> Iterator[float]:
    """Accuracy after the cut with recalibrated batch norms, then after an epoch at a small learning rate."""
    smaller = cut(model, ticket)
    recalibrate(smaller, bench.probe())
    yield _accuracy(bench, smaller)
    gentle = {"epochs": 1, "optimizer": Optimizer(lr=0.01), "schedule": Schedule(name="constant")}
    bench.train(smaller, "one epoch on", plan=bench.plan.model_copy(update=gentle))
    yield _accuracy(bench, smaller)


def _soft(bench: Bench) -> dict[str, float]:
    row = f"sfp, keep 0.5, {bench.plan.epochs} epochs"
    outcome = prune(bench, "sfp", SoftFilters(), Budget(0.5, scope="layer"))
    plain = bench.train(bench.build(bench.seed), "train").model
    tickets = _draws(bench, lambda seed: twin(outcome.ticket, seed))
    at_the_end = [next(_after(bench, plain, ticket)) for ticket in tickets]
    first = cut(bench.build(bench.seed), tickets[0])
    return {
        f"{row} | recalibrated": _accuracy(bench, outcome.final.model),
        f"{row} twin | recalibrated": statistics.fmean(at_the_end),
        f"{row} cut before training | recalibrated": _accuracy(bench, bench.train(first, "train").model),
    }


def _accuracy(bench: Bench, model: nn.Module) -> float:
    return float(measure(bench, model)["last"]["accuracy"])


def bench_for(recipe: str, seed: int) -> Bench:
    """The bench of a recipe, without a folder: nothing is left behind."""
    experiment = spec.load(recipe, [f"seed={seed}"])
    dataset, device = runner.load_data(experiment), devices.choose("cpu")
    return replace(
        bench_of(experiment, Path(), dataset, device, devices.ALONE, Watch(Console(quiet=True))), folder=None
    )


if __name__ == "__main__":
    compare(__doc__, __spec__, lambda recipe, seed: accuracies(bench_for(recipe, seed)))
