"""Plots of partitions: cuts coloured by layer, regions filled, the decision boundary in red.

Everything is drawn from the exact polygons, never from a raster of samples. Colours are told apart by readers with
any colour vision; the boundary stands out by weight as well. Files are written by suffix: PNG, SVG or PDF.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Bool, Float

from splinecut.errors import InputError
from splinecut.files import write_atomically
from splinecut.geometry.subdivision.polygons import next_place

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.legend import Legend

    from splinecut.geometry.partition import Partition

RED = "#C8102E"  # the decision boundary
GREY = "#B8B8B8"  # what earlier layers drew
BLUE, GREEN = "#0072B2", "#009E73"
OKABE_ITO = (BLUE, GREEN, "#E69F00", "#CC79A7", "#56B4E9")  # Okabe & Ito 2008, without their reds
VECTOR_LIMIT = 4_000  # fills beyond this many polygons become an image inside the SVG; cuts stay lines

Fill = Callable[["Partition"], "Float[np.ndarray, 'regions 4']"]
"""Partition -> one RGBA colour per region."""


def layer_colours(n_layers: int) -> list[Any]:
    """One colour per layer: Okabe and Ito's while they last, else evenly spaced dark-to-light viridis."""
    if n_layers <= len(OKABE_ITO):
        return list(OKABE_ITO[:n_layers])
    from matplotlib import colormaps

    return list(colormaps["viridis"](np.linspace(0, 0.9, n_layers)))


def pastel(partition: Partition) -> Float[np.ndarray, "regions 4"]:
    """A pale tint per region, fixed by its code, so that a region keeps its tint wherever it is drawn."""
    from matplotlib.colors import hsv_to_rgb

    hue = (partition.code_hashes() >> np.uint64(40)).astype(float) / 2**24
    rgb = hsv_to_rgb(np.stack([hue, np.full_like(hue, 0.13), np.full_like(hue, 0.99)], axis=-1))
    return np.concatenate([rgb, np.ones((len(rgb), 1))], axis=1)


def by_class(partition: Partition) -> Float[np.ndarray, "regions 4"]:
    """A pale tint per class that wins at the region's centroid."""
    from matplotlib.colors import to_rgba

    winner = _outputs_at_centroids(partition)
    winner = (winner[:, 0] > 0).astype(int) if winner.shape[1] == 1 else winner.argmax(axis=1)
    tints = np.array([to_rgba(colour) for colour in layer_colours(max(int(winner.max()) + 1, 2))])
    tints[:, :3] = 1 - 0.25 * (1 - tints[:, :3])
    return tints[winner]


def by_value(partition: Partition) -> Float[np.ndarray, "regions 4"]:
    """The first output at the region's centroid, blue below zero and orange above."""
    from matplotlib.colors import LinearSegmentedColormap

    shades = LinearSegmentedColormap.from_list("value", ["#8DBBDD", "#FFFFFF", "#F5C98B"])
    value = _outputs_at_centroids(partition)[:, 0]
    return np.asarray(shades(0.5 + 0.5 * value / max(float(np.abs(value).max()), 1e-300)))


FILLS: dict[str, Fill] = {"pastel": pastel, "class": by_class, "value": by_value}


def plot(
    partition: Partition,
    path: str | Path | None = None,
    fill: Fill | None = pastel,
    upto: int | None = None,
    with_boundary: bool = True,
    with_kinks: bool = False,
    legend: bool = True,
    ax: Axes | None = None,
) -> Axes:
    """Draws the partition into `ax` (a new figure when None), and into a file when `path` is given.

    upto: draw the cuts of layers 0..upto only, as the partition stands after that layer.
    """
    if upto is not None:
        _check_layer(partition, upto)
    ax = _panels(partition, 1)[1][0] if ax is None else ax
    _frame(partition, ax)
    if fill is not None:
        _fill(partition, ax, fill(partition))
    _cuts(partition, ax, upto)
    if with_boundary and upto is None:
        _boundary(partition, ax)
    if with_kinks:
        at = partition.kinks().uv
        ax.plot(at[:, 0], at[:, 1], "o", ms=3.2, mfc="white", mec=RED, mew=1.0, zorder=6, label="kink")
    if legend:
        _legend(ax)
    if path is not None:
        save(ax.figure, path)  # type: ignore[arg-type]
    return ax


