"""The order in which units leave, against a greedy search that refits by least squares for every candidate."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from splinecut.pruning.refit.elimination import removal_order
from support.readers import DOUBLE, Rows, drawn, layer

QUICK = settings(derandomize=True, deadline=None, max_examples=40)


def greedy(layers: Sequence[Rows]) -> list[int]:
    alive, order = list(range(len(layers[0].blocks))), []
    while len(alive) > 1:
        costs = [sum(one.error([u for u in alive if u != unit]) for one in layers) for unit in alive]
        order.append(alive.pop(int(np.argmin(costs))))
    return order + alive


def order_of(layers: Sequence[Rows]) -> list[int]:
    return removal_order([one.reader for one in layers]).tolist()


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("taps", [1, 3])
@pytest.mark.parametrize("n_readers", [1, 2])
def test_units_leave_as_in_a_greedy_search_that_refits_every_candidate(taps: int, n_readers: int, seed: int) -> None:
    layers = [layer(8, taps, outputs=2 + 3 * i, seed=20 * i + 100 * seed) for i in range(n_readers)]
    assert order_of(layers) == greedy(layers)


def test_readers_of_different_shapes_are_weighed_by_what_they_give() -> None:
    first, second = layer(7, taps=1), layer(7, taps=3, n_free=2, seed=50)
    loud = Rows(second.x, 1000 * second.weight, second.blocks)
    assert order_of([first, second]) == order_of([first, loud]) == greedy([first, loud])
    assert order_of([first]) != order_of([first, second]) != order_of([second])  # both have a say


@pytest.mark.parametrize("seed", range(3))
def test_groups_of_a_grouped_convolution_add_up(seed: int) -> None:
    one = layer(7, taps=2, n_groups=3, seed=10 * seed)
    assert order_of([one]) == greedy([one])


@pytest.mark.parametrize("seed", range(3))
def test_columns_of_no_unit_stay_and_take_over(seed: int) -> None:
    one = layer(6, taps=2, n_free=4, seed=10 * seed)
    assert order_of([one]) == greedy([one])
    copied = one.x.clone()
    free = sorted(set(range(16)) - set(one.blocks.flatten().tolist()))
    last = order_of([one])[-1]
    copied[:, :, one.blocks[last]] = one.x[:, :, free[:2]] - one.x[:, :, free[2:]]
    assert order_of([Rows(copied, one.weight, one.blocks)])[0] == last


@pytest.mark.parametrize("n_units", [10, 100, 200])
def test_redundant_units_leave_first_and_cost_nothing(n_units: int) -> None:
    # The units at even places span few dimensions, those at odd places as many as they are.
    half, rank = n_units // 2, 2
    x = drawn(1, 3 * n_units, n_units)
    x[:, :, ::2] = drawn(1, 3 * n_units, rank, seed=1) @ drawn(1, rank, half, seed=2)
    one = Rows(x, drawn(1, n_units, 5, seed=3) + 1, torch.arange(n_units)[:, None])
    order = order_of([one])
    n_redundant = half - rank
    assert all(unit % 2 == 0 for unit in order[:n_redundant])
    assert one.error(order[n_redundant:]) < 1e-9
    assert one.error(order[n_redundant + 1 :]) > 1e-5


@pytest.mark.parametrize("n_units", [12, 64, 256])
def test_of_two_units_that_are_one_never_both_leave_while_others_are_repeated(n_units: int) -> None:
    half = n_units // 2
    x, weight = drawn(1, 3 * n_units, half), drawn(1, n_units, 5, seed=1)
    one = Rows(torch.cat([x, x], 2), weight, torch.arange(n_units)[:, None])
    order = order_of([one])
    assert sorted(unit % half for unit in order[half:]) == list(range(half))
    assert one.error(order[half:]) < 1e-9


def test_of_a_duplicated_unit_the_higher_index_leaves_first() -> None:
    one = layer(6, seed=3)
    blocks = torch.arange(6)[:, None]
    for kept, copy in ((1, 4), (0, 5), (2, 3)):
        x, weight = one.x.clone(), one.weight.clone()
        x[:, :, copy], weight[:, copy] = x[:, :, kept], weight[:, kept]
        assert order_of([Rows(x, weight, blocks)])[0] == copy


def test_units_without_any_difference_leave_from_the_last_to_the_first() -> None:
    x = torch.zeros(1, 30, 5, dtype=DOUBLE)
    dead = Rows(x, torch.ones(1, 5, 3, dtype=DOUBLE), torch.arange(5)[:, None])
    assert order_of([dead]) == [4, 3, 2, 1, 0]


def test_units_that_never_move_leave_before_those_that_do() -> None:
    one = layer(8, seed=1)
    x = one.x.clone()
    silent = [2, 5, 6]
    x[:, :, one.blocks[silent].flatten()] = 3.0
    assert sorted(order_of([Rows(x, one.weight, one.blocks)])[:3]) == silent


@QUICK
@given(st.integers(1, 12), st.integers(1, 3), st.integers(0, 3), st.integers(0, 10**4))
def test_permuted_units_leave_in_the_permuted_order(n_units: int, taps: int, n_free: int, seed: int) -> None:
    one = layer(n_units, taps, n_free, seed=seed)
    new = torch.randperm(n_units, generator=torch.Generator().manual_seed(seed))
    order, permuted = order_of([one]), order_of([Rows(one.x, one.weight, one.blocks[new])])
    assert sorted(order) == list(range(n_units))
    assert [int(new[unit]) for unit in permuted] == order


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("taps", [1, 3])
def test_units_that_are_scaled_and_read_with_inverse_weights_leave_in_the_same_order(taps: int, seed: int) -> None:
    one = layer(8, taps, seed=seed)
    scale = torch.ones(8 * taps, dtype=DOUBLE)
    scale[one.blocks] = 2 ** drawn(8, 1, seed=seed).clamp(-1, 1)
    scaled = Rows(one.x * scale, one.weight / scale[:, None], one.blocks)
    louder = Rows(100 * one.x, one.weight / 7, one.blocks)
    assert order_of([scaled]) == order_of([louder]) == order_of([one])
