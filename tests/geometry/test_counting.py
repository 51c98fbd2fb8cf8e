"""Region counts of one layer, against closed formulas, linear programming and the paper's own claims."""

from __future__ import annotations

import itertools
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import linprog

from splinecut.errors import InputError
from splinecut.geometry.counting import (
    hyperplanes,
    max_regions,
    max_regions_after_pruning,
    n_regions,
    pruning_bound,
    regions_lost_in_general_position,
)

small = st.integers(-2, 2)


def layers(dim: int, max_units: int = 5) -> st.SearchStrategy[tuple[list[list[int]], list[int]]]:
    """Layers with tiny whole weights, so that parallel, coincident, dead and concurrent units are common."""
    unit = st.tuples(st.lists(small, min_size=dim, max_size=dim), small)
    return st.lists(unit, min_size=1, max_size=max_units).map(
        lambda units: ([w for w, _ in units], [c for _, c in units])
    )


def regions_by_linear_programming(weight: list[list[int]], bias: list[int]) -> int:
    """Counts the sign patterns with an interior point: maximise the margin t of s_k (<w_k, x> + c_k) >= t."""
    live = [k for k, row in enumerate(weight) if any(row)]
    found = 0
    for signs in itertools.product([1, -1], repeat=len(live)):
        rows = [[-s * w for w in weight[k]] + [1] for s, k in zip(signs, live, strict=True)]
        limits = [s * bias[k] for s, k in zip(signs, live, strict=True)]
        dim = len(weight[0])
        best = linprog([0] * dim + [-1], A_ub=rows or None, b_ub=limits or None, bounds=[(None, None)] * dim + [(0, 1)])
        found += bool(best.status == 0 and -best.fun > 1e-7)
    return found


@pytest.mark.parametrize("dim", [1, 2, 3])
def test_random_layers_reach_the_bound_of_zaslavsky(dim: int) -> None:
    rng = np.random.default_rng(dim)
    for n_units in (1, 2, 5, 8):
        assert n_regions(rng.normal(size=(n_units, dim)), rng.normal(size=n_units)) == max_regions(n_units, dim)


def test_the_bound_is_two_to_the_units_only_while_units_fit_the_dimension() -> None:
    assert [max_regions(k, 3) for k in range(5)] == [1, 2, 4, 8, 15]
    assert [max_regions(8, dim) for dim in (1, 2, 3)] == [9, 37, 93]


@pytest.mark.parametrize("dim", [1, 2, 3])
def test_counts_equal_the_feasible_sign_patterns(dim: int) -> None:
    @settings(derandomize=True, deadline=None, max_examples=25)
    @given(layers(dim))
    def check(layer: tuple[list[list[int]], list[int]]) -> None:
        assert n_regions(*layer) == regions_by_linear_programming(*layer)

    check()


@settings(derandomize=True, deadline=None, max_examples=50)
@given(layers(2, max_units=7))
def test_planar_counts_equal_one_plus_lines_plus_crossings_with_multiplicity(layer: tuple[list, list]) -> None:
    lines = sorted(hyperplanes(*layer))
    through: dict[tuple[Fraction, Fraction], set[int]] = {}
    for (i, (a, b, c)), (j, (d, e, f)) in itertools.combinations(enumerate(lines), 2):
        if det := a * e - b * d:
            through.setdefault((Fraction(b * f - c * e, det), Fraction(c * d - a * f, det)), set()).update((i, j))
    assert n_regions(*layer) == 1 + len(lines) + sum(len(met) - 1 for met in through.values())


@settings(derandomize=True, deadline=None, max_examples=30)
@given(layers(3), st.randoms(use_true_random=False))
def test_order_scale_sign_and_copies_of_units_do_not_matter(layer: tuple[list, list], random) -> None:
    units = list(zip(*layer, strict=True))
    changed = [([-3 * w for w in row], -3 * c) for row, c in units] + units
    random.shuffle(changed)
    assert n_regions([w for w, _ in changed], [c for _, c in changed]) == n_regions(*layer)


def test_floats_are_taken_at_their_exact_value() -> None:
    assert n_regions([[1.0, 0.0], [2.0, 0.0]], [0.1, 0.2]) == 2  # 0.2 is twice 0.1 in binary too
    assert n_regions([[1.0, 0.0], [3.0, 0.0]], [0.1, 0.3]) == 3  # 0.3 is not three times 0.1


def test_dead_units_and_empty_layers_cut_nothing() -> None:
    assert n_regions([[0, 0], [0, 0]], [1, 0]) == 1
    assert n_regions([], []) == 1


# The theorem: first the counterexamples to it as printed, then what holds.


def test_paper_maximum_is_wrong_for_a_layer_left_whole() -> None:
    keep = [True] * 8
    as_printed = 2 ** (8 - sum(keep))
    assert as_printed == 1
    assert max_regions_after_pruning(keep, 2) == 37 == n_regions(*_general(8, 2))


