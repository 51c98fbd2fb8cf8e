"""SynFlow: its flow path by path, what it conserves, and the collapse it avoids where others do not."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.utils.flop_counter import FlopCounterMode

import splinecut as sc
from splinecut.networks import cost, models
from splinecut.pruning.budget import Budget, select
from splinecut.pruning.evidence import NO_GROUPS, Evidence
from splinecut.pruning.methods.weights.synflow import Synflow, absolute_copy, flow
from support.weight_oracles import chain, flow_by_paths, per_layer


def ones(n: int) -> Tensor:
    return torch.ones(1, n, dtype=torch.float64)


def test_the_flow_through_a_weight_is_the_sum_over_its_paths() -> None:
    net = chain([4, 6, 5, 3])
    scores = flow(absolute_copy(net), ones(4))
    expected = flow_by_paths([net[i].weight.detach() for i in (0, 2, 4)])
    for found, by_paths in zip(scores.values(), expected, strict=True):
        np.testing.assert_allclose(found, by_paths, rtol=1e-12)


def test_without_biases_every_layer_carries_the_whole_flow_and_every_unit_passes_on_what_it_gets() -> None:
    net = absolute_copy(chain([4, 6, 5, 3]))
    total = net(ones(4)).sum().item()
    scores = list(flow(net, ones(4)).values())
    for layer in scores:
        assert layer.sum() == pytest.approx(total, rel=1e-12)
    for before, after in pairwise(scores):
        np.testing.assert_allclose(before.sum(1), after.sum(0), rtol=1e-12)


def test_with_biases_what_enters_a_unit_and_its_own_bias_make_what_leaves_it() -> None:
    net = absolute_copy(chain([4, 6, 5, 3], bias=True))
    scores = list(flow(net, ones(4)).values())
    biases = [net[i].bias.requires_grad_() for i in (0, 2)]
    total = net(ones(4)).sum()
    own = [(b * g).detach().numpy() for b, g in zip(biases, torch.autograd.grad(total, biases), strict=True)]
    for before, bias, after in zip(scores[:-1], own, scores[1:], strict=True):
        np.testing.assert_allclose(before.sum(1) + bias, after.sum(0), rtol=1e-12)
    shares = [layer.sum() / total.item() for layer in scores]
    assert shares == sorted(shares) and shares[-1] < 0.99  # the later the layer, the more biases have joined


def test_in_a_residual_network_the_trunk_carries_everything_and_a_branch_less() -> None:
    class Residual(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.stem, self.branch, self.head = (nn.Linear(4, 4, bias=False) for _ in range(3))

        def forward(self, x: Tensor) -> Tensor:
            x = torch.relu(self.stem(x))
            return self.head(x + torch.relu(self.branch(x)))

    torch.manual_seed(0)
    net = absolute_copy(Residual())
    total = net(ones(4)).sum().item()
    stem, branch, head = (layer.sum() for layer in flow(net, ones(4)).values())
    assert (stem, head) == pytest.approx((total, total), rel=1e-12)
    assert 0 < branch < 0.9 * total


def test_batch_norm_runs_on_its_initial_statistics_and_conserves() -> None:
    torch.manual_seed(0)
    net = nn.Sequential(nn.Conv2d(1, 3, 3, bias=False), nn.BatchNorm2d(3), nn.ReLU(), nn.Conv2d(3, 2, 2, bias=False))
    with torch.no_grad():
        net[1].running_mean.fill_(0.7)
        net[1].running_var.fill_(3.0)
    image = torch.ones(1, 1, 6, 6, dtype=torch.float64)
    first, second = flow(absolute_copy(net), image).values()
    assert first.sum() == pytest.approx(second.sum(), rel=1e-12)
    assert float(net[1].running_mean[0]) == pytest.approx(0.7)


def drawn(net: nn.Module, method: str, k: int, **options) -> list[int]:
    """Weights left in each layer where `k` stay in all and layers may go empty."""
    n = sum(p.numel() for p in net.parameters())
    x, y = torch.randn(32, net[0].in_features, generator=torch.Generator().manual_seed(0)), torch.arange(32) % 3
    budget = Budget(k / n, "weights", floor=0)
    return per_layer(sc.draw(net, x, method=method, budget=budget, labels=y, **options).keep)


def test_at_maximal_compression_synflow_keeps_a_path_where_the_others_lose_layers() -> None:
    for seed in range(5):
        net = chain([6, 20, 20, 20, 3], seed=seed)
        assert drawn(net, "synflow", 4) == [1, 1, 1, 1]
        assert 0 in drawn(net, "synflow", 4, n_rounds=1)
        assert 0 in drawn(net, "snip", 4)
        assert 0 in drawn(net, "magnitude", 4)
        assert 0 in drawn(net, "grasp", 4)


def test_the_score_ranks_as_rounds_of_pruning_do() -> None:
    net, budget = chain([5, 8, 8, 3]), Budget(0.1, "weights")
    names = list(dict(net.named_parameters()))
    gone = absolute_copy(net)
    for t in range(1, 11):
        scores = flow(gone, ones(5))
        alive = {name: gone.get_parameter(name).detach() > 0 for name in names}
        ranked = {name: np.where(alive[name], scores[name], -1.0) for name in names}
        keep = select(ranked, Budget(0.1 ** (t / 10), "weights"))
        with torch.no_grad():
            for name in names:
                gone.get_parameter(name).mul_(torch.from_numpy(keep[name]))
    found = Synflow(n_rounds=10).score(Evidence(net, NO_GROUPS, ones(5)), budget)
    assert all(np.isfinite(values).all() for values in found.values())
    chosen = select(found, budget)
    assert all(np.array_equal(chosen[name], keep[name]) for name in names)


def test_a_hundred_layers_do_not_overflow() -> None:
    net = chain([16] * 101, scale=50.0)  # the flow is of the order of 1e200
    scores = Synflow(n_rounds=2).score(Evidence(net.float(), NO_GROUPS, ones(16)), Budget(0.5, "weights"))
    assert all(np.isfinite(values).all() and values.max() > 1e100 for values in scores.values())


def test_it_needs_neither_data_nor_labels() -> None:
    net = chain([6, 8, 3]).float()
    one = sc.draw(net, torch.randn(4, 6), method="synflow", keep=0.3)
    other = sc.draw(net, torch.full((9, 6), 1e30), method="synflow", keep=0.3)
    assert all(np.array_equal(one.keep[name], other.keep[name]) for name in one.keep)


def test_flops_charged_are_what_a_counter_sees() -> None:
    model = models.build("convnet", preset="digits", seed=0)
    evidence = Evidence(model, NO_GROUPS, torch.zeros(3, 1, 8, 8))
    with FlopCounterMode(display=False) as counter:
        Synflow(n_rounds=7).score(evidence, Budget(0.5, "weights"))
    forward = cost.forward_flops(model, (1, 8, 8))
    assert Synflow(n_rounds=7).flops(evidence, forward) == 3 * 7 * forward
    assert 0.75 * 3 * 7 * forward < counter.get_total_flops() <= 3 * 7 * forward
