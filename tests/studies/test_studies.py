"""The paper's side experiments: their parts against slow, obvious versions."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from studies import kmeans, sawtooth


def inertia(points: np.ndarray, centroids: np.ndarray) -> float:
    return float(((points[:, None] - centroids) ** 2).sum(2).min(1).sum())


def test_pruning_centroids_takes_the_cheapest_each_time() -> None:
    random = np.random.default_rng(0)
    points, centroids = random.normal(size=(300, 2)), random.normal(size=(12, 2))
    expected = centroids
    while len(expected) > 5:
        without = [np.delete(expected, one, axis=0) for one in range(len(expected))]
        expected = min(without, key=lambda rest: inertia(points, rest))
    assert np.array_equal(kmeans.pruned(points, centroids, 5), expected)


def test_starting_with_more_centroids_ends_nearer_to_the_clusters() -> None:
    random = np.random.default_rng(1)
    centres = np.stack(np.meshgrid(np.arange(4.0), np.arange(4.0)), axis=-1).reshape(-1, 2)
    points = np.repeat(centres, 20, axis=0) + 0.05 * random.normal(size=(320, 2))
    by_seed = [kmeans.inertias(points, seed, starts=(16, 32), clusters=16) for seed in range(6)]
    assert np.mean([seed["32"] for seed in by_seed]) < np.mean([seed["16"] for seed in by_seed])
    assert min(seed["32"] for seed in by_seed) >= 0.99 * inertia(points, points.reshape(16, 20, 2).mean(1))


def test_four_units_set_by_hand_fit_the_sawtooth_and_the_printed_ones_do_not() -> None:
    x, y = sawtooth.task()
    assert (sawtooth.by_hand()(x) - y).abs().max() < 1e-6
    assert sawtooth.errors(sawtooth.by_hand((1, -2, 1, -2)), x, y)[0] > 0.5


def test_networks_of_a_batch_learn_as_if_each_were_alone() -> None:
    x, y = sawtooth.task()
    nets = sawtooth.fresh(6, 3)
    together = sawtooth.trained(nets, x, y, steps=20)
    alone = sawtooth.trained(sawtooth.Layers(*(values[1:2] for values in nets.parameters)), x, y, steps=20)
    for one, many in zip(alone.parameters, together.parameters, strict=True):
        assert torch.allclose(one[0], many[1], rtol=1e-10)


def test_a_network_of_the_batch_is_the_module_it_gives() -> None:
    x, _ = sawtooth.task()
    nets = sawtooth.fresh(5, 2)
    assert torch.allclose(nets.module(1)(x[:, None])[:, 0], nets(x)[1])


def test_pruning_spare_units_keeps_one_of_each_cut() -> None:
    x, y = sawtooth.task()
    hand = sawtooth.by_hand()
    split = sawtooth.Layers(  # every unit twice, with half of its outgoing weight each
        *(values.repeat(1, 2) for values in (hand.slope, hand.shift)), hand.out.repeat(1, 2) / 2, hand.constant
    )
    assert sawtooth.errors(split, x, y)[0] < 1e-9
    kept = sawtooth.pruned(split, x, 4)
    assert torch.allclose((-kept.shift / kept.slope).sort().values, (-hand.shift / hand.slope).sort().values)
    assert sawtooth.errors(kept, x, y)[0] < 0.05  # the refit is damped a little; training closes the rest


def test_the_share_solved_has_wilsons_interval() -> None:
    found = sawtooth.share([0.0, 1.0, 1.0, 1.0])
    assert (found["solved"], found["of"]) == (1, 4)
    assert found["interval"] == pytest.approx([0.0456, 0.6994], abs=1e-3)
