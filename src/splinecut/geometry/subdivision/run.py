"""Runs a network on the vertices of polygons, inserting vertices where units change sign.

Start with the corners of the window. Affine steps run as they are, on the batch of all vertices. Before a fold, every
polygon is split along the units that change sign in it, and every live value gets the interpolated rows of the new
vertices. After that the fold itself is affine on every polygon, so applying it to the vertices is exact.

Polygons are worked through in blocks, depth first, so memory stays bounded however many there are. Blocks share
vertices by 64-bit keys made from how a vertex came to be; equal keys mean the same vertex.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import numpy as np
import torch
from jaxtyping import Float, Int64, UInt64
from torch import Tensor

from splinecut.errors import SplinecutError
from splinecut.geometry.graph import Graph, Node
from splinecut.geometry.slices import Slice
from splinecut.geometry.subdivision import crossings, polygons, splitting
from splinecut.geometry.subdivision import max_windows as maxima

Progress = Callable[[float], object]
"""Called with the share of the window that is done."""

LABEL_UNITS = 1 << 40  # an edge's label is layer * LABEL_UNITS + unit; -1 - side for a side of the window

_BLOCK_BYTES = 16 << 20  # of live values per block: near the size of a cache
_BLOCK_ROWS = 512  # vertices per block at least, however wide the layer: small blocks repeat too many


class RegionLimit(SplinecutError):
    """There are more regions than allowed; nothing is returned rather than a part."""


@dataclass(frozen=True)
class Cut:
    """Step: split along the units of one layer."""

    layer: int
    node: Node
    kink: float
    tolerance: Float[np.ndarray, " units"]


@dataclass(frozen=True)
class Apply:
    """Step: replace the values of a node's inputs by its value; `dead` are not needed afterwards."""

    node: Node
    dead: tuple[str, ...]


@dataclass(frozen=True)
class Mesh:
    """Polygons with shared vertices. keys: who is who across blocks. label: what made the edge after each place."""

    uv: Float[np.ndarray, "vertices 2"]
    keys: UInt64[np.ndarray, " vertices"]
    offsets: Int64[np.ndarray, " polygons_and_one"]
    ring: Int64[np.ndarray, " places"]
    label: Int64[np.ndarray, " places"]

    def __len__(self) -> int:
        return len(self.offsets) - 1


@dataclass(frozen=True)
class Block:
    """Some polygons, the values alive at their vertices, and the codes their polygons have so far.

    cutting: while a max is being cut, the windows that may still cut; None means all.
    """

    mesh: Mesh
    values: dict[str, Tensor]
    codes: tuple[Int64[np.ndarray, "polygons words"], ...]
    step: int
    cutting: Int64[np.ndarray, " windows"] | None = None


@dataclass(frozen=True)
class Splitting:
    """What a cut makes of a block, before any row is computed: new vertices as mixtures, new polygons.

    New vertex number n_old + i is the mixture of the old vertices corner[i]; zero lists (vertex, unit) pairs where
    the unit is exactly zero.
    """

    corner: Int64[np.ndarray, "new k"]
    weight: Float[np.ndarray, "new k"]
    keys: UInt64[np.ndarray, " new"]
    zero: Int64[np.ndarray, "zeros 2"]
    cells: splitting.Cells
    cutting: Int64[np.ndarray, " windows"] | None = None

    def __len__(self) -> int:
        return len(self.cells.parent)


@dataclass(frozen=True)
class Pending:
    """Polygons first..stop of a splitting whose rows are yet to be computed."""

    block: Block
    splitting: Splitting
    first: int
    stop: int

    def __len__(self) -> int:
        return self.stop - self.first


def steps_of(graph: Graph, region: Slice, tolerance: float) -> list[Cut | Apply]:
    """The network as a list of cuts and applications; tolerances scaled by each unit's magnitude on the window."""
    magnitude = magnitudes(graph, region)
    steps: list[Cut | Apply] = []
    layers = list(enumerate(graph.layers))
    for place, node in enumerate(graph.nodes[1:], start=1):
        for layer, described in layers:
            if described.node == node.name:
                # Subtracting the kink rounds relative to the kink, too.
                scale = magnitude[node.name] + abs(described.kink)
                steps.append(Cut(layer, node, described.kink, tolerance * scale))
        dead = tuple(name for name in {*node.inputs, node.name} if graph.last_use.get(name, -1) <= place)
        steps.append(Apply(node, dead))
    return steps


