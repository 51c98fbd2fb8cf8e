"""The partition is exact: right counts, right maps, right codes, on networks in general position."""

from __future__ import annotations

import copy
import itertools

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

import splinecut as sc
from splinecut.geometry.subdivision import run as vertices
from splinecut.geometry.subdivision.polygons import next_place
from support.exact_geometry import n_regions_of_lines, reference_network

few = settings(derandomize=True, deadline=None, max_examples=6)
seeds = st.integers(0, 10_000)


def random_network(seed: int, widths: tuple[int, ...] = (2, 12, 10, 8, 3)) -> nn.Sequential:
    torch.manual_seed(seed)
    layers: list[nn.Module] = []
    for fan_in, fan_out in itertools.pairwise(widths):
        layers += [nn.Linear(fan_in, fan_out), nn.ReLU()]
    return nn.Sequential(*layers[:-1]).double().eval()


def bits(model: nn.Module, x: torch.Tensor) -> np.ndarray:
    """Activation code of a Sequential, by running it."""
    found = []
    for layer in model:
        if isinstance(layer, nn.ReLU):
            found.append(x > 0)
        x = layer(x)
    return torch.cat(found, dim=1).numpy()


def edge_lengths(partition: sc.Partition) -> dict[tuple[int, int], float]:
    """Total length of the cut of each (layer, unit)."""
    pairs = partition.neighbours()
    length = np.linalg.norm(np.diff(partition.vertices[pairs.ends], axis=1)[:, 0], axis=1)
    found: dict[tuple[int, int], float] = {}
    for key, value in zip(zip(pairs.layer.tolist(), pairs.unit.tolist(), strict=True), length, strict=True):
        found[key] = found.get(key, 0.0) + float(value)
    return found


@pytest.mark.parametrize(
    ("width", "depth", "n_regions"),
    [(20, 2, 199), (64, 3, 6_668), (128, 3, 20_714), (128, 5, 33_533), (256, 4, 125_057)],
)
def test_reference_networks_have_the_known_number_of_regions(width, depth, n_regions):
    assert len(sc.subdivide(reference_network(width, depth), sc.Slice.square())) == n_regions


@few
@given(seeds)
def test_one_layer_has_one_region_plus_lines_plus_crossings(seed):
    model = random_network(seed, (2, 15, 1))
    weight, bias = (p.detach().numpy() for p in model[0].parameters())
    assert len(sc.subdivide(model, sc.Slice.square(2.0))) == n_regions_of_lines(weight, bias, 2.0)


@few
@given(seeds)
def test_areas_of_regions_sum_to_the_window(seed):
    window = sc.Slice(
        np.array([0.3, -0.2]), np.array([[1.0, 0.5], [0.2, -1.0]]), [[0, -1], [1.5, 0], [0.5, 2], [-1, 1]]
    )
    partition = sc.subdivide(random_network(seed), window)
    assert partition.areas.min() > 0
    assert abs(partition.areas.sum() / window.area - 1) < 1e-9


@few
@given(seeds)
def test_every_code_seen_on_a_grid_is_that_of_the_region_there(seed):
    model = random_network(seed)
    partition = sc.subdivide(model, sc.Slice.square())
    grid = np.stack(np.meshgrid(*2 * [np.linspace(-0.999, 0.999, 60)]), axis=-1).reshape(-1, 2)
    assert np.array_equal(partition.codes.bits()[partition.locate(grid)], bits(model, torch.from_numpy(grid)))


@few
@given(seeds)
def test_codes_equal_those_of_the_model_at_the_centroids(seed):
    model = random_network(seed)
    partition = sc.subdivide(model, sc.Slice.square())
    points = partition.slice.embed(partition.centroids)
    assert np.array_equal(partition.codes.bits(), bits(model, points))
    assert partition.codes == sc.codes(model, points)


@few
@given(seeds)
def test_affine_maps_equal_the_jacobian_by_autograd(seed):
    model = random_network(seed)
    window = sc.Slice(np.array([0.1, 0.2]), np.array([[1.0, 1.0], [-0.5, 2.0]]), sc.Slice.square().window)
    partition = sc.subdivide(model, window)
    points = window.embed(partition.centroids)
    jacobian = torch.stack([torch.autograd.functional.jacobian(model, x) for x in points]).numpy()
    slopes = jacobian @ window.basis.T
    np.testing.assert_allclose(partition.affine[..., :2], slopes, rtol=1e-7, atol=1e-7)
    values = (partition.affine[..., :2] @ partition.centroids[..., None])[..., 0] + partition.affine[..., 2]
    np.testing.assert_allclose(values, model(points).detach().numpy(), rtol=1e-9, atol=1e-9)


