"""What every pruning method in the catalogue promises, whatever it does inside.

A method with a slow search gets small options in SMALL. One whose course makes a promise impossible is named in the
table beside that promise, with the reason.
"""

from __future__ import annotations

import copy
import functools
import json
import os
import random
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor, nn

from splinecut.experiments import records
from splinecut.experiments.building import run_context
from splinecut.experiments.spec import Experiment
from splinecut.networks import models
from splinecut.networks.groups.values import Groups
from splinecut.pruning.budget import Budget
from splinecut.pruning.engine.context import RunContext
from splinecut.pruning.engine.driver import PruningResult, prune
from splinecut.pruning.method import NO_RETRAINING, Method, Recovery, Round
from splinecut.pruning.methods.catalogue import METHODS, resolve_method
from splinecut.pruning.ticket import Ticket
from splinecut.training import data
from splinecut.training.config import TrainingConfig
from splinecut.training.data.batch_order import Order
from splinecut.training.devices import SINGLE_PROCESS
from splinecut.training.ledger import Phase
from splinecut.training.progress import ConsoleProgress

SMALL: dict[str, dict[str, Any]] = {  # options that make a method quick, and busy, on a tiny network
    "boundary": {"slices": 1},
    "early-bird": {"window": 2, "threshold": 1.0},
    "gal": {"trials": 2, "share": 0.5, "batch_size": 32, "mask_every": 2},
    "gdp": {"share": 0.5, "batches": 2},
    "legr": {"population": 3, "tournament": 2, "candidates": 4, "steps": 1, "batch_size": 32},
    "lottery": {"n_rounds": 2, "rewind_step": 3},
    "metapruning": {"share": 0.5, "hidden": 4, "generations": 1, "candidates": 3, "parents": 2, "recalibration": 64},
    "rigl": {"every": 3},
    "slimming-iterative": {"n_rounds": 2},
    "synflow": {"n_rounds": 8},
}
CURRENCIES: dict[str, tuple[str, ...]] = {}  # for methods that cannot count in each of their units' currencies
ORDER_MATTERS = {  # why permuting channels may change which ones a method prefers
    "csgd": "the first of a cluster stays; in the end its filters are all alike",
}

EXPERIMENT = {
    "model": {"name": "convnet", "preset": "digits", "width": 0.25},
    "data": {"name": "digits", "train_size": 160},
    "training": {"epochs": 2, "batch_size": 32, "checkpoint_minutes": 0.0005},
    "probe": 32,
}
PLAN = Experiment.from_dict(EXPERIMENT).training
every_method = pytest.mark.parametrize("name", METHODS)


@pytest.fixture(autouse=True)
def _one_thread() -> Iterator[None]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@functools.cache
def digits() -> data.DataSet:
    return data.load("digits", train_size=160)


def build(seed: int) -> nn.Module:
    return models.build("convnet", preset="digits", width=0.25, classes=10, in_channels=1, seed=seed)


def experiment_of(name: str, budget: Budget) -> dict[str, Any]:
    method = {"name": name, **SMALL.get(name, {})}
    return {**EXPERIMENT, "method": method, "budget": {"keep": budget.keep, "of": budget.of}}


def a_bench(name: str, budget: Budget, plan: TrainingConfig = PLAN) -> RunContext:
    """The bench of a run of this method, but for its folder."""
    experiment = Experiment.from_dict(experiment_of(name, budget))
    context = run_context(experiment, Path(), digits(), torch.device("cpu"), SINGLE_PROCESS, ConsoleProgress())
    return replace(context, folder=None, plan=plan)


def budgets(name: str, keep: float = 0.5) -> list[Budget]:
    own = ("weights",) if METHODS[name].units == "weights" else ("channels", "flops")
    return [Budget(keep, of) for of in CURRENCIES.get(name, own)]  # type: ignore[arg-type]


