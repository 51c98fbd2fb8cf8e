"""Whether the methods that search are worth their search: LeGR, MetaPruning and GAL beside controls of the same size.

    python -m studies.criteria.search --method gal --out results/beats-random-gal.json

legr         the searched ranking beside filter norms over all layers, its identity, and layer by layer; equal FLOPs.
metapruning  rank correlation, over eight width vectors, of their fitness with generated weights and their accuracy when
             trained from scratch; then the widths found beside equal widths, both trained from scratch.
gal          masks learnt against the discriminator beside random filters, with the same count in every layer, cut after
             as many epochs of the same training without masks; and, not to be beaten but to be seen, cut before them.

Batch norms are recalibrated after every cut, in every arm.
"""

from __future__ import annotations

import copy
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from rich.console import Console
from rich.progress import track
from rich.table import Table
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
from splinecut.pruning.method import NO_RETRAINING, Round
from splinecut.pruning.methods.channels.baselines import L2
from splinecut.pruning.methods.channels.gal.adversary import Adversary, build_discriminator
from splinecut.pruning.methods.channels.gal.method import GAL
from splinecut.pruning.methods.channels.gal.soft_masks import SoftMasked
from splinecut.pruning.methods.channels.legr import LeGR
from splinecut.pruning.methods.channels.metapruning.method import MetaPruning, Space
from splinecut.pruning.methods.channels.metapruning.pruning_net import first_units
from splinecut.pruning.refit.batch_norms import recalibrate
from splinecut.pruning.ticket import Ticket, random_twin
from splinecut.training import devices
from splinecut.training.config import Optimizer, Schedule
from splinecut.training.ledger import Ledger, Phase
from splinecut.training.progress import ConsoleProgress
from studies.support.intervals import plus_minus
from studies.support.pairing import Comparison, arguments, gains
from studies.support.result_file import write

DRAWS = 3  # random tickets, or starts, that an accuracy is the mean of
VECTORS = 8  # width vectors that are trained from scratch
LEGR = LeGR(candidates=100, population=20, tournament=5, steps=10, batch_size=64, search_keep=0.45)
META = MetaPruning(share=1.0, generations=5, candidates=12, parents=5, recalibration=512)
GAL_ = GAL(batch_size=64, share=1.0)
CORRELATION = "rank correlation of fitness and trained accuracy"
FOUND = dict[str, float]


def legr(context: RunContext) -> FOUND:
    """Accuracy of the three rankings at 45 % of the FLOPs, recalibrated and one epoch on."""
    dense = context.train(context.build(context.seed), "train").model
    budget = Budget(0.45, "flops")
    evidence = context.evidence(dense, LEGR, LEGR.search(context, dense, Round(budget)))
    arms = {
        "legr": ticket_from_evidence(evidence, "legr", LEGR, budget),
        "norms over all layers": ticket_from_evidence(replace(evidence, search_result=None), "legr", LEGR, budget),
        "norms layer by layer": ticket_from_evidence(evidence, "l2", L2(), replace(budget, scope="layer")),
    }
    accuracies = {"dense": accuracy(context, dense)}
    for arm, ticket in arms.items():
        accuracies |= after(context, arm, cut(dense, ticket))
    return accuracies


def metapruning(context: RunContext) -> FOUND:
    """Correlation of fitness and trained accuracy at 30 % of the FLOPs, then the winner beside equal widths."""
    from scipy.stats import spearmanr

    budget, model = Budget(0.3, "flops"), context.build(context.seed)
    groups = context.evidence(model, META).groups
    net = META.trained(context, model, groups)
    vectors = some_widths(Space(groups, budget, META.ratios, META.window), context.seed)
    fitness = [META.measured(context, net, widths, Ledger()) for widths in vectors]
    order = [sorted(fitness).index(one) for one in fitness]
    scratch = [from_scratch(context, Ticket(first_units(groups, widths), groups)) for widths in vectors]
    winner = prune(context, "metapruning", META, budget, recovery=NO_RETRAINING).ticket
    equal = ticket_from_evidence(context.evidence(model, L2()), "l2", L2(), replace(budget, scope="layer"))
    return {
        CORRELATION: float(spearmanr(order, scratch).statistic),
        "metapruning | from scratch": from_scratch(context, winner),
        "equal widths | from scratch": from_scratch(context, equal),
        "worst vector | from scratch": min(scratch),
        "best vector | from scratch": max(scratch),
    }


def some_widths(space: Space, seed: int) -> list[dict[str, int]]:
    """Different width vectors within the window."""
    random, widths = np.random.default_rng(seed), dict[tuple[int, ...], dict[str, int]]()
    while len(widths) < VECTORS:
        genes = space.within(random.integers(len(space.ratios), size=len(space.groups)).tolist(), random)
        widths[genes] = space.widths(genes)
    return list(widths.values())


def from_scratch(context: RunContext, ticket: Ticket) -> float:
    """Accuracy of the network of these widths, trained by the plan from fresh weights; the mean of several starts."""
    starts = [replace(context, seed=DRAWS * context.seed + number) for number in range(DRAWS)]
    smaller = [cut(start.build(1000 + start.seed), ticket) for start in starts]
    trained = [start.train(model, "retrain").model for start, model in zip(starts, smaller, strict=True)]
    return statistics.fmean(accuracy(context, model) for model in trained)


