"""Swaps after elimination, against refits by least squares of every subset."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest
import torch

from splinecut.pruning.output_error import swaps
from splinecut.pruning.output_error.swaps import swapped
from splinecut.pruning.refit.elimination import removal_order
from support.readers import Rows, drawn, layer


@pytest.mark.parametrize("taps", [1, 3])
@pytest.mark.parametrize("n_groups", [1, 2])
@pytest.mark.parametrize("elements", [1, 2**24])
def test_gains_are_those_of_a_refit(taps: int, n_groups: int, elements: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(swaps, "ELEMENTS", elements)  # one kept unit at a time, or all
    one = layer(7, taps, n_free=2, n_groups=n_groups)
    kept, gone = [0, 2, 5], [1, 3, 4, 6]
    here = one.error(kept)
    gains = [[here - one.error([*(u for u in kept if u != out), back]) for back in gone] for out in kept]
    found = swaps._SubsetFit(one.reader).swap_gains(kept, gone)
    # The ridge of the elimination, 1e-4, is all that tells them apart.
    assert found.numpy() == pytest.approx(np.array(gains), rel=1e-2, abs=1e-3)


@pytest.mark.parametrize("seed", range(12))
def test_swaps_never_lose_and_no_swap_of_one_unit_is_left_that_helps(seed: int) -> None:
    one = Rows(*_correlated(seed))
    order = removal_order([one.reader]).numpy()
    after = swapped([one.reader], order, 4)
    assert sorted(after) == sorted(order)
    assert one.error(after[-4:]) <= one.error(order[-4:]) + 1e-9
    assert (swapped([one.reader], after, 4)[-4:] == after[-4:]).all()


def test_swaps_find_better_units_where_elimination_misses_the_best() -> None:
    missed, helped = 0, 0
    for seed in range(40):
        one = Rows(*_correlated(seed))
        order = removal_order([one.reader]).numpy()
        best = min(one.error(units) for units in combinations(range(10), 4))
        before, after = one.error(order[-4:]), one.error(swapped([one.reader], order, 4)[-4:])
        missed += before > best * (1 + 1e-6)
        helped += after < before * (1 - 1e-6)
    assert missed >= 10
    assert helped >= missed / 2


def test_nothing_is_swapped_where_all_or_no_units_stay() -> None:
    one = layer(5)
    order = removal_order([one.reader]).numpy()
    assert (swapped([one.reader], order, 5) == order).all()
    assert (swapped([one.reader], order, 0) == order).all()


def _correlated(seed: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Ten units that share a few causes: what a unit is worth depends on which others stay."""
    causes = drawn(1, 400, 4, seed=seed) @ drawn(1, 4, 10, seed=seed + 100)
    return (
        causes + 0.7 * drawn(1, 400, 10, seed=seed + 200),
        drawn(1, 10, 3, seed=seed + 300),
        torch.arange(10)[:, None],
    )
