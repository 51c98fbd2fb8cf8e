"""Centripetal SGD: the exact contraction, what the means do, lossless merging, coupled layers, and a whole course."""

from __future__ import annotations

import copy
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.console import Console
from torch import Tensor, nn

from splinecut.errors import InputError
from splinecut.networks import models, surgery
from splinecut.networks.groups.read import groups
from splinecut.networks.groups.values import Groups
from splinecut.pruning.budget import Budget
from splinecut.pruning.draw_ticket import draw
from splinecut.pruning.engine.context import RunContext
from splinecut.pruning.engine.driver import prune
from splinecut.pruning.method import Round
from splinecut.pruning.methods.channels.csgd.clusters import clustered, even, is_main, kmeans, merged, spread
from splinecut.pruning.methods.channels.csgd.method import MET, Centripetal, CentripetalSGD, sufficient
from splinecut.training import data
from splinecut.training.config import Optimizer, Schedule, TrainingConfig
from splinecut.training.data.tensor_split import TensorSplit
from splinecut.training.hooks import Hook, TrainState
from splinecut.training.loop import train
from splinecut.training.progress import ConsoleProgress
from support import coupled_networks
from support.interrupted_runs import outcome, victim

QUICK = settings(derandomize=True, deadline=None, max_examples=25)
DIGITS = data.load("digits", seed=0, train_size=300)
PLAIN = TrainingConfig(
    epochs=1,
    batch_size=50,
    optimizer=Optimizer(lr=0.05, momentum=0.0, weight_decay=1e-3),
    schedule=Schedule(name="constant"),
    precision="float64",
    augment=False,
)


def small(seed: int = 0) -> nn.Module:
    return models.build("convnet", classes=10, input_shape=(1, 8, 8), seed=seed, preset="digits", width=0.5)


def read(model: nn.Module) -> Groups:
    return groups(model, torch.zeros(2, 1, 8, 8), prove=False)


