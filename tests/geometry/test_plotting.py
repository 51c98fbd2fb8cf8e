"""Pictures are drawn from the partition itself: what is on the canvas is what the arrays say."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from matplotlib.collections import LineCollection, PolyCollection
from matplotlib.colors import to_hex
from torch import nn

from splinecut.errors import InputError
from splinecut.geometry import plotting as pictures
from splinecut.geometry.partition import Partition, subdivide
from splinecut.geometry.slices import Slice
from splinecut.networks.trace import trace


@pytest.fixture(scope="module")
def toy() -> Partition:
    torch.manual_seed(4)
    net = nn.Sequential(nn.Linear(2, 6), nn.ReLU(), nn.Linear(6, 6), nn.ReLU(), nn.Linear(6, 1)).double().eval()
    with torch.no_grad():
        net[4].bias -= net(torch.zeros(1, 2, dtype=torch.float64))[0]  # so that the boundary passes through the origin
    return subdivide(trace(net, torch.zeros(1, 2)), Slice.square(3.0))


def lines(ax, label: str) -> np.ndarray:
    """Both ends of every segment drawn under a label."""
    (found,) = [c for c in ax.collections if isinstance(c, LineCollection) and c.get_label() == label]
    return np.array(found.get_segments())


def test_every_region_is_filled_and_every_edge_drawn_once(toy: Partition) -> None:
    ax = toy.plot()
    (filled,) = [c for c in ax.collections if isinstance(c, PolyCollection)]
    assert len(filled.get_paths()) == len(toy)
    inner = toy.neighbours()
    for layer in range(2):
        drawn = lines(ax, f"layer {layer + 1}")
        of_layer = inner.layer == layer
        assert len(drawn) == of_layer.sum()
        expected = np.linalg.norm(np.diff(toy.vertices[inner.ends[of_layer]], axis=1), axis=2).sum()
        assert np.linalg.norm(np.diff(drawn, axis=1), axis=2).sum() == pytest.approx(expected)


def test_the_boundary_on_the_canvas_is_the_exact_one(toy: Partition) -> None:
    line = toy.boundary()
    assert len(line) > 0
    assert np.allclose(lines(toy.plot(), "decision boundary"), line.ends)


def test_upto_draws_earlier_layers_only(toy: Partition) -> None:
    labels = [c.get_label() for c in toy.plot(upto=0).collections]
    assert "layer 1" in labels
    assert not {"layer 2", "decision boundary"} & set(labels)


@pytest.mark.parametrize("suffix", ["png", "svg", "pdf"])
def test_the_same_picture_gives_the_same_bytes(toy: Partition, tmp_path: Path, suffix: str) -> None:
    first, second = tmp_path / f"a.{suffix}", tmp_path / f"b.{suffix}"
    for path in (first, second):
        toy.plot(path, with_kinks=True)
    assert first.read_bytes() == second.read_bytes()
    assert first.read_bytes()[:5] in (b"\x89PNG\r", b"<?xml", b"%PDF-")
    assert first.stat().st_size > 5_000


def test_every_figure_has_its_panels(toy: Partition, tmp_path: Path) -> None:
    assert len(pictures.layer_by_layer(toy).axes) == 3
    assert len(pictures.side_by_side([toy, toy], ["one", "two"]).axes) == 2
    drawn = np.unique(toy.edge_unit[toy.edge_layer == 1])
    visible = [ax for ax in pictures.unit_by_unit(toy, 1).axes if ax.get_visible()]
    assert [ax.get_title() for ax in visible] == [f"unit {unit}" for unit in drawn]
    pictures.one_cut(toy, 1, int(drawn[0]), tmp_path / "one.png")
    assert (tmp_path / "one.png").is_file()


def test_one_cut_separates_points_where_the_unit_is_on_from_those_where_it_is_off(toy: Partition) -> None:
    unit = int(toy.edge_unit[toy.edge_layer == 0][0])
    (ax,) = pictures.one_cut(toy, 0, unit, grid=10).axes
    off, on = (np.stack(line.get_data(), axis=1) for line in ax.get_lines())
    assert len(off) + len(on) == 100
    bits = toy.codes.bits(toy.layers[0].name)[:, unit]
    assert bits[toy.locate(on)].all()
    assert not bits[toy.locate(off)].any()


def test_alike_draws_the_reference_green_and_near_cuts_darker_than_far_ones(toy: Partition, tmp_path: Path) -> None:
    units = np.unique(toy.edge_unit[toy.edge_layer == 1])
    reference, distance = int(units[0]), np.arange(6.0)
    figure = pictures.alike(toy, toy, 1, reference, distance, tmp_path / "alike.png")
    left, middle, right = figure.axes
    edges = toy.neighbours()
    assert len(lines(left, "layer 2")) == len(lines(right, "layer 2")) == (edges.layer == 1).sum()
    drawn = {c.get_label(): c for c in middle.collections}
    of_unit = (edges.layer == 1) & (edges.unit == reference)
    assert len(lines(middle, f"unit {reference}")) == of_unit.sum()
    assert to_hex(drawn[f"unit {reference}"].get_colors()[0]).upper() == pictures.GREEN
    brightness = [drawn[f"unit {unit}"].get_colors()[0][:3].sum() for unit in range(6) if unit != reference]
    assert brightness == sorted(brightness) and brightness[0] < brightness[-1]


@pytest.mark.parametrize("fill", pictures.FILLS.values(), ids=pictures.FILLS)
def test_fills_give_one_opaque_colour_per_region(toy: Partition, fill) -> None:
    colours = fill(toy)
    assert colours.shape == (len(toy), 4)
    assert (colours >= 0).all()
    assert (colours <= 1).all()
    assert (colours[:, 3] == 1).all()


def test_layer_colours_are_distinct_at_any_depth() -> None:
    for n in (1, 3, 5, 6, 20):
        assert len({str(colour) for colour in pictures.layer_colours(n)}) == n


def test_what_cannot_be_drawn_is_refused(toy: Partition, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"ends in \.png, \.svg or \.pdf, got 'a\.gif'"):
        toy.plot(tmp_path / "a.gif")
    with pytest.raises(InputError, match=r"layer must be a number from 0 to 1 \(1, 3\), got 2"):
        pictures.unit_by_unit(toy, 2)
    with pytest.raises(InputError, match="titles must be one per partition"):
        pictures.side_by_side([toy], [])