def magnitudes(graph: Graph, region: Slice, n_points: int = 64) -> dict[str, Float[np.ndarray, " units"]]:
    """For each folding node, the size of the terms its input is summed from, per unit.

    Rounding errors of a unit are a small multiple of eps * sum |w| |x|, not of its own value, which may cancel to
    zero. The sums are taken over one affine stretch; at a fold the largest value seen at points of the window is used.
    """
    rng = np.random.default_rng(0)
    weights = rng.dirichlet(np.ones(len(region.window)), size=n_points)
    # Corners and inner points: after a fold the largest value need not lie at a corner.
    uv = np.concatenate([region.window, weights @ region.window])
    values = {graph.nodes[0].name: region.embed(uv)}
    bounds = {graph.nodes[0].name: values[graph.nodes[0].name].abs().amax(0, keepdim=True)}
    absolute = {key: value.abs() if value.is_floating_point() else value for key, value in graph.parameters.items()}
    sizes = {}
    for place, node in enumerate(graph.nodes[1:], start=1):
        values[node.name] = graph.step(node, values)
        if node.bound is not None:
            bounds[node.name] = node.bound(absolute, *(bounds[name] for name in node.inputs))
        else:
            terms = torch.cat([bounds[name].reshape(-1) for name in node.inputs]).numpy()
            sizes[node.name] = terms if node.windows is None else maxima.window_sizes(terms, node.windows)
            # Bounds start anew at a fold: carried on, they would grow with depth and call real crossings zero.
            bounds[node.name] = values[node.name].abs().amax(0, keepdim=True)
        for name in {*node.inputs, node.name}:
            if graph.last_use.get(name, -1) <= place:
                del values[name], bounds[name]
    return sizes


def run(
    graph: Graph, region: Slice, tolerance: float, max_regions: int, progress: Progress | None = None
) -> Iterator[Block]:
    """Finished blocks: every polygon is a region, the only value left is the output at the vertices."""
    steps = steps_of(graph, region, tolerance)
    waiting: list[Block | Pending] = [_window(graph, region)]
    n_waiting, n_done, area_done = 0, 0, 0.0
    while waiting:
        block = waiting.pop()
        if isinstance(block, Pending):
            n_waiting -= len(block)
            cut = steps[block.block.step]
            assert isinstance(cut, Cut)
            block = _materialise(block, cut)
        while block.step < len(steps):
            step = steps[block.step]
            if isinstance(step, Apply):
                block = _apply(graph, block, step)
                continue
            division = _split(block, step, max_regions - n_done - n_waiting)
            if division is None:
                block = replace(_encoded(block, step), step=block.step + 1, cutting=None)
                continue
            if n_done + n_waiting + len(division) > max_regions:
                raise RegionLimit(
                    f"more than {max_regions:,} regions in the window; choose a smaller window or raise max_regions"
                )
            parts = _parts(block, division)
            block = _materialise(parts[0], step)
            # Depth first, in order: memory holds one path down the network, and regions come out in a fixed order.
            waiting += parts[:0:-1]
            n_waiting += sum(map(len, parts[1:]))
        n_done += len(block.mesh)
        if progress is not None:
            area_done += polygons.areas_and_centroids(block.mesh.offsets, block.mesh.ring, block.mesh.uv)[0].sum()
            progress(min(1.0, area_done / region.area))
        yield block


def _window(graph: Graph, region: Slice) -> Block:
    n = len(region.window)
    corners = np.arange(n)
    mesh = Mesh(region.window, crossings.mix(corners), np.array([0, n]), corners, -1 - corners)
    return Block(mesh, {graph.nodes[0].name: region.embed(region.window)}, (), 0)


def _apply(graph: Graph, block: Block, step: Apply) -> Block:
    values = dict(block.values)
    values[step.node.name] = graph.step(step.node, values)
    for name in step.dead:
        del values[name]
    return replace(block, values=values, step=block.step + 1)


def rows_of(value: Tensor) -> Float[np.ndarray, "vertices units"]:
    """One contiguous row per vertex."""
    return value.reshape(len(value), -1).contiguous().numpy()


def _split(block: Block, step: Cut, limit: int) -> Splitting | None:
    """The block split along one layer, or None where nothing is cut."""
    if step.node.role == "max":
        return _split_maxima(block, step)
    mesh, values = block.mesh, _above_kink(block, step)
    above, below = crossings.sign_bits(values, step.tolerance)
    in_both = crossings.any_of(mesh.offsets, mesh.ring, above) & crossings.any_of(mesh.offsets, mesh.ring, below)
    polygon, units = crossings.set_bits(in_both)
    if len(units) == 0:
        return None
    cut_offsets = np.searchsorted(polygon, np.arange(len(mesh) + 1))
    at, ends = crossings.edges_of(mesh.offsets, mesh.ring, np.diff(cut_offsets) > 0, mesh.keys)
    edges = crossings.cross_edges(at, ends, above, below, values, step.tolerance)
    mark = step.layer * LABEL_UNITS
    cells, inner = splitting.split(mesh, edges, cut_offsets, units, values, step.tolerance, mark, limit)
    return _described(mesh, step.layer, edges, cells, inner)