def layer_by_layer(partition: Partition, path: str | Path | None = None) -> Figure:
    """One panel per layer: its new cuts dark, the earlier ones grey; last the decision boundary (Fig. 1a, appendix).

    A cut of a later layer turns exactly where it meets a cut of an earlier one.
    """
    n_layers = len(partition.layers)
    figure, axes = _panels(partition, n_layers + 1)
    for layer, ax in enumerate(axes[:-1]):
        _frame(partition, ax, f"layer {layer + 1}")
        _lines(ax, _edges(partition, partition.edge_layer < layer), GREY, 0.7, zorder=2)
        _lines(ax, _edges(partition, partition.edge_layer == layer), "#1A1A1A", 1.1, zorder=3)
    _frame(partition, axes[-1], "decision boundary")
    _fill(partition, axes[-1], by_class(partition))
    _lines(axes[-1], _edges(partition, partition.edge_layer >= 0), GREY, 0.7, zorder=2)
    _boundary(partition, axes[-1])
    return _finish(figure, path)


def side_by_side(
    partitions: Sequence[Partition], titles: Sequence[str], path: str | Path | None = None, fill: Fill | None = pastel
) -> Figure:
    """The same window of several networks, the first one's cuts dotted under the others (Fig. 1b and 1c: pruning)."""
    if len(partitions) != len(titles):
        raise InputError(f"titles must be one per partition ({len(partitions)}), got {len(titles)}")
    figure, axes = _panels(partitions[0], len(partitions))
    for partition, title, ax in zip(partitions, titles, axes, strict=True):
        plot(partition, fill=fill, legend=False, ax=ax)
        if partition is not partitions[0]:
            before = _edges(partitions[0], partitions[0].edge_layer >= 0)
            _lines(ax, before, "#8C8C8C", 0.7, zorder=2, style=(0, (1.5, 2)))
        ax.set_title(f"{title}\n{len(partition):,} regions", fontsize=9)
    handles, labels = axes[0].get_legend_handles_labels()
    legend = figure.legend(handles, labels, loc="outside lower center", ncols=len(labels), frameon=False, fontsize=8)
    _legible(legend)
    return _finish(figure, path)


def unit_by_unit(partition: Partition, layer: int, path: str | Path | None = None, columns: int = 4) -> Figure:
    """One panel per unit of a layer: its cut over what the earlier layers drew (the appendix's figure)."""
    _check_layer(partition, layer)
    units = np.unique(partition.edge_unit[partition.edge_layer == layer])
    if len(units) == 0:
        raise InputError(f"layer {partition.layers[layer].name!r} draws no cut in this window; choose another layer")
    figure, axes = _panels(partition, len(units), columns)
    colour = layer_colours(len(partition.layers))[layer]
    for unit, ax in zip(units, axes, strict=False):
        _frame(partition, ax, f"unit {unit}")
        _lines(ax, _edges(partition, partition.edge_layer < layer), GREY, 0.6, zorder=2)
        _lines(ax, _of_unit(partition, layer, int(unit)), colour, 1.8, zorder=3)
    return _finish(figure, path)


def one_cut(partition: Partition, layer: int, unit: int, path: str | Path | None = None, grid: int = 20) -> Figure:
    """The cut of one unit with a grid of points, filled where the unit is on (the paper's single-line figure)."""
    _check_layer(partition, layer)
    figure, (ax,) = _panels(partition, 1)
    _frame(partition, ax, f"layer {layer + 1}, unit {unit}")
    low, high = partition.slice.window.min(axis=0), partition.slice.window.max(axis=0)
    step = (np.arange(grid) + 0.5) / grid
    points = np.stack(np.meshgrid(*(low + step[:, None] * (high - low)).T), axis=-1).reshape(-1, 2)
    region = partition.locate(points)
    points, region = points[region >= 0], region[region >= 0]
    on = partition.codes.bits(partition.layers[layer].name)[:, unit][region]
    colour = layer_colours(len(partition.layers))[layer]
    ax.plot(*points[~on].T, "o", ms=3, mfc="white", mec="#777777", mew=0.7, label="off")
    ax.plot(*points[on].T, "o", ms=3, mfc=colour, mec=colour, mew=0.7, label="on")
    _lines(ax, _edges(partition, partition.edge_layer < layer), GREY, 0.6, zorder=1)
    _lines(ax, _of_unit(partition, layer, unit), "#1A1A1A", 1.8, zorder=3)
    _legend(ax)
    return _finish(figure, path)