def photograph(model: nn.Module) -> dict[str, Any]:
    """Everything of a network and of the random state that scoring must leave alone."""
    return {
        "weights and statistics": {name: tensor.clone() for name, tensor in model.state_dict().items()},
        "gradients": {n: None if p.grad is None else p.grad.clone() for n, p in model.named_parameters()},
        "modes": [module.training for module in model.modules()],
        "trained": [p.requires_grad for p in model.parameters()],
        "hooks": [(len(m._forward_hooks), len(m._forward_pre_hooks), len(m._backward_hooks)) for m in model.modules()],
        "random": (torch.get_rng_state(), random.getstate(), np.random.get_state()[1].tolist()),  # noqa: NPY002
    }


def differences(before: Any, after: Any, place: str = "") -> list[str]:
    if isinstance(before, Tensor):
        return [] if torch.equal(before, after) else [place]
    if isinstance(before, dict):
        return [line for key in before for line in differences(before[key], after[key], f"{place} {key}")]
    if isinstance(before, tuple | list):
        pairs = zip(before, after, strict=True)
        return [line for i, (a, b) in enumerate(pairs) for line in differences(a, b, f"{place} {i}")]
    return [] if before == after else [place]


@dataclass
class Notes:
    """What was seen while a method took its course."""

    touched: list[str] = field(default_factory=list)
    scores: list[dict[str, np.ndarray]] = field(default_factory=list)
    score_flops: int = 0
    sizes: list[int] = field(default_factory=list)  # forward FLOPs after each cut
    shifts: list[float] = field(default_factory=list)  # how far each cut moved the outputs


def spied(kind: type[Method], notes: Notes) -> type[Method]:
    """The method, watched while it scores and cuts."""

    class Spied(kind):  # type: ignore[misc, valid-type]
        def score(self, evidence, budget):
            model = evidence.model
            modes = [module.training for module in model.modules()]
            model.train()
            for parameter in model.parameters():
                parameter.grad = torch.ones_like(parameter)
            before = photograph(model)
            scores = super().score(evidence, budget)
            notes.touched += differences(before, photograph(model))
            notes.scores.append(scores)
            for parameter in model.parameters():
                parameter.grad = None
            for module, mode in zip(model.modules(), modes, strict=True):
                module.training = mode
            return scores

        def flops(self, evidence, forward_flops):
            spent = super().flops(evidence, forward_flops)
            notes.score_flops += spent
            return spent

        def apply(self, context, model, ticket, evidence):
            whole = outputs(model)
            smaller = super().apply(context, model, ticket, evidence)
            notes.sizes.append(context.flops(smaller))
            notes.shifts.append(float((outputs(smaller) - whole).abs().max()))
            return smaller

    return Spied


@torch.no_grad()
def outputs(model: nn.Module) -> Tensor:
    return copy.deepcopy(model).eval()(digits().train.examples(torch.arange(40)))


@dataclass
class Course:
    outcome: PruningResult
    context: RunContext
    notes: Notes
    method: Method


def course(name: str, budget: Budget, recovery: Recovery | None = None) -> Course:
    notes, context = Notes(), a_bench(name, budget)
    own = METHODS[name]
    try:
        METHODS[name] = spied(own, notes)
        method = resolve_method(name, SMALL.get(name, {}), budget)[1]
    finally:
        METHODS[name] = own
    return Course(prune(context, name, method, budget, recovery=recovery), context, notes, method)


@functools.cache
def whole_course(name: str) -> Course:
    """The method's whole course, run once for the tests that only look at it."""
    return course(name, budgets(name)[0])


@every_method
def test_the_same_seed_draws_the_same_ticket(name: str) -> None:
    is_drawn_at_the_cut = METHODS[name].units == "channels"  # a mask of single weights may move until the end
    again = course(name, budgets(name)[0], NO_RETRAINING if is_drawn_at_the_cut else None)
    assert again.outcome.ticket == whole_course(name).outcome.ticket


@every_method
def test_scoring_leaves_weights_gradients_buffers_modes_hooks_and_the_random_state_alone(name: str) -> None:
    notes = whole_course(name).notes
    assert notes.scores and not notes.touched


