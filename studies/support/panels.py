"""Sheets of exact partitions, each beside its name, with charts below, in one picture file."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float

from splinecut.files import write_atomically
from splinecut.geometry.graph import Graph
from splinecut.geometry.partition import Partition, subdivide
from splinecut.geometry.plotting import plot, save
from splinecut.geometry.slices import Slice

Polygon = Float[np.ndarray, "corners 2"]
Chart = Callable[[Any], None]
"""Draws itself on the axes it is given."""

SIDE = 2.3  # inches of one partition
CHART = 2.4  # inches of height
MOST_IN_SVG = 1_500  # regions of a whole sheet; each takes nearly a kilobyte
TINTS = ("#FFFFFF", "#FFEDBD", "#F3DDF0", "#E4E4E4", "#DDF1F1")  # of the classes; none like the colours of cuts


def sheet(
    partitions: dict[str, Partition],
    charts: Sequence[Chart],
    path: Path,
    columns: int = 5,
    with_kinks: bool = False,
) -> Path:
    """Draws the partitions row by row, the classes tinted, and the charts below them.

    The suffix is `.svg`, or `.png` where the regions are too many for that; the path written is given back.
    """
    from matplotlib.figure import Figure

    rows = -(-len(partitions) // columns)
    heights = [rows * (SIDE + 0.5) + 0.4, *([CHART] if charts else [])]
    figure = Figure((columns * SIDE, sum(heights)), layout="constrained")
    parts = figure.subfigures(len(heights), 1, height_ratios=heights, squeeze=False)[:, 0]
    _pictures(parts[0], partitions, rows, columns, with_kinks)
    if charts:
        for chart, axes in zip(charts, parts[1].subplots(1, len(charts), squeeze=False)[0], strict=True):
            axes.spines[["top", "right"]].set_visible(False)
            axes.tick_params(labelsize=8)
            chart(axes)
    is_small = sum(map(len, partitions.values())) <= MOST_IN_SVG
    written = save(figure, path.with_suffix(".svg" if is_small else ".png"))
    if not is_small:
        _fewer_colours(written)
    print(f"wrote {written}")
    return written


def _fewer_colours(path: Path) -> None:
    """Rewrites a PNG with 256 colours, fitted to it: a third of the bytes, and no difference one could see."""
    from PIL import Image

    with Image.open(path) as image:
        indexed = image.convert("RGB").quantize(256, kmeans=2, dither=Image.Dither.NONE)
    write_atomically(path, lambda file: indexed.save(file, optimize=True))


def _pictures(part: Any, partitions: dict[str, Partition], rows: int, columns: int, with_kinks: bool) -> None:
    from matplotlib.collections import PolyCollection

    axes = part.subplots(rows, columns, squeeze=False).ravel()
    known: dict[str, Any] = {}
    for ax, (title, partition) in zip(axes, partitions.items(), strict=False):
        pieces, tints = tinted(partition)
        ax.add_collection(PolyCollection(pieces, facecolors=tints, edgecolors=tints, linewidths=0.2, zorder=1))
        plot(partition, fill=None, with_kinks=with_kinks, legend=False, ax=ax)
        _thin(ax, partition)
        ax.set_title(f"{title}\n{len(partition):,} regions", fontsize=9)
        handles, labels = ax.get_legend_handles_labels()
        known = dict(zip(labels, handles, strict=True)) | known
    for ax in axes[len(partitions) :]:
        ax.set_visible(False)
    names = sorted(known, key=lambda name: (name.startswith("decision"), name))
    legend = part.legend(
        [known[name] for name in names], names, loc="outside lower center", ncols=len(names), frameon=False, fontsize=9
    )
    for line in legend.get_lines():  # cuts of a crowded picture are thin and pale
        line.set(linewidth=2.0, alpha=1.0)


def _thin(ax: Any, partition: Partition) -> None:
    """Draws cuts no wider than their number allows: many that are nearly parallel make few regions and a full page."""
    drawn = np.stack([partition.edge_layer, partition.edge_unit])[:, partition.edge_layer >= 0]
    widest = 130 / max(1, len(np.unique(drawn, axis=1).T))
    for lines in ax.collections:
        if str(lines.get_label()).startswith("layer"):
            lines.set_linewidth(max(0.15, min(widest, float(lines.get_linewidth()[0]))))


def tinted(partition: Partition) -> tuple[list[Polygon], list[str]]:
    """Polygons with the tint of the class that wins on each: regions, split where the boundary crosses them."""
    corners = np.split(partition.vertices[partition.indices], partition.offsets[1:-1])
    centroids = np.concatenate([partition.centroids, np.ones((len(partition), 1))], axis=1)
    winner = np.einsum("roc,rc->ro", partition.affine, centroids).argmax(axis=1)
    crossed = set(partition.boundary().region.tolist())
    pieces = [(corners[region], int(winner[region])) for region in range(len(partition)) if region not in crossed]
    for region in sorted(crossed):
        for each, affine in enumerate(partition.affine[region]):
            piece = corners[region]
            for other in np.delete(partition.affine[region], each, axis=0):
                piece = clipped(piece, affine - other)
            pieces += [(piece, each)] if len(piece) > 2 else []
    return [piece for piece, _ in pieces], [TINTS[each % len(TINTS)] for _, each in pieces]


def clipped(polygon: Polygon, affine: Float[np.ndarray, " 3"]) -> Polygon:
    """The part of a convex polygon where a u + b v + c >= 0 (Sutherland and Hodgman 1974)."""
    height = polygon @ affine[:2] + affine[2]
    kept: list[np.ndarray] = []
    for here in range(len(polygon)):
        onward = (here + 1) % len(polygon)
        if height[here] >= 0:
            kept.append(polygon[here])
        if (height[here] >= 0) != (height[onward] >= 0):
            share = height[here] / (height[here] - height[onward])
            kept.append(polygon[here] + share * (polygon[onward] - polygon[here]))
    return np.array(kept).reshape(-1, 2)


def near_boundary(graph: Graph, partition: Partition, share: float) -> Partition:
    """The partition of a smaller window, with sides of `share` of the first, about the middle of the boundary.

    Without a boundary it is the middle of the window.
    """
    window = partition.slice.window
    middles = partition.boundary().ends.mean(axis=1)
    centre = window.mean(axis=0)
    if len(middles):
        centre = middles[np.argmin(np.linalg.norm(middles - middles.mean(axis=0), axis=1))]
    smaller: Slice = replace(partition.slice, window=centre + share * (window - window.mean(axis=0)))
    return subdivide(graph, smaller)


def parser(about: str | None, tasks: Sequence[str]) -> argparse.ArgumentParser:
    """The options that every study of figures has."""
    asks = argparse.ArgumentParser(description=about, formatter_class=argparse.RawDescriptionHelpFormatter)
    asks.add_argument("--task", choices=tasks, default=tasks[0])
    asks.add_argument("--seeds", type=int, default=5)
    asks.add_argument("--data-dir", type=Path, help="folder with mnist; left out: SPLINECUT_DATA, or the Hub")
    asks.add_argument("--out", type=Path, required=True, help="JSON file; pictures are written beside it")
    return asks