def gal(context: RunContext) -> FOUND:
    """Accuracy of GAL at half of the channels, and of random filters cut before or after the same training."""
    dense = context.train(context.build(context.seed), "train").model
    outcome = prune(context, "gal", GAL_, Budget(0.5), recovery=NO_RETRAINING)
    accuracies = {"dense": accuracy(context, dense), **after(context, "gal", outcome.final.model)}
    tickets = [random_twin(outcome.ticket, DRAWS * context.seed + number) for number in range(DRAWS)]
    distilled = alike(context, dense, copy.deepcopy(dense))
    arms: dict[str, Callable[[Ticket], nn.Module]] = {
        "random, cut first": lambda ticket: alike(context, dense, cut(dense, ticket)),
        "random, cut last": lambda ticket: cut(distilled, ticket),
    }
    for arm, make in arms.items():
        each = [after(context, arm, make(ticket)) for ticket in tickets]
        accuracies |= {place: statistics.fmean(one[place] for one in each) for place in each[0]}
    return accuracies


def alike(context: RunContext, teacher: nn.Module, student: nn.Module) -> nn.Module:
    """`student` after GAL's adversarial training, without masks."""
    torch.manual_seed(context.seed)
    discriminator = build_discriminator(context.dataset.outputs)
    dense = copy.deepcopy(teacher).eval().requires_grad_(False)
    groups = context.evidence(student, GAL_).groups
    masked = SoftMasked(student, groups, on_channels=False, on_blocks=False)
    hook = Adversary(dense, discriminator, 0.0, GAL_.mu, GAL_.mask_rate, 1, context.processes)
    context.train(masked, Stage(Phase("adversarial"), GAL_._plan(context.plan), in_paper=False), [hook])
    return student


def after(context: RunContext, arm: str, model: nn.Module) -> FOUND:
    """Accuracy with recalibrated batch norms, then after an epoch at a small learning rate."""
    recalibrate(model, context.probe())
    accuracies = {f"{arm} | recalibrated": accuracy(context, model)}
    gentle = {"epochs": 1, "optimizer": Optimizer(lr=0.01), "schedule": Schedule(name="constant")}
    context.train(model, Stage(Phase("one epoch on"), context.plan.model_copy(update=gentle)))
    return {**accuracies, f"{arm} | one epoch on": accuracy(context, model)}


def accuracy(context: RunContext, model: nn.Module) -> float:
    """Test accuracy."""
    return float(measure(context, model)["last"]["accuracy"])


@dataclass(frozen=True)
class Study:
    """How one seed is done, and which arm is compared with which others."""

    results: Callable[[RunContext], FOUND]
    arm: str
    controls: tuple[str, ...]


STUDIES = {
    "legr": Study(legr, "legr", ("norms over all layers", "norms layer by layer")),
    "metapruning": Study(metapruning, "metapruning", ("equal widths", "worst vector", "best vector")),
    "gal": Study(gal, "gal", ("random, cut last", "random, cut first")),
}


def comparisons(study: Study, by_seed: list[FOUND]) -> list[Comparison]:
    """The method against its controls at every moment, in points."""
    found = []
    for place in [place for place in by_seed[0] if place.startswith(f"{study.arm} | ")]:
        for control in study.controls:
            other = place.replace(f"{study.arm} | ", f"{control} | ")
            found.append(Comparison.of(by_seed, place, other))
    return found


def summary(study: Study, by_seed: list[FOUND]) -> dict[str, Any]:
    """What a committed result says: every seed's numbers, and each comparison."""
    pairs = {f"{pair.first} over {pair.second}": pair for pair in comparisons(study, by_seed)}
    return {"by seed": by_seed, "gains in points": gains(pairs), **correlation(by_seed)}


def correlation(by_seed: list[FOUND]) -> dict[str, dict[str, float]]:
    """Mean of the correlations, and the one-sided p of there being none."""
    values = [seed[CORRELATION] for seed in by_seed if CORRELATION in seed]
    test = Comparison(CORRELATION, "none", tuple(values))
    return {CORRELATION: {"mean": statistics.fmean(values), "wins": test.wins, "p": test.p}} if values else {}


def show(study: Study, by_seed: list[FOUND]) -> None:
    """Means with their intervals, then the paired differences."""
    means = Table("", "mean", title=f"{len(by_seed)} seeds, 95 % intervals")
    for name in by_seed[0]:
        means.add_row(name, plus_minus([seed[name] for seed in by_seed], ".3f"))
    table = Table("", "control", "gain, points", "seeds won", "one-sided p")
    for pair in comparisons(study, by_seed):
        table.add_row(pair.first, pair.second, *pair.cells)
    Console(width=140).print(means, table, correlation(by_seed) or "")


def context_for(recipe: str, seed: int) -> RunContext:
    """The bench of a recipe, with a tenth of its training images to decide by; nothing is left behind."""
    experiment = spec.load(recipe, [f"seed={seed}", "data.validation=0.1"])
    place, quiet = devices.choose("cpu"), ConsoleProgress(Console(quiet=True))
    context = run_context(experiment, Path(), runner.load_data(experiment), place, devices.SINGLE_PROCESS, quiet)
    return replace(context, folder=None)


def main() -> None:
    parser = arguments(__doc__, "digits-channels")
    parser.add_argument("--method", choices=STUDIES, required=True)
    args = parser.parse_args()
    study, started = STUDIES[args.method], time.process_time()
    by_seed = [study.results(context_for(args.recipe, seed)) for seed in track(range(args.seeds), "seeds")]
    spent = round((time.process_time() - started) / args.seeds, 1)
    show(study, by_seed)
    Console().print(f"{spent} CPU seconds a seed")
    if args.out:
        write(args.out, __spec__, args, {**summary(study, by_seed), "CPU seconds a seed": spent})


if __name__ == "__main__":
    main()