@every_method
def test_scores_are_finite_numbers_one_a_unit(name: str) -> None:
    whole = whole_course(name)
    first = whole.notes.scores[0]
    assert {n: values.shape for n, values in first.items()} == {
        n: kept.shape for n, kept in whole.outcome.ticket.keep.items()
    }
    assert all(np.isfinite(values).all() for scores in whole.notes.scores for values in scores.values())


@every_method
def test_the_budget_is_met_exactly(name: str) -> None:
    for budget in budgets(name):
        is_main = budget == budgets(name)[0]
        ticket = (whole_course(name) if is_main else course(name, budget, NO_RETRAINING)).outcome.ticket
        kept = ticket.achieved
        assert all(k.any() for k in ticket.keep.values())
        if budget.of != "flops":
            assert kept.kept == round(budget.keep * kept.of)
            continue
        assert ticket.groups is not None and kept.flops is not None and kept.all_flops is not None
        target = budget.keep * kept.all_flops
        assert kept.flops <= target < largest_with_one_more(ticket.groups, dict(ticket.keep))


def largest_with_one_more(groups: Groups, keep: dict[str, np.ndarray]) -> int:
    """The most FLOPs the network can have with one of its removed units back."""
    sizes = []
    for name, kept in keep.items():
        for unit in np.flatnonzero(~kept)[:1]:
            sizes.append(groups.flops({**keep, name: kept | (np.arange(len(kept)) == unit)}))
    return max(sizes)


@every_method
def test_keeping_everything_changes_nothing(name: str) -> None:
    for budget in budgets(name, keep=1.0)[:1]:
        whole = course(name, budget, NO_RETRAINING)
        assert all(kept.all() for kept in whole.outcome.ticket.keep.values())
        assert max(whole.notes.shifts) <= 1e-5


@every_method
def test_the_ledger_is_the_analytic_count(name: str) -> None:
    """3 x forward FLOPs x images for each training that the driver does, and what the method says a score costs."""
    whole = whole_course(name)
    context, method, phases = whole.context, whole.method, whole.context.ledger.phases
    n, dense = len(digits().train), context.flops(build(0))
    start = method.recovery.step if method.recovery.weights == "rewind" else 0
    expected: dict[str, int] = {}
    if method.trains_first:
        assert whole.outcome.dense is not None
        expected["train"] = 3 * dense * n * len(whole.outcome.dense.history)
    for number, size in enumerate(whole.notes.sizes[:-1], 1):
        expected[f"round-{number}"] = 3 * size * images(start, method.between(PLAN).epochs)
    begun = whole.outcome.dense.steps if whole.outcome.dense and method.recovery.length == "remaining" else start
    if method.recovery.length != "none" and images(begun, PLAN.epochs):
        expected["retrain"] = 3 * context.flops(whole.outcome.final.model) * images(begun, PLAN.epochs)
    for phase, flops in expected.items():
        assert phases[phase].flops == phases[phase].paper_flops == flops, phase
    judged = [phases[phase] for phase in ("score", "search") if phase in phases]
    assert sum(charge.flops for charge in judged) >= whole.notes.score_flops
    assert not any(charge.paper_flops for charge in judged)
    total = context.ledger.total
    assert total.flops >= total.paper_flops >= sum(expected.values()) > 0


@every_method
def test_phases_are_read_back_as_they_were_charged(name: str) -> None:
    for text in whole_course(name).context.ledger.phases:
        phase = Phase.parse(text)
        assert str(phase) == text and Phase.parse(str(phase)) == phase


def images(start_step: int, epochs: int) -> int:
    """Training images that a training from `start_step` on sees; the last batch of an epoch may be short."""
    batches = [len(y) for _, y in digits().train.batches(Order(PLAN.batch_size, shuffle=True))]
    return sum((batches * epochs)[start_step:])


FIRST, SECOND = "features.0", "features.3"


def permuted(key: str, value: Any, first: np.ndarray, second: np.ndarray) -> Any:
    """A tensor or scores of the small network, its two groups of channels in another order."""
    if key.startswith("classifier") and value.ndim == 2:
        places = (second[:, None] * 16 + np.arange(16)).reshape(-1)  # 4 x 4 positions of each channel
        return value[:, places]
    if key == "features.3.weight":
        return value[second][:, first]
    if key.startswith(("features.0", "features.1.")) and value.ndim:
        return value[first]
    if key.startswith(("features.3", "features.4.")) and value.ndim:
        return value[second]
    return value