@few
@given(seeds)
def test_permuting_units_changes_nothing(seed):
    model = random_network(seed)
    order = torch.randperm(12)
    other = copy.deepcopy(model)
    other[0].weight.data, other[0].bias.data = model[0].weight.data[order], model[0].bias.data[order]
    other[2].weight.data = model[2].weight.data[:, order]
    _assert_same_regions(sc.subdivide(model, sc.Slice.square()), sc.subdivide(other, sc.Slice.square()))


@few
@given(seeds, st.floats(1e-3, 1e3))
def test_rescaling_units_changes_nothing(seed, factor):
    model = random_network(seed)
    other = copy.deepcopy(model)
    scale = torch.logspace(0, 1, 12, dtype=torch.float64) ** np.log10(factor)
    other[0].weight.data.mul_(scale[:, None])
    other[0].bias.data.mul_(scale)
    other[2].weight.data.div_(scale)
    _assert_same_regions(sc.subdivide(model, sc.Slice.square()), sc.subdivide(other, sc.Slice.square()))


@few
@given(seeds, st.sampled_from([1.0, 3.0, -0.5]))
def test_duplicating_a_unit_changes_nothing(seed, factor):
    model = random_network(seed)
    first, second = model[0], model[2]
    wide, after = nn.Linear(2, 13).double(), nn.Linear(13, 10).double()
    wide.weight.data = torch.cat([first.weight, factor * first.weight[:1]]).data
    wide.bias.data = torch.cat([first.bias, factor * first.bias[:1]]).data
    after.weight.data = torch.cat([second.weight, torch.zeros(10, 1)], dim=1).data
    after.bias.data = second.bias.data
    other = nn.Sequential(wide, nn.ReLU(), after, *model[3:]).eval()
    _assert_same_regions(sc.subdivide(model, sc.Slice.square()), sc.subdivide(other, sc.Slice.square()))


def _assert_same_regions(one: sc.Partition, other: sc.Partition) -> None:
    assert len(one) == len(other)
    for values in ("areas", "centroids"):
        a, b = (np.round(getattr(p, values).reshape(len(p), -1), 9) + 0.0 for p in (one, other))
        np.testing.assert_allclose(a[np.lexsort(a.T)], b[np.lexsort(b.T)], atol=2e-9)


@few
@given(seeds)
def test_a_cut_turns_only_on_cuts_of_earlier_layers(seed):
    partition = sc.subdivide(random_network(seed), sc.Slice.square())
    pairs = partition.neighbours()
    on_window = np.zeros(len(partition.vertices), dtype=bool)
    sides = partition.edge_layer < 0
    on_window[partition.indices[sides]] = on_window[partition.indices[next_place(partition.offsets)][sides]] = True
    lowest = np.full(len(partition.vertices), 99)
    np.minimum.at(lowest, pairs.ends.ravel(), np.repeat(pairs.layer, 2))
    arms: dict[tuple[int, int, int], list[np.ndarray]] = {}
    for (a, b), layer, unit in zip(pairs.ends.tolist(), pairs.layer.tolist(), pairs.unit.tolist(), strict=True):
        step = partition.vertices[b] - partition.vertices[a]
        arms.setdefault((a, layer, unit), []).append(step / np.linalg.norm(step))
        arms.setdefault((b, layer, unit), []).append(-step / np.linalg.norm(step))
    turning = 0
    for (vertex, layer, _), steps in arms.items():
        if len(steps) == 2 and not on_window[vertex] and np.abs(steps[0] + steps[1]).max() > 1e-6:
            turning += 1
            assert lowest[vertex] < layer
    assert turning > 0