def alike(
    partition: Partition,
    pruned: Partition,
    layer: int,
    unit: int,
    distance: Float[np.ndarray, " units"],
    path: str | Path | None = None,
) -> Figure:
    """Cuts like one unit's, and the partition without them (the paper's Fig. 6): three panels of one window.

    Left the partition, the cuts of `layer` blue and earlier ones black. In the middle the cut of `unit` green and the
    others of its layer the darker the smaller their `distance` to it. Right the partition after pruning.
    """
    _check_layer(partition, layer)
    figure, axes = _panels(partition, 3)
    titles = (f"partition, {len(partition):,} regions", f"near unit {unit}: dark", f"pruned, {len(pruned):,} regions")
    for ax, shown, title in zip(axes, (partition, partition, pruned), titles, strict=True):
        _frame(shown, ax, title)
        _lines(ax, _edges(shown, (shown.edge_layer >= 0) & (shown.edge_layer < layer)), "#1A1A1A", 1.1, zorder=2)
    for ax, shown in ((axes[0], partition), (axes[2], pruned)):
        _lines(ax, _edges(shown, shown.edge_layer == layer), BLUE, 1.3, zorder=3, label=f"layer {layer + 1}")
    others = np.delete(np.arange(len(distance)), unit)
    for other in others[np.argsort(-distance[others], kind="stable")].tolist():
        shade = _shade(float(distance[other]), distance[others])
        _lines(axes[1], _of_unit(partition, layer, other), shade, 1.6, zorder=3, label=f"unit {other}")
    _lines(axes[1], _of_unit(partition, layer, unit), GREEN, 2.2, zorder=4, label=f"unit {unit}")
    return _finish(figure, path)


def _of_unit(partition: Partition, layer: int, unit: int) -> Float[np.ndarray, "edges 2 2"]:
    return _edges(partition, (partition.edge_layer == layer) & (partition.edge_unit == unit))


def _shade(distance: float, among: Float[np.ndarray, " units"]) -> Any:
    """Dark blue for the nearest, pale for the farthest."""
    from matplotlib.colors import LinearSegmentedColormap

    near, far = float(among.min()), float(among.max())
    shades = LinearSegmentedColormap.from_list("near", ["#08306B", "#C6DBEF"])
    return shades((distance - near) / max(far - near, np.finfo(float).tiny))


def save(figure: Figure, path: str | Path) -> Path:
    """Writes the figure as its suffix says; the same figure gives the same bytes."""
    suffixes = (".png", ".svg", ".pdf")
    path = Path(path)
    if path.suffix.lower() not in suffixes:
        raise InputError(f"a picture ends in .png, .svg or .pdf, got {path.name!r}; add one of these")
    from matplotlib import rc_context

    undated: dict[str, Any] = {".png": {"Software": None}, ".svg": {"Date": None}, ".pdf": {"CreationDate": None}}
    with rc_context({"svg.hashsalt": "splinecut", "svg.fonttype": "none"}):
        return write_atomically(
            path, lambda file: figure.savefig(file, dpi=160, metadata=undated[path.suffix.lower()], facecolor="white")
        )


