"""MetaPruning: generated weights are a network's weights, candidates fit their window, the search keeps its best."""

from __future__ import annotations

import functools
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from splinecut.networks import models
from splinecut.networks.groups.read import groups as read_groups
from splinecut.networks.groups.values import Groups
from splinecut.pruning.budget import Budget
from splinecut.pruning.engine.driver import prune
from splinecut.pruning.engine.stages import Stage
from splinecut.pruning.method import NO_RETRAINING, Round
from splinecut.pruning.methods.channels.metapruning.method import MetaPruning, Space, crossed, mutated, search
from splinecut.pruning.methods.channels.metapruning.pruning_net import DrawWidths, PruningNet, first_units, width_of
from splinecut.training.data.batch_order import Order
from splinecut.training.evaluate import evaluate
from splinecut.training.ledger import Ledger, Phase
from support.contexts import NETWORKS, context, with_validation

SMALL = MetaPruning(generations=2, candidates=4, parents=2, hidden=4, recalibration=64)
HALF = Budget(0.5, "flops")


@functools.cache
def generated(network: str) -> tuple[PruningNet, torch.Tensor]:
    asked = NETWORKS[network]
    model = models.build(classes=4, seed=0, **asked)
    x = torch.randn(6, *asked["input_shape"], generator=torch.Generator().manual_seed(1))
    torch.manual_seed(0)
    net = PruningNet(model, read_groups(model, x), hidden=4)
    with torch.no_grad():  # as if it had been trained: weights depend on the widths, biases are not zero
        for parameter in net.parameters():
            parameter.add_(0.05 * torch.randn(parameter.shape))
    return net, x


@pytest.mark.parametrize("network", NETWORKS)
def test_at_full_width_it_is_a_plain_network_that_holds_the_generated_weights(network: str) -> None:
    net, x = generated(network)
    plain = models.build(classes=4, seed=1, **NETWORKS[network])
    plain.load_state_dict(net.weights(net.full), strict=False)
    assert torch.allclose(net.eval()(x), plain.train()(x), atol=1e-6)


@pytest.mark.parametrize("network", NETWORKS)
def test_a_narrow_pass_is_that_of_the_cut_network_with_the_first_units(network: str) -> None:
    net, x = generated(network)
    random = np.random.default_rng(0)
    for _ in range(3):
        net.narrow(width_of(net.groups, random.choice(SMALL.ratios, len(net.groups))))
        cut = net.network(net.widths).train()
        assert torch.allclose(net.train()(x), cut(x), atol=1e-6)
        assert sum(p.numel() for p in cut.parameters()) == net.groups.parameters(first_units(net.groups, net.widths))


def test_gradients_reach_exactly_the_cropped_slice() -> None:
    net, x = generated("convnet")
    net.narrow({"features.0": 3, "features.3": 5})
    net.zero_grad()
    net.train()(x).square().sum().backward()
    bias = net.generators[1].second.bias.grad.view(16, 8, 3, 3)
    assert (bias[:5, :3] != 0).any(dim=(2, 3)).all()
    assert not bias[5:].any() and not bias[:, 3:].any()


def test_weights_start_as_the_network_does_whatever_the_width() -> None:
    torch.manual_seed(0)
    model = models.build("mlp", hidden=(16,), seed=0)
    net = PruningNet(model, read_groups(model, torch.randn(2, 2)), hidden=32)
    for ratio in (0.25, 1.0):
        made = net.weights({group.name: round(ratio * group.size) for group in net.groups})["0.weight"]
        start = model[0].weight[: len(made)]
        assert (made - start).square().mean() < 0.3 * start.square().mean()


def test_a_single_image_runs_though_its_batch_norms_have_one_value_a_channel() -> None:
    net, x = generated("resnet")
    assert net.eval()(x[:1]).isfinite().all()


def test_batch_norms_have_neither_gain_nor_shift() -> None:
    net, _ = generated("vgg")
    made = net.network(net.full)
    for module in made.modules():
        if isinstance(module, nn.BatchNorm2d):
            assert (module.weight == 1).all() and (module.bias == 0).all()


