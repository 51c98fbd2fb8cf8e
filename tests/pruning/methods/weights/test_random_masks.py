"""Random masks: how many weights stay in each layer, and a ticket's random twin."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import splinecut as sc
from splinecut.networks import models
from splinecut.pruning.methods.weights.random_masks import counts, erk, uniform
from splinecut.pruning.ticket import random_twin

SHAPES = {"conv1": (24, 1, 3, 3), "conv2": (32, 24, 3, 3), "conv3": (32, 32, 3, 3), "head": (10, 512)}
TOTAL = 216 + 6912 + 9216 + 5120


def test_erk_densities_are_those_worked_by_hand() -> None:
    # Two layers, (2, 8): 10/16 and (4, 4): 8/16 times e; 9 weights in all: e = 9 / (10 + 8) = 1/2.
    assert erk({"a": (2, 8), "b": (4, 4)}, 9) == pytest.approx({"a": 5.0, "b": 4.0})
    # With kernels: (4, 1, 3, 3): 11 of 36 and (2, 4, 3, 3): 12 of 72; 46 weights: e = 2, shares 22/36 and 24/72.
    assert erk({"a": (4, 1, 3, 3), "b": (2, 4, 3, 3)}, 46) == pytest.approx({"a": 22.0, "b": 24.0})


def test_a_layer_that_erk_would_overfill_stays_whole_and_the_rest_is_shared_anew() -> None:
    # 30 of 4 + 100: e = 30 / (4 + 20) = 1.25 would give the first 5 of its 4; then e = 26 / 20.
    assert erk({"a": (2, 2), "b": (10, 10)}, 30) == pytest.approx({"a": 4.0, "b": 26.0})
    assert erk({"a": (2, 2), "b": (10, 10)}, 104) == pytest.approx({"a": 4.0, "b": 100.0})


@settings(derandomize=True, deadline=None, max_examples=40)
@given(
    shapes=st.lists(st.lists(st.integers(1, 12), min_size=2, max_size=4).map(tuple), min_size=1, max_size=6),
    share=st.floats(0.02, 1.0),
    which=st.sampled_from([uniform, erk]),
)
def test_counts_add_up_exactly_and_keep_each_layer_between_floor_and_size(shapes, share, which) -> None:
    named = {str(i): shape for i, shape in enumerate(shapes)}
    sizes = {name: int(np.prod(shape)) for name, shape in named.items()}
    k = max(len(sizes), round(share * sum(sizes.values())))
    wanted = which(named, k)
    assert sum(wanted.values()) == pytest.approx(k)
    found = counts(wanted, named, k)
    assert sum(found.values()) == k
    assert all(1 <= n <= sizes[name] for name, n in found.items())
    if which is erk:
        assert all(wanted[name] <= size + 1e-9 for name, size in sizes.items())
    if min(wanted.values()) >= 1:  # no floor in the way: each count is its wish rounded up or down
        assert all(abs(n - wanted[name]) < 1 for name, n in found.items())


def test_too_few_weights_for_the_floor_are_refused() -> None:
    with pytest.raises(sc.InputError, match="floor of 2 in 4 layers"):
        counts(uniform(SHAPES, 7), SHAPES, 7, floor=2)


@pytest.mark.parametrize(("method", "wish"), [("uniform", uniform), ("erk", erk)])
def test_random_masks_keep_exactly_their_layers_counts(method: str, wish) -> None:
    model = models.build(
        "convnet", preset="digits", filters=[24, 32, 32], kernels=[3] * 3, strides=[1, 1, 2], paddings=[1] * 3
    )
    k = round(0.03 * TOTAL)
    ticket = sc.draw(model, torch.randn(2, 1, 8, 8), method=method, keep=0.03)
    shapes = {name: kept.shape for name, kept in ticket.keep.items()}
    assert sorted(map(np.prod, shapes.values())) == sorted([216, 6912, 9216, 5120])
    assert {name: int(kept.sum()) for name, kept in ticket.keep.items()} == counts(wish(shapes, k), shapes, k)
    assert ticket.achieved.kept == k
    other = sc.draw(model, torch.randn(2, 1, 8, 8), method=method, keep=0.03, seed=1)
    assert ticket.distance(other) > 0


def test_a_twin_keeps_the_counts_and_little_else() -> None:
    model = models.build("convnet", preset="digits")
    example = torch.randn(2, 1, 8, 8)
    for drawn in (sc.draw(model, example, method="magnitude", keep=0.3), sc.draw(model, example, "l2", keep=0.5)):
        other = random_twin(drawn, seed=3)
        assert {n: int(k.sum()) for n, k in other.keep.items()} == {n: int(k.sum()) for n, k in drawn.keep.items()}
        assert {n: k.shape for n, k in other.keep.items()} == {n: k.shape for n, k in drawn.keep.items()}
        assert other.kind == drawn.kind
        assert drawn.distance(other) > 0
        assert random_twin(drawn, seed=3) == other != random_twin(drawn, seed=4)
