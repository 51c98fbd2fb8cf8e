"""Pieces along a segment, against the closed form of one layer, codes inside pieces, and the running network."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from splinecut.errors import InputError
from splinecut.geometry.codes import codes
from splinecut.geometry.estimates import estimate_pieces
from splinecut.geometry.line import PieceLimit, Pieces, pieces_along
from splinecut.networks.trace import trace
from support import piecewise_networks

MAX_FREE = [name for name in piecewise_networks.BUILD if name != "pooled"]


def along(net: nn.Module, name: str, seed: int = 0, **options) -> tuple[Pieces, torch.Tensor, torch.Tensor]:
    a, b = 2 * piecewise_networks.inputs(name, 2, seed)
    return pieces_along(trace(net, a[None]), a, b, **options), a, b


def points(t: np.ndarray, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    weight = torch.from_numpy(np.asarray(t)).view(-1, *[1] * a.dim())
    return a + weight * (b - a)


@pytest.mark.parametrize("name", list(piecewise_networks.BUILD))
def test_network_is_affine_between_breakpoints(name: str) -> None:
    net = piecewise_networks.build(name)
    pieces, a, b = along(net, name)
    assert len(pieces) >= 5
    rng = np.random.default_rng(0)
    inside = rng.random((len(pieces), 3)) * np.diff(pieces.breakpoints)[:, None] + pieces.breakpoints[:-1, None]
    t = np.concatenate([inside.ravel(), pieces.breakpoints])
    assert np.allclose(pieces.at(t), net(points(t, a, b)).detach().numpy(), rtol=0, atol=1e-11)


@pytest.mark.parametrize("name", MAX_FREE)
def test_code_is_constant_inside_a_piece_and_changes_at_its_end_by_the_labelled_unit(name: str) -> None:
    net = piecewise_networks.build(name)
    pieces, a, b = along(net, name)
    graph = trace(net, a[None])
    share = np.array([0.01, 0.5, 0.99])
    t = pieces.breakpoints[:-1, None] + np.diff(pieces.breakpoints)[:, None] * share
    bits = codes(graph, points(t.ravel(), a, b)).bits().reshape(len(pieces), 3, -1)
    assert (bits == bits[:, :1]).all()
    starts = np.cumsum([0] + [layer.bits for layer in graph.layers])
    for i in range(len(pieces) - 1):
        changed = np.flatnonzero(bits[i, 0] != bits[i + 1, 0])
        assert starts[pieces.layer[i]] + pieces.unit[i] in changed


def test_one_hidden_layer_breaks_exactly_where_its_units_vanish() -> None:
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(4, 50), nn.ReLU(), nn.Linear(50, 1)).double().eval()
    a, b = torch.randn(2, 4, dtype=torch.float64)
    u, v = net[0](a), net[0](b)
    expected = np.sort((u / (u - v))[(u > 0) != (v > 0)].detach().numpy())
    pieces = pieces_along(trace(net, a[None]), a, b)
    assert np.allclose(pieces.breakpoints[1:-1], expected, rtol=0, atol=1e-14)
    assert pieces.per_layer() == {"1": len(expected)}


@pytest.mark.parametrize("size", [(3, 2), (5, 3)])
def test_max_pooling_breaks_exactly_where_the_winner_changes(size: tuple[int, int]) -> None:
    kernel, stride = size
    net = nn.Sequential(nn.MaxPool1d(kernel, stride, padding=1)).eval()
    a, b = torch.randn(2, 2, 20, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    pieces = pieces_along(trace(net, a[None]), a, b)
    t = np.linspace(0, 1, 20_001)
    _, winners = nn.functional.max_pool1d(points(t, a, b), kernel, stride, padding=1, return_indices=True)
    changes = np.flatnonzero((winners[1:] != winners[:-1]).flatten(1).any(dim=1).numpy())
    assert len(pieces) - 1 == len(changes)
    assert np.allclose(pieces.breakpoints[1:-1], (t[changes] + t[changes + 1]) / 2, rtol=0, atol=3e-5)


@pytest.mark.parametrize("name", ["relu", "pooled", "residual"])
def test_small_chunks_give_the_same_pieces(name: str) -> None:
    net = piecewise_networks.build(name)
    whole, *_ = along(net, name)
    parts, *_ = along(net, name, chunk_bytes=1)
    assert len(whole) == len(parts)
    assert np.allclose(whole.breakpoints, parts.breakpoints, rtol=0, atol=1e-13)
    assert np.array_equal(whole.unit, parts.unit)
    assert np.allclose(whole.values, parts.values, rtol=0, atol=1e-12)


def test_a_stretch_holds_the_breakpoints_of_the_whole_that_lie_in_it() -> None:
    net = piecewise_networks.build("residual")
    whole, *_ = along(net, "residual")
    stretch, *_ = along(net, "residual", start=0.25, stop=0.5)
    inner = whole.breakpoints[(whole.breakpoints > 0.25) & (whole.breakpoints < 0.5)]
    assert np.allclose(stretch.breakpoints[1:-1], inner, rtol=0, atol=1e-12)
    assert stretch.breakpoints[[0, -1]].tolist() == [0.25, 0.5]


def test_through_the_origin_a_network_without_biases_has_two_pieces() -> None:
    net = piecewise_networks.build("no-bias")
    a = piecewise_networks.inputs("no-bias", 1)[0]
    pieces = pieces_along(trace(net, a[None]), -a, a)
    assert pieces.breakpoints.tolist() == pytest.approx([0, 0.5, 1], abs=1e-12)


@settings(derandomize=True, deadline=None, max_examples=15)
@given(st.integers(0, 1000), st.floats(0.01, 100))
def test_copies_scale_and_order_of_units_do_not_matter(seed: int, scale: float) -> None:
    torch.manual_seed(seed)
    first, second = nn.Linear(3, 8).double(), nn.Linear(8, 2).double()
    order = torch.randperm(16)
    twice, reader = nn.Linear(3, 16).double(), nn.Linear(16, 2).double()
    with torch.no_grad():
        twice.weight.copy_(torch.cat([first.weight, scale * first.weight])[order])
        twice.bias.copy_(torch.cat([first.bias, scale * first.bias])[order])
        reader.weight.copy_(torch.cat([second.weight / 2, second.weight / (2 * scale)], dim=1)[:, order])
        reader.bias.copy_(second.bias)
    a, b = torch.randn(2, 3, dtype=torch.float64)
    plain = nn.Sequential(first, nn.ReLU(), second).eval()
    doubled = nn.Sequential(twice, nn.ReLU(), reader).eval()
    expected, got = (pieces_along(trace(net, a[None]), a, b) for net in (plain, doubled))
    assert np.allclose(expected.breakpoints, got.breakpoints, rtol=0, atol=1e-11)
    assert np.allclose(expected.values, got.values, rtol=0, atol=1e-11)


def test_estimates_scatter_around_the_true_count_as_their_standard_error_says() -> None:
    net = piecewise_networks.build("concat")
    whole, a, b = along(net, "concat")
    graph = trace(net, a[None])
    estimates = [estimate_pieces(graph, a, b, n_windows=4, width=0.05, seed=seed) for seed in range(40)]
    mean = np.mean([estimate.pieces for estimate in estimates])
    typical = np.mean([estimate.standard_error for estimate in estimates])
    assert abs(mean - len(whole)) < 4 * typical / np.sqrt(40)
    assert estimates[0].share == pytest.approx(0.2)
    assert "pieces" in str(estimates[0])
    with pytest.raises(InputError, match="n_windows must be at least 2"):
        estimate_pieces(graph, a, b, n_windows=1)


def test_what_cannot_be_a_segment_is_refused() -> None:
    net = piecewise_networks.build("relu")
    graph = trace(net, torch.zeros(1, 3))
    a, b = torch.zeros(3), torch.ones(3)
    with pytest.raises(InputError, match="a and b are the same input"):
        pieces_along(graph, a, a)
    with pytest.raises(InputError, match=r"b must be one input of shape \(3,\), got \(1, 3\)"):
        pieces_along(graph, a, b[None])
    with pytest.raises(InputError, match="start must be below stop"):
        pieces_along(graph, a, b, start=0.5, stop=0.5)
    with pytest.raises(PieceLimit, match="more than 2 pieces up to t"):
        pieces_along(graph, 20 * b - 10, -20 * b, max_pieces=2)