def a_space(keep: float, of: str = "flops", window: float = 0.05, network: str = "vgg") -> Space:
    return Space(_groups(network), Budget(keep, of), MetaPruning().ratios, window)  # type: ignore[arg-type]


@functools.cache
def _groups(network: str) -> Groups:
    model = models.build(classes=4, seed=0, **{**NETWORKS[network], "width": 0.25})
    return read_groups(model, torch.randn(2, *NETWORKS[network]["input_shape"]))


@settings(derandomize=True, deadline=None, max_examples=12)
@given(st.integers(0, 10**6), st.sampled_from([0.2, 0.5, 0.8]), st.sampled_from(["flops", "weights", "channels"]))
def test_every_candidate_lies_within_the_window(seed: int, keep: float, of: str) -> None:
    space, random = a_space(keep, of), np.random.default_rng(seed)
    genes = space.within(random.integers(11, size=len(space.groups)).tolist(), random)
    assert 0.95 <= space.share(genes) <= 1


def test_where_one_level_is_wider_than_the_window_no_group_could_grow() -> None:
    model = models.build("convnet", preset="digits", width=0.25, seed=0)
    groups = read_groups(model, torch.randn(2, 1, 8, 8))
    space = Space(groups, HALF, [0.25, 0.5, 1.0], 0.001)
    for seed in range(10):
        random = np.random.default_rng(seed)
        genes = space.within(random.integers(3, size=2).tolist(), random)
        assert space.share(genes) <= 1
        for place in range(2):
            wider = tuple(gene + (place == at) for at, gene in enumerate(genes))
            assert max(wider) > 2 or space.share(wider) > 1


def test_a_budget_below_the_narrowest_network_is_met_by_narrowing_all_groups_alike() -> None:
    space = a_space(0.004)
    lowest = space.within([5] * len(space.groups), np.random.default_rng(0))
    assert set(lowest) == {0} and space.share(lowest) > 1


@settings(derandomize=True, deadline=None, max_examples=25)
@given(st.lists(st.tuples(st.integers(0, 10), st.integers(0, 10)), min_size=1), st.integers(0, 10**6))
def test_every_gene_of_a_crossing_comes_from_a_parent(pairs: list[tuple[int, int]], seed: int) -> None:
    a, b = (tuple(genes) for genes in zip(*pairs, strict=True))
    child = crossed(a, b, np.random.default_rng(seed))
    assert all(gene in pair for gene, pair in zip(child, pairs, strict=True))


def test_a_mutation_changes_a_tenth_of_the_genes_on_average() -> None:
    random, genes = np.random.default_rng(0), (5,) * 5000
    changed = np.mean(np.array(mutated(genes, 11, 0.1, random)) != 5)
    assert abs(changed - 0.1 * 10 / 11) < 0.02


def test_the_best_so_far_never_falls_and_is_what_the_search_returns() -> None:
    space = a_space(0.5)
    seen: dict[tuple[int, ...], tuple[float, float]] = {}

    def fitness(genes: tuple[int, ...]) -> tuple[float, float]:
        seen[genes] = (-float(np.abs(np.array(genes) - 7).sum()), 0.0)
        return seen[genes]

    found = search(MetaPruning(generations=8, candidates=16, parents=6), space, fitness, np.random.default_rng(0))
    assert found.best == sorted(found.best) and found.best[-1] == max(seen.values()) > found.best[0]
    assert found.widths == space.widths(max(seen, key=lambda genes: seen[genes]))


def test_the_same_widths_have_the_same_fitness() -> None:
    there = with_validation(context(epochs=1))
    net = SMALL.trained(there, there.build(0), there.evidence(there.build(0), SMALL).groups)
    widths = {"features.0": 4, "features.3": 9}
    assert SMALL.measured(there, net, widths, Ledger()) == SMALL.measured(there, net, widths, Ledger())


