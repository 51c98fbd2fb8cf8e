"""Networks not in general position: counts, codes and areas equal an exact subdivision in rational arithmetic."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

import splinecut as sc
from splinecut.geometry.certify import certify
from splinecut.geometry.partition import subdivide
from splinecut.networks.trace import trace
from support.exact_geometry import ABS, CLAMP, LEAKY, RELU, exact_area, exact_subdivision, largest_of, linear

Layers = list[tuple[list[list[int]], list[int]]]
FOLDS = {
    "relu": (RELU, nn.ReLU),
    "leaky": (LEAKY, lambda: nn.LeakyReLU(0.25)),
    "abs": (ABS, lambda: Abs()),
    "clamp": (CLAMP, lambda: nn.Hardtanh(0, 2)),
}


class Abs(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.abs()


def affine(weight: Sequence[Sequence[int]], bias: Sequence[int]) -> nn.Linear:
    layer = nn.Linear(len(weight[0]), len(weight)).double()
    layer.weight.data = torch.tensor(weight, dtype=torch.float64)
    layer.bias.data = torch.tensor(bias, dtype=torch.float64)
    return layer


@st.composite
def integer_networks(draw, weights=(-1, 0, 1), biases=(-1, 0, 1), most=(3, 8)) -> Layers:
    """Up to 3 hidden layers of up to 8 units with small-integer weights."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    widths = [2, *(int(rng.integers(2, most[1] + 1)) for _ in range(int(rng.integers(1, most[0] + 1)))), 2]
    return [
        (rng.choice(weights, size=(b, a)).tolist(), rng.choice(biases, size=b).tolist())
        for a, b in itertools.pairwise(widths)
    ]


def assert_exact(layers: Layers, fold: str = "relu", half_width: int = 1) -> None:
    exact_fold, module = FOLDS[fold]
    exact_layers, modules = [], []
    for weight, bias in layers:
        exact_layers += [linear(weight, bias), exact_fold]
        modules += [affine(weight, bias), module()]
    truth = exact_subdivision(exact_layers[:-1], half_width)
    model = nn.Sequential(*modules[:-1]).eval()
    graph = trace(model, torch.zeros(1, 2))
    partition = subdivide(graph, sc.Slice.square(half_width))
    assert len(partition) == len(truth)
    areas: dict[tuple[bool, ...], float] = {}
    for polygon, _, code in truth:
        areas[code] = areas.get(code, 0.0) + float(exact_area(polygon))
    found: dict[tuple[bool, ...], float] = {}
    for code, area in zip(partition.codes.bits().tolist(), partition.areas.tolist(), strict=True):
        found[tuple(code)] = found.get(tuple(code), 0.0) + area
    assert found == pytest.approx(areas, abs=1e-10)
    findings = certify(partition, graph)
    assert findings.ok, str(findings)


some = settings(derandomize=True, deadline=None, max_examples=15)


@some
@given(integer_networks())
def test_networks_with_weights_minus_one_zero_one_are_subdivided_exactly(layers):
    assert_exact(layers)


@some
@given(integer_networks(weights=(-3, -2, -1, 1, 2, 3), biases=(-3, -2, -1, 0, 1, 2, 3)))
def test_networks_with_small_integer_weights_are_subdivided_exactly(layers):
    assert_exact(layers)


@some
@given(integer_networks(weights=(-2, -1, 0, 1, 2), biases=(0,)))
def test_networks_without_biases_are_subdivided_exactly(layers):
    assert_exact(layers)


@settings(derandomize=True, deadline=None, max_examples=6)
@given(integer_networks(weights=(-2, -1, 0, 0, 0, 0, 1, 2)))
def test_networks_with_half_of_their_weights_pruned_are_subdivided_exactly(layers):
    assert_exact(layers, half_width=2)


@pytest.mark.parametrize("fold", ["leaky", "abs", "clamp"])
@settings(derandomize=True, deadline=None, max_examples=6)
@given(layers=integer_networks(most=(2, 6)))
def test_other_folds_are_subdivided_exactly(fold, layers):
    assert_exact(layers, fold)


@pytest.mark.parametrize(
    "layers",
    [
        pytest.param([([[1, 0], [1, 0], [2, 0]], [0, 0, 0]), ([[1, 1, -1]], [0])], id="duplicate units"),
        pytest.param([([[1, 1], [-1, -1]], [0, 0]), ([[1, -1], [1, 1]], [0, -1])], id="opposite units"),
        pytest.param([([[0, 0], [0, 0], [1, 2]], [1, -1, 0]), ([[1, 1, 1]], [0])], id="dead and constant units"),
        pytest.param([([[1, 0], [1, 0], [2, 0]], [0, -1, 1]), ([[1, 1, 1]], [-1])], id="parallel cuts, one on a side"),
        pytest.param([([[1, 1], [1, -1], [1, 0], [0, 1]], [0, 0, 0, 0]), ([[1] * 4], [-1])], id="through the corners"),
        pytest.param([([[1, 0], [0, 1], [1, 1]], [0, 0, 0]), ([[1, 1, 0], [1, -1, 0]], [0, 0])], id="through vertices"),
        pytest.param([([[0, 0]], [0]), ([[1]], [0])], id="identically zero"),
        pytest.param([([[1, 1]], [-2]), ([[1]], [0])], id="touches one corner"),
    ],
)
def test_each_degenerate_case_is_subdivided_exactly(layers):
    assert_exact([*layers, ([[1] * len(layers[-1][0])], [0])])


@settings(derandomize=True, deadline=None, max_examples=15)
@given(st.integers(0, 10_000), st.sampled_from([2, 3, 4]))
def test_maxima_of_small_integer_networks_are_subdivided_exactly(seed, size):
    rng = np.random.default_rng(seed)
    first = rng.choice([-2, -1, 0, 1, 2], size=(3 * size, 2)).tolist(), rng.choice([-1, 0, 1], size=3 * size).tolist()
    second = rng.choice([-1, 0, 1], size=(2 * size, 3)).tolist(), rng.choice([-1, 0, 1], size=2 * size).tolist()
    truth = exact_subdivision([linear(*first), largest_of(size), linear(*second), RELU, largest_of(size)])
    pool = [nn.Unflatten(1, (1, -1)), nn.MaxPool1d(size), nn.Flatten()]
    model = nn.Sequential(affine(*first), *pool, affine(*second), nn.ReLU(), *pool).eval()
    graph = trace(model, torch.zeros(1, 2))
    partition = subdivide(graph, sc.Slice.square())
    assert sorted(partition.areas) == pytest.approx(sorted(float(exact_area(polygon)) for polygon, _, _ in truth))
    findings = certify(partition, graph)
    assert findings.ok, str(findings)