def _panels(partition: Partition, n: int, columns: int = 5) -> tuple[Figure, list[Axes]]:
    """A figure outside pyplot's window manager, with n panels of the window's proportions."""
    from matplotlib import rc_context
    from matplotlib.figure import Figure

    width = min(n, columns)
    rows = -(-n // width)
    size = 4.2 if n == 1 else 2.5
    spread = np.ptp(partition.slice.window, axis=0)
    height = float(np.clip(spread[1] / spread[0], 0.3, 2.0)) * size
    with rc_context({"axes.linewidth": 0.6}):
        figure = Figure(figsize=(size * width, (height + 0.3) * rows), layout="constrained")
        axes = list(np.asarray(figure.subplots(rows, width, squeeze=False)).ravel())
    for ax in axes[n:]:
        ax.set_visible(False)
    return figure, axes[:n]


def _finish(figure: Figure, path: str | Path | None) -> Figure:
    if path is not None:
        save(figure, path)
    return figure


def _frame(partition: Partition, ax: Axes, title: str = "") -> None:
    low, high = partition.slice.window.min(axis=0), partition.slice.window.max(axis=0)
    ax.set_xlim(low[0], high[0])
    ax.set_ylim(low[1], high[1])
    ax.set_aspect("equal")
    ax.set_xticks([])
    ax.set_yticks([])
    ax.set_title(title, fontsize=9)


def _fill(partition: Partition, ax: Axes, colours: Float[np.ndarray, "regions 4"]) -> None:
    from matplotlib.collections import PolyCollection

    corners = np.split(partition.vertices[partition.indices], partition.offsets[1:-1])
    # A hairline in the region's own colour closes the gap that anti-aliasing leaves between neighbours.
    filled = PolyCollection(corners, facecolors=colours, edgecolors=colours, linewidths=0.2, zorder=1)
    filled.set_rasterized(len(partition) > VECTOR_LIMIT)
    ax.add_collection(filled)


def _cuts(partition: Partition, ax: Axes, upto: int | None) -> None:
    from matplotlib.colors import to_rgba

    last = len(partition.layers) - 1 if upto is None else upto
    crowd = 1 + len(partition) / 3_000  # many regions need thin, pale cuts to stay legible
    thin, pale = max(0.15, 1.3 / crowd), max(0.35, crowd**-0.25)
    for layer, colour in enumerate(layer_colours(len(partition.layers))[: last + 1]):
        edges = _edges(partition, partition.edge_layer == layer)
        if len(edges):
            depth = 3 + 0.01 * (last - layer)  # earlier layers on top: later cuts turn on them
            _lines(ax, edges, to_rgba(colour, pale), thin, depth, label=f"layer {layer + 1}")


def _boundary(partition: Partition, ax: Axes) -> None:
    ends = partition.boundary().ends
    if len(ends):
        _lines(ax, ends, "white", 3.4, zorder=4)
        _lines(ax, ends, RED, 1.9, zorder=5, label="decision boundary")


def _lines(
    ax: Axes,
    ends: Float[np.ndarray, "n 2 2"],
    colour: Any,
    width: float,
    zorder: float,
    label: str | None = None,
    style: Any = "solid",
) -> None:
    from matplotlib.collections import LineCollection

    look = {"colors": [colour], "linewidths": width, "linestyles": [style], "capstyle": "round"}
    ax.add_collection(LineCollection(ends, zorder=zorder, label=label, **look))  # type: ignore[arg-type]


def _edges(partition: Partition, chosen: Bool[np.ndarray, " places"]) -> Float[np.ndarray, "edges 2 2"]:
    """Both ends of the chosen edges, each drawn once although two regions share it."""
    onward = partition.indices[next_place(partition.offsets)]
    pairs = np.sort(np.stack([partition.indices, onward], axis=1)[chosen], axis=1)
    return partition.vertices[np.unique(pairs, axis=0)]


def _legend(ax: Axes) -> None:
    handles, labels = ax.get_legend_handles_labels()
    if handles:
        legend = ax.legend(
            handles, labels, loc="upper center", bbox_to_anchor=(0.5, -0.01), frameon=False, ncols=3, fontsize=8
        )
        _legible(legend)


def _legible(legend: Legend) -> None:
    """Shows thin, pale cuts of a crowded picture as lines one can see."""
    for line in legend.get_lines():
        line.set(linewidth=max(1.2, line.get_linewidth()), alpha=1.0)


def _outputs_at_centroids(partition: Partition) -> Float[np.ndarray, "regions outputs"]:
    homogeneous = np.concatenate([partition.centroids, np.ones((len(partition), 1))], axis=1)
    return np.einsum("roc,rc->ro", partition.affine, homogeneous)


def _check_layer(partition: Partition, layer: int) -> None:
    if not 0 <= layer < len(partition.layers):
        names = [each.name for each in partition.layers]
        raise InputError(f"layer must be a number from 0 to {len(names) - 1} ({', '.join(names)}), got {layer}")
