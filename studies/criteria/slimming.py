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
from splinecut.experiments.building import run_context
from splinecut.experiments.measurements import measure
from splinecut.pruning.apply import cut
from splinecut.pruning.budget import Budget
from splinecut.pruning.draw_ticket import ticket_from_evidence
from splinecut.pruning.engine.context import RunContext
from splinecut.pruning.engine.driver import prune
from splinecut.pruning.engine.stages import Stage
from splinecut.pruning.method import Method
from splinecut.pruning.methods.channels.baselines import L2, Random
from splinecut.pruning.methods.channels.early_bird import EarlyBirdTicket
from splinecut.pruning.methods.channels.gdp import GlobalDynamic
from splinecut.pruning.methods.channels.sfp import SoftFilters
from splinecut.pruning.methods.channels.slimming import Slimming
from splinecut.pruning.refit.batch_norms import recalibrate
from splinecut.pruning.ticket import Ticket, random_twin
from splinecut.training import devices
from splinecut.training.config import Optimizer, Schedule
from splinecut.training.ledger import Phase
from splinecut.training.progress import ConsoleProgress
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


def accuracies(context: RunContext) -> dict[str, float]:
    """Test accuracy of every arm at every moment, for one seed."""
    penalised = Slimming(l1=PENALTY)
    dense = context.build(context.seed)
    context.train(dense, "train", penalised.hooks(context, dense, Budget(0.5)))
    by_arm = {"dense": _accuracy(context, dense)}
    for row, (method, budget) in ROWS.items():
        by_arm |= _compared(context, row, dense, method, budget)
    plain = context.train(context.build(context.seed), "train").model
    by_arm |= _compared(context, "L2 by layer, keep 0.5, no penalty", plain, *ROWS["L2 by layer, keep 0.5"])
    bird, budget = EARLY
    model = context.build(context.seed)
    by_arm["drawn epoch"] = len(context.train(model, "train", bird.hooks(context, model, budget)).history)
    by_arm |= _compared(context, "early-bird, keep 0.5", model, bird, budget)
    for epochs in SOFT_EPOCHS:
        by_arm |= _soft(replace(context, plan=context.plan.model_copy(update={"epochs": epochs})))
    return by_arm


def _compared(context: RunContext, row: str, model: nn.Module, method: Method, budget: Budget) -> dict[str, float]:
    """A criterion's accuracy, its twins' and that of a uniform random choice, for one network and budget."""
    evidence = context.evidence(model, method)
    ticket = ticket_from_evidence(evidence, row, method, budget)

    def uniform(seed: int) -> Ticket:
        return ticket_from_evidence(
            replace(evidence, seed=seed), "uniform", Random(), Budget(budget.keep, scope="layer")
        )

    twins = _draws(context, lambda s: random_twin(ticket, s))
    arms = {"": [ticket], " twin": twins, " uniform": _draws(context, uniform)}
    gains = {}
    for arm, tickets in arms.items():
        both = [list(_after(context, model, each)) for each in tickets]
        for state, values in zip(MOMENTS, zip(*both, strict=True), strict=True):
            gains[f"{row}{arm} | {state}"] = statistics.fmean(values)
    return gains


def _draws(context: RunContext, draw: Callable[[int], Ticket]) -> list[Ticket]:
    return [draw(DRAWS * context.seed + number) for number in range(DRAWS)]


def _after(context: RunContext, model: nn.Module, ticket: Ticket) -> Iterator[float]:
    """Accuracy after the cut with recalibrated batch norms, then after an epoch at a small learning rate."""
    smaller = cut(model, ticket)
    recalibrate(smaller, context.probe())
    yield _accuracy(context, smaller)
    gentle = {"epochs": 1, "optimizer": Optimizer(lr=0.01), "schedule": Schedule(name="constant")}
    context.train(smaller, Stage(Phase("one epoch on"), context.plan.model_copy(update=gentle)))
    yield _accuracy(context, smaller)


def _soft(context: RunContext) -> dict[str, float]:
    row = f"sfp, keep 0.5, {context.plan.epochs} epochs"
    outcome = prune(context, "sfp", SoftFilters(), Budget(0.5, scope="layer"))
    plain = context.train(context.build(context.seed), "train").model
    tickets = _draws(context, lambda seed: random_twin(outcome.ticket, seed))
    at_the_end = [next(_after(context, plain, ticket)) for ticket in tickets]
    first = cut(context.build(context.seed), tickets[0])
    return {
        f"{row} | recalibrated": _accuracy(context, outcome.final.model),
        f"{row} twin | recalibrated": statistics.fmean(at_the_end),
        f"{row} cut before training | recalibrated": _accuracy(context, context.train(first, "train").model),
    }


def _accuracy(context: RunContext, model: nn.Module) -> float:
    return float(measure(context, model)["last"]["accuracy"])


def context_for(recipe: str, seed: int) -> RunContext:
    """The bench of a recipe, without a folder: nothing is left behind."""
    experiment = spec.load(recipe, [f"seed={seed}"])
    dataset, device = runner.load_data(experiment), devices.choose("cpu")
    return replace(
        run_context(experiment, Path(), dataset, device, devices.SINGLE_PROCESS, ConsoleProgress(Console(quiet=True))),
        folder=None,
    )


if __name__ == "__main__":
    compare(__doc__, __spec__, lambda recipe, seed: accuracies(context_for(recipe, seed)))