@few
@given(seeds, st.integers(0, 2))
def test_removing_a_unit_leaves_the_cuts_of_earlier_layers(seed, layer):
    model = random_network(seed)
    pruned = copy.deepcopy(model)
    pruned[2 * layer].weight.data[0] = 0
    pruned[2 * layer].bias.data[0] = 0
    before, after = (edge_lengths(sc.subdivide(m, sc.Slice.square())) for m in (model, pruned))
    earlier = {key for key in before if key[0] < layer}
    assert earlier == {key for key in after if key[0] < layer}
    assert all(before[key] == pytest.approx(after[key], abs=1e-9) for key in earlier)
    assert (layer, 0) not in after


@pytest.mark.parametrize("seed", range(3))
def test_a_float32_model_has_the_partition_of_its_float64_copy(seed):
    model = random_network(seed).float()
    single = sc.subdivide(model, sc.Slice.square())
    double = sc.subdivide(copy.deepcopy(model).double(), sc.Slice.square())
    assert np.array_equal(single.vertices, double.vertices)
    assert single.codes == double.codes
    assert next(model.parameters()).dtype == torch.float32


@pytest.mark.parametrize("rows", [8, 64])
def test_working_in_small_blocks_gives_the_same_partition(rows, monkeypatch):
    model = reference_network(20, 3)
    whole = sc.subdivide(model, sc.Slice.square())
    monkeypatch.setattr(vertices, "_BLOCK_BYTES", 0)
    monkeypatch.setattr(vertices, "_BLOCK_ROWS", rows)
    pieces = sc.subdivide(model, sc.Slice.square())
    _assert_same_regions(whole, pieces)
    assert len(whole.vertices) == len(pieces.vertices)
    assert len(whole.neighbours().regions) == len(pieces.neighbours().regions)
    assert sc.certify(pieces, model).ok


def test_vertices_edges_and_regions_obey_euler():
    partition = sc.subdivide(reference_network(20, 3), sc.Slice.square())
    n_edges = len(partition.indices) - len(partition.neighbours().regions)
    assert len(partition.vertices) - n_edges + len(partition) == 1


def test_locate_finds_the_region_and_says_minus_one_outside():
    partition = sc.subdivide(reference_network(20, 2), sc.Slice.square())
    assert np.array_equal(partition.locate(partition.centroids), np.arange(len(partition)))
    assert partition.locate([[1.5, 0.0], [0.0, -1.01]]).tolist() == [-1, -1]
    assert (partition.locate([[1.0, 1.0], [-1.0, 0.3]]) >= 0).all()


def test_a_saved_partition_comes_back_whole(tmp_path):
    partition = sc.subdivide(reference_network(20, 2), sc.Slice.square())
    again = sc.Partition.load(partition.save(tmp_path / "partition.npz"))
    assert again.layers == partition.layers
    assert again.codes == partition.codes
    assert np.array_equal(again.affine, partition.affine)
    assert np.array_equal(again.edge_unit, partition.edge_unit)


def test_what_is_not_a_saved_partition_is_refused(tmp_path):
    (tmp_path / "other.npz").write_bytes(b"nothing")
    with pytest.raises(sc.InputError, match="not a saved partition"):
        sc.Partition.load(tmp_path / "other.npz")


def test_more_regions_than_allowed_raise_and_never_truncate():
    model = reference_network(20, 2)
    assert len(sc.subdivide(model, sc.Slice.square(), max_regions=199)) == 199
    for limit in (1, 50, 198):
        with pytest.raises(sc.RegionLimit, match=f"more than {limit} regions"):
            sc.subdivide(model, sc.Slice.square(), max_regions=limit)


def test_progress_reaches_one():
    shares: list[float] = []
    sc.subdivide(reference_network(20, 2), sc.Slice.square(), progress=shares.append)
    assert shares == sorted(shares)
    assert shares[-1] == pytest.approx(1)


def test_a_slice_of_the_wrong_dimension_is_refused_in_one_line():
    with pytest.raises(sc.InputError, match=r"shape \(3,\)") as refusal:
        sc.subdivide(reference_network(20, 2), sc.Slice.square(dim=3))
    assert "\n" not in str(refusal.value)


def test_subdividing_a_network_that_is_all_affine_gives_the_window():
    partition = sc.subdivide(nn.Linear(2, 3).eval(), sc.Slice.square())
    assert len(partition) == 1
    assert partition.codes.bits().shape == (1, 0) or partition.codes.bits().size == 0