def test_fitness_needs_recalibration() -> None:
    there = with_validation(context(epochs=8))
    method = replace(SMALL, share=1.0, hidden=16, recalibration=180)
    net = method.trained(there, there.build(0), there.evidence(there.build(0), method).groups)
    raw = evaluate(net.network(net.full), there.dataset.validation)
    accuracy, negative_loss = method.measured(there, net, net.full, Ledger())
    assert accuracy > 0.5 and accuracy >= raw.accuracy and -negative_loss < raw.loss


def test_widths_of_a_step_follow_from_seed_and_step_and_are_what_it_is_charged_for() -> None:
    there = with_validation(context(epochs=2))
    seen: list[dict[str, int]] = []

    class Spy(DrawWidths):
        def loss(self, state, outputs, targets, loss):
            seen.append(dict(state.model.widths))
            return super().loss(state, outputs, targets, loss)

    groups = there.evidence(there.build(0), SMALL).groups
    net = PruningNet(there.build(0), groups, 4)
    there.train(net, Stage(Phase("pruning-net"), in_paper=False), [Spy(SMALL.ratios, 3)])
    for step, widths in enumerate(seen):
        drawn = np.random.default_rng([3, step]).choice(SMALL.ratios, len(groups))
        assert widths == width_of(groups, drawn)
    sizes = [len(y) for epoch in range(2) for _, y in there.dataset.train.batches(Order(32, True, epoch=epoch))]
    flops = sum(3 * groups.flops(first_units(groups, w)) * n for w, n in zip(seen, sizes, strict=True))
    phases = there.ledger.phases
    assert phases["pruning-net"].flops == flops and phases["pruning-net"].paper_flops == 0
    assert phases["pruning-net: generate weights"].flops == len(seen) * 3 * net.generating_flops
    assert phases["pruning-net: validate"].flops == 2 * len(there.dataset.validation) * groups.flops()


def test_one_pruning_net_serves_all_budgets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    there = replace(with_validation(context(epochs=1)), shared=tmp_path, cache_facts={"model": "convnet"})
    SMALL.search(there, there.build(0), Round(HALF))
    monkeypatch.setattr(DrawWidths, "after_step", lambda *_: pytest.fail("it was trained again"))
    other = replace(with_validation(context(epochs=1)), shared=tmp_path, cache_facts={"model": "convnet"})
    found = SMALL.search(other, other.build(0), Round(Budget(0.3, "flops")))
    assert other.ledger.phases["pruning-net"].flops == there.ledger.phases["pruning-net"].flops > 0
    monkeypatch.setattr(MetaPruning, "measured", lambda *_: pytest.fail("it was measured again"))
    again = SMALL.search(other, other.build(0), Round(Budget(0.3, "flops")))
    assert again == found


@pytest.mark.parametrize("network", NETWORKS)
def test_it_prunes_every_architecture_within_the_budget_and_keeps_first_units(network: str) -> None:
    there = with_validation(context(network, epochs=1))
    method = replace(SMALL, generations=1, candidates=2, parents=1)
    outcome = prune(there, "metapruning", method, HALF, recovery=replace(method.recovery, length="none"))
    achieved = outcome.ticket.achieved
    assert there.flops(outcome.final.model) == achieved.flops <= 0.5 * achieved.all_flops
    assert all((np.diff(kept.astype(int)) <= 0).all() for kept in outcome.ticket.keep.values())
    assert outcome.dense is None


def test_the_winner_is_trained_from_fresh_weights() -> None:
    there = with_validation(context(epochs=0))
    outcome = prune(there, "metapruning", SMALL, HALF)
    fresh = there.build(there.seed + 1).features[0].weight
    kept = outcome.final.model.features[0].weight
    assert torch.equal(kept, fresh[: len(kept)])
    kept = prune(with_validation(context(epochs=0)), "metapruning", SMALL, HALF, recovery=NO_RETRAINING)
    assert not torch.equal(kept.final.model.features[0].weight, fresh[: len(kept.final.model.features[0].weight)])