def halved(found: Groups) -> dict[str, np.ndarray]:
    """Clusters of two neighbours each."""
    return {group.name: np.arange(group.size) // 2 for group in found}


def distance(weight: Tensor) -> Tensor:
    """How far each pair of neighbours lies from its mean."""
    pairs = weight.detach().unflatten(0, (-1, 2))
    return pairs - pairs.mean(1, keepdim=True)


class Note(Hook):
    """Keeps a tensor's value after each step."""

    def __init__(self, key: str) -> None:
        self.key = key
        self.seen: list[Tensor] = []

    def start(self, state: TrainState) -> None:
        self.after_step(state)

    def after_step(self, state: TrainState) -> None:
        self.seen.append(state.model.get_parameter(self.key).detach().clone())


@pytest.mark.parametrize("key", ["features.0.weight", "features.3.weight", "features.1.weight", "features.1.bias"])
def test_plain_sgd_shrinks_distances_in_a_cluster_by_one_minus_rate_times_decay_and_strength(key: str) -> None:
    model = small().double()
    torch.manual_seed(0)
    nn.init.normal_(model.get_parameter(key))
    found, note = read(model), Note(key)
    train(model, DIGITS, PLAIN, hooks=[Centripetal(found, halved(found), strength=0.3), note])
    assert len(note.seen) == 7
    for before, after in pairwise(note.seen):
        expected = (1 - 0.05 * (1e-3 + 0.3)) * distance(before)  # 0.98495
        assert torch.allclose(distance(after), expected, rtol=1e-9, atol=1e-13)


def test_the_mean_of_a_cluster_descends_as_sgd_by_the_mean_gradient() -> None:
    model, key = small().double(), "features.3.weight"
    found = read(model)
    gradient: list[Tensor] = []

    class Look(Hook):
        def after_backward(self, state: TrainState) -> None:
            gradient.append(state.model.get_parameter(key).grad.clone())  # type: ignore[union-attr]

    note, hook = Note(key), Centripetal(found, halved(found), strength=0.3)
    train(model, DIGITS, PLAIN, hooks=[Look(), hook, note])
    means = [weight.unflatten(0, (-1, 2)).mean(1) for weight in note.seen]
    for step, (before, after) in enumerate(pairwise(means)):
        mean_gradient = gradient[step].unflatten(0, (-1, 2)).mean(1)
        assert torch.allclose(after, before - 0.05 * (mean_gradient + 1e-3 * before), rtol=1e-10, atol=1e-14)


def test_clusters_of_one_are_plain_sgd_to_the_last_bit() -> None:
    one, other = small(), small()
    found = read(one)
    plan = TrainingConfig(epochs=1, batch_size=50)
    alone = {group.name: np.arange(group.size) for group in found}
    alone[found[0].name] = np.arange(found[0].size)[::-1].copy()  # numbered otherwise, still alone
    train(one, DIGITS, plan, hooks=[Centripetal(found, alone, strength=1.0)])
    train(other, DIGITS, plan)
    assert all(torch.equal(a, b) for a, b in zip(one.state_dict().values(), other.state_dict().values(), strict=True))


def alike(model: nn.Module, found: Groups, clusters: dict[str, np.ndarray]) -> nn.Module:
    """A copy whose units are exactly the mean of their cluster, statistics included."""
    result = copy.deepcopy(model)
    tensors = {name: tensor for name, tensor in result.state_dict().items() if tensor.is_floating_point()}
    for own in clustered(tensors, found, clusters, "producer", "follower"):
        own.put(own.tensor, own.means(own.get(own.tensor)))
    return result


PACKAGED = ["mlp", "convnet", "vgg16", "preresnet11", "resnet18"]
COUPLED = ["densenet", "mobilenetv2", "resnext", "se-resnet", "unet"]


@pytest.mark.parametrize(
    ("name", "dtype"),
    [*((name, torch.float32) for name in PACKAGED), *((name, torch.float64) for name in (*PACKAGED, *COUPLED))],
)
def test_merging_units_that_are_alike_changes_nothing(name: str, dtype: torch.dtype) -> None:
    model, x = coupled_networks.make(name, dtype)
    found = coupled_networks.read(name)
    rng = np.random.default_rng(0)
    clusters = {group.name: kmeans(rng.normal(size=(group.size, 3)), -(-group.size // 2), 0) for group in found}
    model = alike(model, found, clusters)
    assert spread(model, found, clusters) < (1e-6 if dtype == torch.float32 else 1e-14)
    keep = {name: is_main(cluster) for name, cluster in clusters.items()}
    smaller = surgery.cut(merged(model, found, clusters), found, keep)
    with torch.no_grad():
        expected = model(x)
        worst = (smaller(x) - expected).abs().max() / expected.abs().max()
    assert worst < (1e-5 if dtype == torch.float32 else 1e-12)


@QUICK
@given(st.integers(1, 20), st.integers(1, 20), st.integers(0, 10**6), st.booleans())
def test_there_are_exactly_as_many_clusters_as_asked_numbered_as_they_come(
    units: int, n: int, seed: int, coincide: bool
) -> None:
    n = min(n, units)
    filters = np.random.default_rng(seed).normal(size=(units, 4))
    filters = np.repeat(filters[: -(-units // 3)], 3, axis=0)[:units] if coincide else filters
    for cluster in (kmeans(filters, n, seed), even(filters, n, seed)):
        assert sorted(set(cluster.tolist())) == list(range(n))
        assert cluster[is_main(cluster)].tolist() == list(range(n))


def test_kmeans_finds_planted_clusters() -> None:
    centres = np.array([[0.0, 10.0], [10.0, 0.0], [-10.0, 0.0]])
    members = np.array([0, 1, 0, 2, 1, 0])
    filters = centres[members] + 0.1 * np.random.default_rng(0).normal(size=(6, 2))
    assert kmeans(filters, 3, 0).tolist() == members.tolist()


def test_even_clusters_by_hand() -> None:
    assert even(np.zeros((7, 1)), 3, 0).tolist() == [0, 0, 0, 1, 1, 2, 2]


def test_all_layers_that_write_to_a_stream_follow_the_pacesetters_clusters() -> None:
    context = run_context("preresnet11", epochs=8, batch_size=10, width=0.25)
    model = context.build(0)
    method = CentripetalSGD()
    clusters = method.search(context, model, Round(Budget(0.5)))
    found = context.evidence(model, method).groups
    stream = next(group for group in found if len(group.producers) > 1)
    pairs = clusters[stream.name][:, None] == clusters[stream.name]
    for producer in stream.producers:
        weight = model.get_parameter(producer.weight or "").detach().flatten(1).double()
        apart = torch.cdist(weight, weight, compute_mode="donot_use_mm_for_euclid_dist").numpy() / float(weight.norm())
        assert apart[pairs].max() < 1e-3 < apart[~pairs].min()


def run_context(name: str, epochs: int, batch_size: int = 50, **options: object) -> RunContext:
    def build(seed: int) -> nn.Module:
        return models.build(name, classes=10, input_shape=DIGITS.input_shape, seed=seed, **options)

    plan = TrainingConfig(epochs=epochs, batch_size=batch_size)
    return RunContext(build, DIGITS, plan, probe_size=64, progress=ConsoleProgress(Console(quiet=True)))


@pytest.mark.parametrize("n_rounds", [1, 2])
def test_a_whole_course_merges_without_loss_to_the_budget(n_rounds: int) -> None:
    context = run_context("convnet", epochs=10, batch_size=10, preset="digits", width=0.25)
    before: list[Tensor] = []
    x = context.probe(32)

    class Spy(CentripetalSGD):
        def apply(self, context: RunContext, model: nn.Module, *rest: object) -> nn.Module:
            before.append(model.eval()(x).detach())
            return super().apply(context, model, *rest)  # type: ignore[arg-type]

    done = prune(context, "csgd", Spy(n_rounds=n_rounds), Budget(0.5))
    assert [int(kept.sum()) for kept in done.ticket.keep.values()] == [2, 4]
    after = done.final.model.eval()(x)
    assert (after - before[-1]).abs().max() < 1e-5 * before[-1].abs().max()
    assert len(before) == n_rounds


def test_the_second_training_is_charged_at_full_width_and_by_the_paper_at_the_width_it_leaves() -> None:
    context = run_context("convnet", epochs=1, preset="digits", width=0.5)
    done = prune(context, "csgd", CentripetalSGD(), Budget(0.5))
    spent = context.ledger.phases["centripetal"]
    assert spent.flops == context.ledger.phases["train"].flops
    found = done.ticket.groups
    assert found is not None
    assert spent.paper_flops == round(spent.flops * found.flops(done.ticket.keep) / found.flops())
    assert "retrain" not in context.ledger.phases


def test_keeping_everything_trains_nothing_more() -> None:
    context = run_context("convnet", epochs=1, preset="digits", width=0.5)
    done = prune(context, "csgd", CentripetalSGD(), Budget(1.0))
    assert done.dense is not None and "centripetal" not in context.ledger.phases
    x = context.probe(8)
    assert torch.equal(done.final.model.eval()(x), done.dense.model.eval()(x))


@pytest.mark.parametrize("name", ["vgg16", "preresnet11", "resnet18"])
def test_budgets_are_met_on_every_kind_of_network(name: str) -> None:
    model, x = coupled_networks.make(name)
    images = TensorSplit(x, torch.tensor([0, 1, 2, 3]))
    dataset = replace(DIGITS, train=images, validation=images.subset(torch.arange(0)), input_shape=tuple(x.shape[1:]))
    context = RunContext(
        lambda seed: coupled_networks.make(name, seed=seed)[0], dataset, TrainingConfig(epochs=0), probe_size=4
    )
    done = prune(context, "csgd", CentripetalSGD(clusters="even"), Budget(0.5))
    assert done.ticket.achieved.kept == round(0.5 * done.ticket.achieved.of)
    done = prune(context, "csgd", CentripetalSGD(), Budget(0.7, "flops"))
    found = done.ticket.groups
    assert found is not None
    saving = max(found.flops({}) - found.flops({group.name: np.arange(group.size) > 0}) for group in found)
    assert 0.7 * found.flops() - saving <= found.flops(done.ticket.keep) <= 0.7 * found.flops()
    assert done.final.model(x).shape == model(x).shape


def test_the_papers_strength_is_enough_for_the_papers_plan_and_grows_for_shorter_ones() -> None:
    plan = TrainingConfig(optimizer=Optimizer(lr=0.03))
    assert sufficient(3e-3, plan, 196) == 3e-3  # 50,000 images in batches of 256, 160 epochs
    short = TrainingConfig(epochs=30, batch_size=64, optimizer=Optimizer(lr=0.03))
    strength = sufficient(3e-3, short, 23)
    distance, velocity = 1.0, 0.0
    for step in range(30 * 23):
        velocity = 0.9 * velocity + (1e-4 + strength) * distance
        distance -= 0.03 * short.schedule.factor(step, 30, 23) * velocity
    assert strength > 3e-3 and abs(distance) <= MET
    assert (
        np.isfinite(sufficient(3e-3, TrainingConfig(epochs=1), 1))
        and sufficient(3e-3, TrainingConfig(epochs=0), 5) == 3e-3
    )


def test_what_cannot_be_clustered_is_refused_in_plain_words() -> None:
    context = run_context("preresnet11", epochs=1, width=0.25)
    selecting = RunContext(context.build, DIGITS, context.plan, residual="select", probe_size=16)
    with pytest.raises(InputError, match="only selects channels; use residual = 'tied'"):
        CentripetalSGD().search(selecting, context.build(0), Round(Budget(0.5)))
    with pytest.raises(InputError, match="did you mean 'kmeans'"):
        CentripetalSGD(clusters="kmean")  # type: ignore[arg-type]
    with pytest.raises(InputError, match="run it from a recipe"):
        draw(small(), torch.zeros(2, 1, 8, 8), "csgd", keep=0.5)


EXPERIMENT = {
    "model": {"name": "convnet", "preset": "digits", "width": 0.5},
    "data": {"name": "digits", "train_size": 300},
    "training": {"epochs": 2, "batch_size": 64},
    "method": {"name": "csgd", "n_rounds": 2},
    "probe": 64,
}


@pytest.mark.slow
def test_a_run_killed_in_its_centripetal_training_ends_as_if_it_had_not_been(tmp_path: Path) -> None:
    victim(tmp_path / "whole", experiment=EXPERIMENT)
    ends = victim(tmp_path / "killed", "steps:14", "epoch:2", experiment=EXPERIMENT)
    assert [end["status"] for end in ends] == [-9, -9, 0]
    assert outcome(tmp_path / "killed", EXPERIMENT) == outcome(tmp_path / "whole", EXPERIMENT)