@every_method
def test_permuting_channels_permutes_the_scores(name: str) -> None:
    if METHODS[name].is_random or name in ORDER_MATTERS:
        pytest.skip(ORDER_MATTERS.get(name, "its scores are drawn at random"))
    budget, rng = budgets(name)[0], np.random.default_rng(0)
    first, second = rng.permutation(4), rng.permutation(8)
    model = build(0).double()
    with torch.no_grad():
        for norm in (model.features[1], model.features[4]):
            norm.weight.uniform_(0.5, 1.5)
            norm.bias.uniform_(-0.5, 0.5)
    other = copy.deepcopy(model)
    other.load_state_dict({key: permuted(key, t, first, second) for key, t in model.state_dict().items()})
    assert torch.allclose(model.eval()(sample := torch.randn(5, 1, 8, 8).double()), other.eval()(sample))
    scores = scored(name, model, budget)
    for key, values in scored(name, other, budget).items():
        expected = permuted(key, scores[key], first, second)
        assert np.allclose(values, expected, rtol=1e-6, atol=1e-9 * np.abs(expected).max()), key


def scored(name: str, model: nn.Module, budget: Budget) -> dict[str, np.ndarray]:
    context = a_bench(name, budget, PLAN.model_copy(update={"precision": "float64"}))
    method = resolve_method(name, SMALL.get(name, {}), budget)[1]
    found = method.search(context, model, Round(budget))
    return method.score(context.evidence(model, method, found), budget)


@every_method
def test_a_section_of_the_docs_is_about_it(name: str) -> None:
    page = (Path(__file__).parents[3] / "docs" / "methods.md").read_text(encoding="utf-8")
    titles = [line.removeprefix("### ").partition(" [")[0] for line in page.splitlines() if line.startswith("### ")]
    assert name in ", ".join(titles).split(", ")


class Victims:
    """A process that runs experiments to their end, killed on the way as it is told."""

    def __init__(self) -> None:
        self.process = subprocess.Popen(
            [sys.executable, str(Path(__file__).parents[3] / "tests" / "support" / "crash_server.py")],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            env={**os.environ, "OMP_NUM_THREADS": "1"},
        )

    def run(self, out: Path, experiment: dict[str, Any], kills: list[str]) -> list[int]:
        assert self.process.stdin is not None and self.process.stdout is not None
        self.process.stdin.write(json.dumps({"out": str(out), "experiment": experiment, "kills": kills}) + "\n")
        self.process.stdin.flush()
        return json.loads(self.process.stdout.readline())


@pytest.fixture(scope="module")
def victims() -> Iterator[Victims]:
    server = Victims()
    yield server
    assert server.process.stdin is not None
    server.process.stdin.close()
    server.process.wait(timeout=60)


@every_method
def test_killed_half_way_and_taken_up_it_ends_as_if_it_had_not_been(
    name: str, victims: Victims, tmp_path: Path
) -> None:
    experiment = experiment_of(name, budgets(name)[0])
    method = METHODS[name]()
    trains_twice = method.trains_first and method.recovery.length == "full"
    kill = "steps:12.5" if trains_twice else "steps:7.5"  # a training takes 10 steps
    assert victims.run(tmp_path, experiment, [kill]) == [-9, 0]
    folder, whole = tmp_path / Experiment.from_dict(experiment).folder, whole_course(name)
    record = records.load(folder)
    assert Ticket.load(next(folder.glob("ticket.*"))) == whole.outcome.ticket
    assert not differences(dict(whole.outcome.final.model.state_dict()), load_file(folder / "model.safetensors"))
    assert record.history == whole.outcome.final.history
    ledger = {phase: cost for phase, cost in record.costs.without_time().items() if phase != "test"}
    assert ledger == whole.context.ledger.without_time()
