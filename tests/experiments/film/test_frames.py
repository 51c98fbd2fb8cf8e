"""Stored frames: what is written is read back, and units keep their names through a cut."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

import splinecut as sc
from splinecut.errors import InputError
from splinecut.experiments.film import build as filming
from splinecut.experiments.film import frames, window
from splinecut.geometry.cuts import corrected_distance, cuts
from splinecut.networks import models
from support.report_data import network, small_film


def test_what_is_saved_is_read_back(tmp_path: Path) -> None:
    film = small_film()
    again = frames.load(film.save(tmp_path / "frames.npz"))
    assert (again.name, again.layers, again.class_names, again.about) == (
        film.name,
        film.layers,
        film.class_names,
        film.about,
    )
    for a, b in zip(film, again, strict=True):
        assert a.about() == b.about()
        for name, array in a.arrays().items():
            np.testing.assert_array_equal(array, b.arrays()[name])
    for one, other in zip(film.redundancy, again.redundancy, strict=True):
        np.testing.assert_array_equal(one.order, other.order)
        for form in one.distances:
            np.testing.assert_array_equal(one.distances[form], other.distances[form])


def test_a_file_that_holds_no_frames_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a.npz").write_bytes(b"nothing")
    np.savez(tmp_path / "b.npz", x=np.zeros(3))
    for name in ("a.npz", "b.npz", "c.npz"):
        with pytest.raises(InputError, match="does not hold stored frames"):
            frames.load(tmp_path / name)
    partition = sc.subdivide(network(4), sc.Slice.square(1.0))
    with pytest.raises(InputError, match="does not hold stored frames"):
        frames.load(partition.save(tmp_path / "partition.npz"))


def test_a_frame_holds_the_partition() -> None:
    partition = sc.subdivide(network(16, 8), sc.Slice.square(2.0))
    frame = filming.frame_of(partition)
    assert len(frame) == len(partition)
    np.testing.assert_array_equal(np.cumsum(frame.corners), partition.offsets[1:])
    np.testing.assert_allclose(frame.affine, partition.affine, rtol=1e-6)
    np.testing.assert_array_equal(frame.boundary, partition.boundary().ends)


def test_units_of_a_cut_network_are_traced_back_to_the_whole_one() -> None:
    """Without refit a kept unit of the first layer has the very weights of its origin."""
    model, region = network(16, 8), sc.Slice.square(2.0)
    probe = torch.rand(64, 2, generator=torch.Generator().manual_seed(0)) * 4 - 2
    (frame,) = filming.pruned_frames(model, region, probe, [0.5], refit=None)
    ticket = sc.draw(model, probe, keep=0.5)
    smaller = sc.cut(model, ticket)
    assert frame.keep == ticket.achieved.density
    assert torch.equal(smaller[0].weight, model[0].weight[torch.from_numpy(frame.origin[0]).long()])
    assert torch.equal(smaller[2].bias, model[2].bias[torch.from_numpy(frame.origin[1]).long()])


def test_channels_of_a_convolution_are_traced_back_through_batch_norm() -> None:
    model = models.build("convnet", preset="digits", classes=10, input_shape=(1, 8, 8), seed=0).eval()
    images = torch.rand(32, 1, 8, 8, generator=torch.Generator().manual_seed(0))
    region = sc.Slice.through(*images[:3])
    (frame,) = filming.pruned_frames(model, region, images, [0.5], refit=None)
    ticket = sc.draw(model, images, keep=0.5)
    kept = [np.flatnonzero(keep) for keep in ticket.keep.values()]
    assert [units.tolist() for units in frame.origin] == [units.tolist() for units in kept]


def test_a_window_is_narrowed_until_it_holds_few_regions() -> None:
    model, whole = network(16, 8), sc.Slice.square(2.0)
    n_whole = len(sc.subdivide(model, whole))
    assert window.shrink_to_limit(model, whole, n_whole) is whole
    small = window.shrink_to_limit(model, whole, n_whole // 3)
    assert len(sc.subdivide(model, small)) <= n_whole // 3
    np.testing.assert_allclose(small.window.mean(axis=0), 0, atol=1e-12)
    halvings = np.log2(whole.area / small.area)
    assert halvings >= 1 and halvings == pytest.approx(round(halvings))


def test_redundancy_is_the_distance_between_cuts_and_its_order_a_permutation() -> None:
    model = network(16, 8)
    groups = sc.groups(model, torch.zeros(1, 2))
    first, second = filming.redundancies(model, sc.Slice.square(1.0), groups)
    drawn = cuts(model[0].weight, model[0].bias)
    np.testing.assert_allclose(first.distances["corrected"], corrected_distance(drawn, drawn), atol=1e-6)
    assert sorted(first.order) == list(range(16)) and sorted(second.order) == list(range(8))


def test_clusters_stand_together() -> None:
    near = np.array([0, 1, 0, 1, 0, 1])  # two clusters, interleaved
    distance = np.where(near[:, None] == near, 0.01, 1.0)
    order = filming._clustered(distance)
    assert len(set(near[order[:3]])) == len(set(near[order[3:]])) == 1


def test_dead_units_do_not_break_the_order() -> None:
    distance = np.full((4, 4), np.inf)
    assert sorted(filming._clustered(distance)) == [0, 1, 2, 3]
