"""Cuts and their distances, against hand-worked pairs, the running network, and exact region counts."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from splinecut.errors import InputError
from splinecut.geometry.counting import n_regions
from splinecut.geometry.cuts import corrected_distance, cuts, fold_batch_norm, paper_distance

generators = st.integers(0, 10_000).map(lambda seed: torch.Generator().manual_seed(seed))


def pair(first: tuple[float, float, float], second: tuple[float, float, float]) -> tuple[torch.Tensor, torch.Tensor]:
    both = torch.tensor([first, second], dtype=torch.float64)
    return both[:, :2], both[:, 2]


def between(distance, weight: torch.Tensor, bias: torch.Tensor, rho: float = 0.05) -> float:
    return float(distance(cuts(weight[:1], bias[:1]), cuts(weight[1:], bias[1:]), rho))


@pytest.mark.parametrize("second", [(-1, 0, 1), (2, 0, 1)])
def test_paper_distance_is_zero_for_cuts_whose_removal_changes_the_partition(second) -> None:
    weight, bias = pair((1, 0, 1), second)
    assert between(paper_distance, weight, bias) == 0.0
    assert (n_regions(weight, bias), n_regions(weight[:1], bias[:1])) == (3, 2)
    assert between(corrected_distance, weight, bias) > 0.02


@pytest.mark.parametrize(("second", "printed"), [((2, 0, 2), 0.05), ((-1, 0, -1), 0.1)])
def test_paper_distance_is_positive_for_one_and_the_same_cut(second, printed: float) -> None:
    weight, bias = pair((1, 0, 1), second)
    assert math.isclose(between(paper_distance, weight, bias), printed, abs_tol=1e-15)
    assert n_regions(weight, bias) == n_regions(weight[:1], bias[:1]) == 2
    assert between(corrected_distance, weight, bias) == 0.0


def test_hand_worked_distances() -> None:
    weight, bias = pair((3, 4, 10), (0, 2, 2))  # normals (.6, .8) and (0, 1), offsets 2 and 1
    assert math.isclose(between(corrected_distance, weight, bias, rho=0.5), 0.2 + 0.5 * 1)
    assert math.isclose(between(paper_distance, weight, bias, rho=0.5), 0.2 + 0.5 * 8)


@settings(derandomize=True, deadline=None, max_examples=40)
@given(generators, st.floats(0.01, 100), st.sampled_from([1, -1]))
def test_corrected_distance_ignores_scale_and_sign(generator, scale: float, sign: int) -> None:
    weight, bias = torch.randn(6, 3, generator=generator).double(), torch.randn(6, generator=generator).double()
    moved = cuts(sign * scale * weight, sign * scale * bias)
    before = corrected_distance(cuts(weight, bias), cuts(weight, bias))
    assert torch.allclose(corrected_distance(moved, cuts(weight, bias)), before, rtol=0, atol=1e-12)
    assert torch.allclose(before, before.T, rtol=0, atol=0)
    assert before.diagonal().max() <= 1e-15


@settings(derandomize=True, deadline=None, max_examples=30)
@given(st.lists(st.tuples(*[st.integers(-2, 2)] * 3), min_size=2, max_size=5))
def test_corrected_zero_means_removal_leaves_the_region_count(units) -> None:
    layer = torch.tensor(units, dtype=torch.float64)
    own = cuts(layer[:, :2], layer[:, 2])
    distance = corrected_distance(own, own)
    for unit in range(1, len(layer)):
        repeats = bool((distance[unit, :unit] < 1e-12).any())
        left = torch.cat([layer[:unit], layer[unit + 1 :]])
        is_same = n_regions(layer[:, :2], layer[:, 2]) == n_regions(left[:, :2], left[:, 2])
        later = bool((distance[unit, unit + 1 :] < 1e-12).any())
        assert is_same == (repeats or later or bool(own.is_dead[unit]))


def test_dead_units_are_infinitely_far_from_everything() -> None:
    own = cuts(torch.tensor([[0.0, 0.0], [1.0, 0.0], [1e-320, 0.0]]), torch.tensor([1.0, 1.0, 1.0]))
    assert own.is_dead.tolist() == [True, False, True]
    for distance in (corrected_distance, paper_distance):
        assert torch.isinf(distance(own, own)).tolist() == [[True] * 3, [True, False, True], [True] * 3]


@pytest.mark.parametrize("has_bias", [True, False])
@pytest.mark.parametrize("affine", [True, False])
def test_folding_batch_norm_equals_running_it(has_bias: bool, affine: bool) -> None:
    torch.manual_seed(0)
    conv, norm = nn.Conv2d(3, 5, 3, bias=has_bias).double(), nn.BatchNorm2d(5, affine=affine).double().eval()
    with torch.no_grad():
        norm.running_mean.normal_()
        norm.running_var.uniform_(0.5, 2)
        if affine:
            norm.weight.normal_()  # some gains are negative
            norm.bias.normal_()
    weight, bias = fold_batch_norm(
        conv.weight, conv.bias, norm.weight, norm.bias, norm.running_mean, norm.running_var, norm.eps
    )
    x = torch.randn(4, 3, 6, 6, dtype=torch.float64)
    assert torch.allclose(nn.functional.conv2d(x, weight, bias), norm(conv(x)), rtol=0, atol=1e-12)


def test_a_gain_of_zero_makes_a_unit_dead_and_a_negative_gain_leaves_its_cut() -> None:
    weight, one = torch.randn(2, 4, generator=torch.Generator().manual_seed(1)), torch.ones(2)
    plain = cuts(*fold_batch_norm(weight, None, one, one * 0, one, one))
    gained = cuts(*fold_batch_norm(weight, None, torch.tensor([0.0, -3.0]), one * 0, one, one))
    assert gained.is_dead.tolist() == [True, False]
    assert float(corrected_distance(plain, gained)[1, 1]) < 1e-12


def test_filters_are_flattened_and_cuts_promoted() -> None:
    own = cuts(torch.randn(4, 3, 2, 2))
    assert own.normal.shape == (4, 12)
    assert own.normal.dtype == torch.float64
    assert torch.allclose(own.normal.norm(dim=1), torch.ones(4, dtype=torch.float64))
    assert len(own[1:3]) == 2


def test_cuts_of_different_spaces_and_negative_rho_are_refused() -> None:
    with pytest.raises(InputError, match="same space, got 2 and 3 inputs"):
        corrected_distance(cuts(torch.ones(1, 2)), cuts(torch.ones(1, 3)))
    with pytest.raises(InputError, match="rho must be at least 0"):
        corrected_distance(cuts(torch.ones(1, 2)), cuts(torch.ones(1, 2)), -1.0)
    with pytest.raises(InputError, match="bias must have shape"):
        cuts(torch.ones(2, 2), torch.ones(3))