def test_paper_inequality_fails_for_a_duplicate_unit() -> None:
    weight, bias = [[1, 0], [1, 0], [0, 1]], [0, 0, 0]
    assert (n_regions(weight, bias), n_regions(weight[1:], bias[1:])) == (4, 4)  # printed: at most 4 - 1
    assert pruning_bound(weight, bias, [False, True, True]) == 4


def test_paper_inequality_fails_for_weight_pruning() -> None:
    parallel, one_weight_zeroed = [[1, 1], [1, 1]], [[1, 1], [0, 1]]
    assert n_regions(parallel, [0, -1]) == 3
    assert n_regions(one_weight_zeroed, [0, -1]) == 4  # printed: at most 3


def test_paper_inequality_fails_for_bias_pruning() -> None:
    weight, concurrent = [[1, 0], [0, 1], [1, 1]], [-1, -1, -2]
    assert n_regions(weight, concurrent) == 6
    assert n_regions(weight, [0, -1, -2]) == 7  # printed: at most 6


def test_paper_indicator_counts_a_unit_whose_weights_were_already_zero() -> None:
    weight, bias = [[0, 0], [1, 0]], [1, 0]
    assert n_regions(weight, bias) == n_regions(weight[1:], bias[1:]) == 2  # printed: at most 2 - 1


@pytest.mark.parametrize("dim", [1, 2, 3])
def test_removing_units_obeys_the_corrected_bound(dim: int) -> None:
    @settings(derandomize=True, deadline=None, max_examples=40)
    @given(layers(dim), st.data())
    def check(layer: tuple[list[list[int]], list[int]], data) -> None:
        weight, bias = layer
        keep = data.draw(st.lists(st.booleans(), min_size=len(weight), max_size=len(weight)))
        left = n_regions(
            [w for w, k in zip(weight, keep, strict=True) if k], [c for c, k in zip(bias, keep, strict=True) if k]
        )
        assert left <= pruning_bound(weight, bias, keep)
        assert left <= max_regions_after_pruning(keep, dim)

    check()


@pytest.mark.parametrize("dim", [1, 2, 3])
def test_the_corrected_bound_is_tight_for_parallel_cuts(dim: int) -> None:
    weight, bias = [[1] * dim] * 6, list(range(6))
    assert n_regions(weight[:4], bias[:4]) == pruning_bound(weight, bias, [True] * 4 + [False] * 2) == 5


@pytest.mark.parametrize("dim", [1, 2, 3])
def test_regions_lost_in_general_position_follow_the_closed_form(dim: int) -> None:
    weight, bias = _general(8, dim)
    for removed in (1, 2, 5):
        lost = n_regions(weight, bias) - n_regions(weight[removed:], bias[removed:])
        assert lost == regions_lost_in_general_position(8, removed, dim)
    assert regions_lost_in_general_position(8, 1, dim) == max_regions(7, dim - 1)


def test_pruning_a_unit_of_a_deep_network_can_add_regions() -> None:
    """Two layers on the line: the hidden unit relu(1) = 1 lifts the second layer off its own kinks."""

    def pieces(first: list[tuple[float, float]], second: list[tuple[list[float], float]]) -> int:
        x = np.linspace(-4, 4, 8001) + 1e-4
        hidden = np.stack([np.maximum(w * x + c, 0) for w, c in first], axis=1)
        on = [hidden[:, k] > 0 for k in range(len(first))] + [hidden @ np.array(row) + c > 0 for row, c in second]
        return 1 + int(np.any(np.diff(np.stack(on).astype(int), axis=1), axis=0).sum())

    relu_x, relu_minus_x, always_on = (1.0, 0.0), (-1.0, 0.0), (0.0, 1.0)
    reader = [([1.0, 1.0, 2.0], -1.0)]  # |x| + 2 - 1 > 0 everywhere; without the constant unit |x| = 1 twice
    assert pieces([relu_x, relu_minus_x, always_on], reader) == 2
    assert pieces([relu_x, relu_minus_x], [([1.0, 1.0], -1.0)]) == 4


def test_wrong_shapes_are_refused_with_the_remedy() -> None:
    with pytest.raises(InputError, match="bias must have one entry per unit"):
        n_regions([[1, 0]], [1, 2])
    with pytest.raises(InputError, match="rows of different lengths"):
        n_regions([[1, 0], [1]], [1, 2])
    with pytest.raises(InputError, match="keep must have one entry per unit"):
        pruning_bound([[1, 0]], [1], [True, False])


def _general(n_units: int, dim: int) -> tuple[list[list[float]], list[float]]:
    rng = np.random.default_rng(10 * n_units + dim)
    return rng.normal(size=(n_units, dim)).tolist(), rng.normal(size=n_units).tolist()