def _described(
    mesh: Mesh, layer: int, edges: crossings.Edges, cells: splitting.Cells, inner: splitting.Inner
) -> Splitting:
    """Edge vertices and inner vertices in one list, with keys that do not depend on the block they were made in."""
    ends = np.repeat(edges.ends, np.diff(edges.ranges), axis=0)
    share = edges.share[:, None]
    # From how the vertex came to be, never from its coordinates: blocks may round those differently.
    keys = crossings.mix(*mesh.keys[ends].T, layer, edges.low_unit)
    # A sum does not depend on which corner of the polygon comes first.
    polygon_keys = np.add.reduceat(mesh.keys[mesh.ring], mesh.offsets[:-1])
    inner_keys = crossings.mix(polygon_keys[inner.polygon], layer, inner.unit, inner.other)
    vertex = len(mesh.uv) + np.arange(len(share) + len(inner.unit))
    # An inner vertex lies on two cuts, so two units are zero there.
    zero_at = np.concatenate([vertex, vertex[len(share) :]])
    width = inner.weight.shape[1]
    last = np.diff(mesh.offsets)[inner.polygon, None] - 1
    corners = mesh.ring[mesh.offsets[inner.polygon, None] + np.minimum(np.arange(width), last)]
    corner, weight = np.zeros((len(share), width), dtype=np.int64), np.zeros((len(share), width))
    corner[:, :2], weight[:, :2] = ends, np.hstack([1 - share, share])
    return Splitting(
        np.concatenate([corner, corners]),
        np.concatenate([weight, inner.weight]),
        np.concatenate([keys, inner_keys]),
        np.stack([zero_at, np.concatenate([edges.unit, inner.unit, inner.other])], axis=1),
        cells,
    )


def _split_maxima(block: Block, step: Cut) -> Splitting | None:
    assert step.node.windows is not None
    windows = np.arange(len(step.node.windows)) if block.cutting is None else block.cutting
    rows = np.concatenate([rows_of(block.values[name]) for name in step.node.inputs], axis=1)
    entries = maxima.entries_of(rows, step.node.windows[windows])
    mark = step.layer * LABEL_UNITS
    result = maxima.split(block.mesh, step.layer, mark, windows, entries, step.tolerance[windows])
    if result is None:
        return None
    division, cutting = result
    keys, nothing = np.array(division.keys, dtype=np.uint64), np.empty((0, 2), dtype=np.int64)
    return Splitting(*division.mixtures(), keys, nothing, division.cells(), cutting)


def _above_kink(block: Block, step: Cut) -> Float[np.ndarray, "vertices units"]:
    rows = rows_of(block.values[step.node.inputs[0]])
    return rows - step.kink if step.kink else rows


def _parts(block: Block, division: Splitting) -> list[Pending]:
    """The polygons of a splitting in as many runs as keep each block near its size."""
    row_bytes = 8 * sum(value[0].numel() for value in block.values.values())
    rows = max(_BLOCK_ROWS, _BLOCK_BYTES // row_bytes)
    n_vertices = len(block.mesh.uv) + len(division.keys)
    # Half as much again is let pass: splitting a block repeats the vertices along the seam.
    n_parts = 1 if n_vertices <= 1.5 * rows else min(-(-n_vertices // rows), len(division))
    bounds = np.searchsorted(division.cells.offsets, np.linspace(0, division.cells.offsets[-1], n_parts + 1))
    bounds[0], bounds[-1] = 0, len(division)
    return [Pending(block, division, a, b) for a, b in itertools.pairwise(np.unique(bounds).tolist())]


def _materialise(pending: Pending, step: Cut) -> Block:
    """The block of these polygons, with all its rows computed and the code of the cut appended."""
    block, division, cells = pending.block, pending.splitting, pending.splitting.cells
    n_old, first, stop = len(block.mesh.uv), pending.first, pending.stop
    offsets, ring, used = polygons.take(cells.offsets, cells.ring, first, stop)
    mixing = polygons.mixtures(n_old, division.corner, division.weight, used)
    values = {
        name: torch.from_numpy(mixing @ rows_of(value)).reshape(-1, *value.shape[1:])
        for name, value in block.values.items()
    }
    if step.node.role == "fold":
        number = np.full(n_old + len(division.keys), -1)
        number[used] = np.arange(len(used))
        zero = division.zero[number[division.zero[:, 0]] >= 0]
        # Set, not computed: an interpolated value off by one rounding would give the new vertex a side.
        rows_of(values[step.node.inputs[0]])[number[zero[:, 0]], zero[:, 1]] = step.kink
    keys = np.concatenate([block.mesh.keys, division.keys])[used]
    label = cells.label[cells.offsets[first] : cells.offsets[stop]]
    mesh = Mesh(mixing @ block.mesh.uv, keys, offsets, ring, label)
    codes = tuple(code[cells.parent[first:stop]] for code in block.codes)
    # A fold is cut once for all units; a max is cut again until no window cuts.
    onward = block.step if step.node.role == "max" else block.step + 1
    return _encoded(Block(mesh, values, codes, onward, division.cutting), step)


def _encoded(block: Block, step: Cut) -> Block:
    """The block with the bits of this layer appended to its codes: on where any vertex is strictly above."""
    if step.node.role == "max":
        return block
    # Any vertex strictly above will do: after the split no polygon has vertices strictly on both sides.
    above = crossings.sign_bits(_above_kink(block, step), step.tolerance)[0]
    code = crossings.any_of(block.mesh.offsets, block.mesh.ring, above)
    return replace(block, codes=(*block.codes, code))
