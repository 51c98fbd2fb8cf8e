"""Splits polygons where the largest entry of a max-pooling window changes.

On a polygon a window is the upper envelope of a few affine functions; the cells where one of them is largest are
convex, but meet in forks, so lines across the whole polygon will not do. Each cell is clipped out of the polygon.
A polygon is split along one window at a time, lowest first: an edge is shared by two polygons, and both then meet
the windows that change along it in the same order.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
from jaxtyping import Bool, Float, Int64

from splinecut.geometry.subdivision.crossings import mix, pack_words
from splinecut.geometry.subdivision.splitting import Cells

if TYPE_CHECKING:
    from splinecut.geometry.subdivision.run import Mesh

Entries = Float[np.ndarray, "points entries"]  # of one window; padding is -inf


def window_sizes(
    terms: Float[np.ndarray, " units"], windows: Int64[np.ndarray, "windows size"]
) -> Float[np.ndarray, " windows"]:
    """The largest magnitude among the entries of each window."""
    return np.append(terms, 0.0)[windows].max(axis=1)


def entries_of(
    rows: Float[np.ndarray, "vertices units"], windows: Int64[np.ndarray, "windows size"]
) -> Float[np.ndarray, "vertices windows size"]:
    """The entries of every window at every vertex."""
    padded = np.concatenate([rows, np.full((len(rows), 1), -np.inf)], axis=1)
    return np.take(padded, windows, axis=1)


def uncut(
    mesh: Mesh, entries: Float[np.ndarray, "vertices windows size"], tolerance: Float[np.ndarray, " windows"]
) -> Bool[np.ndarray, "polygons windows"]:
    """Where some entry of the window is largest at all vertices of the polygon, and so everywhere in it."""
    # Entries tied within tolerance are all largest: otherwise rounding would cut along a line of exact ties.
    is_top = entries >= entries.max(axis=2, keepdims=True) - tolerance[:, None]
    words = pack_words(is_top.reshape(len(entries), -1))
    # Differences of entries are affine: what is largest at all corners is largest inside.
    common = np.bitwise_and.reduceat(words[mesh.ring], mesh.offsets[:-1], axis=0)
    bits = np.unpackbits(common.view(np.uint8), axis=1, count=is_top[0].size)
    return np.any(bits.reshape(len(mesh), *is_top.shape[1:]), axis=2)


@dataclass
class Split:
    """New vertices as mixtures of old ones, and new polygons, as they are collected."""

    mesh: Mesh
    layer: int
    mark: int
    corners: list[np.ndarray] = field(default_factory=list)
    weights: list[np.ndarray] = field(default_factory=list)
    keys: list[int] = field(default_factory=list)
    on_edge: dict[tuple[int, int], list[int]] = field(default_factory=dict)
    rings: list[np.ndarray] = field(default_factory=list)
    labels: list[np.ndarray] = field(default_factory=list)
    parent: list[int] = field(default_factory=list)

    def new_vertex(self, corner: np.ndarray, weight: np.ndarray, *name: int) -> int:
        """Adds a vertex; `name` makes its key, the same in every block."""
        self.corners.append(corner)
        self.weights.append(weight)
        self.keys.append(int(mix(*(np.array([part], dtype=np.uint64) for part in name))[0]))
        return len(self.mesh.uv) + len(self.keys) - 1

    def add(self, ring: np.ndarray, label: np.ndarray, parent: int) -> None:
        self.rings.append(ring)
        self.labels.append(label)
        self.parent.append(parent)

    def cells(self) -> Cells:
        offsets = np.concatenate([[0], np.cumsum([len(ring) for ring in self.rings])])
        return Cells(offsets, np.concatenate(self.rings), np.concatenate(self.labels), np.array(self.parent))

    def mixtures(self) -> tuple[Int64[np.ndarray, "new k"], Float[np.ndarray, "new k"]]:
        """Corners and weights of the new vertices, padded to one width with weight zero."""
        width = max(map(len, self.corners), default=1)
        corner, weight = np.zeros((len(self.keys), width), dtype=np.int64), np.zeros((len(self.keys), width))
        for row, (corners, weights) in enumerate(zip(self.corners, self.weights, strict=True)):
            corner[row, : len(corners)], weight[row, : len(weights)] = corners, weights
        return corner, weight


def split(
    mesh: Mesh,
    layer: int,
    mark: int,
    windows: Int64[np.ndarray, " windows"],
    entries: Float[np.ndarray, "vertices windows size"],
    tolerance: Float[np.ndarray, " windows"],
) -> tuple[Split, Int64[np.ndarray, " cutting"]] | None:
    """Every polygon split along the lowest window that cuts it, and the windows that cut any; None when none does.

    windows: numbers of the windows whose entries are given, ascending. Edges made here get the label mark + number.
    To be repeated until nothing is cut; a window that cuts no polygon now cuts none of its parts later.
    """
    is_uncut = uncut(mesh, entries, tolerance)
    if is_uncut.all():
        return None
    # The lowest window on both sides of an edge: neighbours must insert the same points in the same order.
    first = np.where(is_uncut.all(axis=1), -1, is_uncut.argmin(axis=1))
    result = Split(mesh, layer, mark)
    for polygon in np.flatnonzero(first >= 0).tolist():
        which = first[polygon]
        for a, b in _sides(mesh, polygon):
            _cross_edge(result, a, b, int(windows[which]), entries[:, which], tolerance[which])
    # A neighbour that is not cut still gets the new points of the common edge, or a seam opens there.
    touched = np.isin(mesh.ring, [end for edge in result.on_edge for end in edge])
    has_new_edges = np.logical_or.reduceat(touched, mesh.offsets[:-1])
    for polygon, which in enumerate(first.tolist()):
        if which < 0 and not has_new_edges[polygon]:
            places = slice(mesh.offsets[polygon], mesh.offsets[polygon + 1])
            result.add(mesh.ring[places], mesh.label[places], polygon)
            continue
        boundary = _boundary(result, polygon)
        if which < 0:
            result.add(boundary.vertex, boundary.label, polygon)
        else:
            _split_polygon(result, polygon, int(windows[which]), boundary, entries[:, which], tolerance[which])
    return result, windows[~is_uncut.all(axis=0)]


def _sides(mesh: Mesh, polygon: int) -> list[tuple[int, int]]:
    ring = mesh.ring[mesh.offsets[polygon] : mesh.offsets[polygon + 1]]
    return [(min(a, b), max(a, b)) for a, b in zip(ring.tolist(), np.roll(ring, -1).tolist(), strict=True)]


def _cross_edge(result: Split, a: int, b: int, window: int, entries: Entries, tolerance: float) -> None:
    """Vertices where the largest entry changes strictly between a and b, in order from a; once per edge."""
    if (a, b) in result.on_edge:
        return
    keys = result.mesh.keys
    # The same direction in every block, as in `crossings.edges_of`.
    start, stop = (a, b) if keys[a] < keys[b] else (b, a)
    vertices = []
    for share, before, after in changes(entries[start], entries[stop], tolerance):
        name = (keys[start], keys[stop], result.layer, window, before, after)
        vertices.append(result.new_vertex(np.array([start, stop]), np.array([1 - share, share]), *name))
    if vertices:
        result.on_edge[a, b] = vertices if start == a else vertices[::-1]


def changes(at_start: np.ndarray, at_stop: np.ndarray, tolerance: float) -> list[tuple[float, int, int]]:
    """Where the largest of several affine functions on [0, 1] changes: (place, entry before, entry after)."""
    finite = np.flatnonzero(np.isfinite(at_start))
    slope = at_stop[finite] - at_start[finite]
    is_top = at_start[finite] >= at_start[finite].max() - tolerance
    is_last = at_stop[finite] >= at_stop[finite].max() - tolerance
    now = int(np.flatnonzero(is_top)[slope[is_top].argmax()])
    takeovers = []
    while not is_last[now]:
        steeper = np.flatnonzero(slope > slope[now])
        meet = (at_start[finite[now]] - at_start[finite[steeper]]) / (slope[steeper] - slope[now])
        # of those met first, the steepest: at a point where several meet it is the one that leads on
        nearest = steeper[meet <= meet.min() + tolerance / (slope[steeper] - slope[now])]
        after = int(nearest[slope[nearest].argmax()])
        takeovers.append((float(np.clip(meet.min(), 0, 1)), int(finite[now]), int(finite[after])))
        now = after
    return takeovers


@dataclass(frozen=True)
class _Boundary:
    vertex: Int64[np.ndarray, " points"]
    label: Int64[np.ndarray, " points"]
    weight: Float[np.ndarray, "points corners"]  # each point as a mixture of the polygon's corners


def _boundary(result: Split, polygon: int) -> _Boundary:
    """The boundary of a polygon with the vertices its edges received."""
    mesh = result.mesh
    places = slice(mesh.offsets[polygon], mesh.offsets[polygon + 1])
    ring, label = mesh.ring[places], mesh.label[places]
    corner_of = {vertex: corner for corner, vertex in enumerate(ring.tolist())}
    vertices, labels, weights = [], [], []
    for corner, (a, b) in enumerate(_sides(mesh, polygon)):
        along = result.on_edge.get((a, b), [])
        for vertex in [int(ring[corner]), *(along if ring[corner] == a else along[::-1])]:
            weight = np.zeros(len(ring))
            if vertex in corner_of:
                weight[corner_of[vertex]] = 1.0
            else:
                new = vertex - len(mesh.uv)
                weight[[corner_of[end] for end in result.corners[new].tolist()]] = result.weights[new]
            vertices.append(vertex)
            labels.append(label[corner])
            weights.append(weight)
    return _Boundary(np.array(vertices), np.array(labels), np.array(weights))


def _split_polygon(
    result: Split, polygon: int, window: int, boundary: _Boundary, entries: Entries, tolerance: float
) -> None:
    """Adds the cells of one polygon on which one entry of the window is largest."""
    mesh = result.mesh
    ring = mesh.ring[mesh.offsets[polygon] : mesh.offsets[polygon + 1]]
    relevant = undominated(entries[ring], tolerance)
    at_corners = entries[ring][:, relevant]
    name = int(mesh.keys[ring].sum())
    forks: dict[tuple[int, ...], list[tuple[np.ndarray, int]]] = {}
    for winner in range(len(relevant)):
        weight, label = clip(winner, at_corners, boundary.weight, boundary.label, result.mark + window, tolerance)
        if len(weight) < 3:
            continue
        vertices = []
        for mixture in weight:
            # Points of the boundary pass through clipping unchanged, so they are recognised by equality.
            same = np.flatnonzero((boundary.weight == mixture).all(axis=1))
            if len(same):
                vertices.append(int(boundary.vertex[same[0]]))
            else:
                values = mixture @ at_corners
                tied = tuple(relevant[values >= values.max() - tolerance].tolist())
                vertices.append(_fork(result, forks, tied, mixture, ring, boundary, (name, result.layer, window)))
        keep = np.array(vertices) != np.roll(vertices, -1)
        if keep.sum() >= 3:
            result.add(np.array(vertices)[keep], label[keep], polygon)


def _fork(
    result: Split,
    forks: dict[tuple[int, ...], list[tuple[np.ndarray, int]]],
    tied: tuple[int, ...],
    mixture: np.ndarray,
    ring: np.ndarray,
    boundary: _Boundary,
    name: tuple[int, int, int],
) -> int:
    """The vertex where the tied entries meet; every cell around it asks, and all get the same one."""
    uv = result.mesh.uv[ring]
    spot, size = mixture @ uv, np.ptp(uv, axis=0).max()
    for place, vertex in forks.get(tied, []):
        # Each cell clips the fork from other sides and rounds it differently.
        if np.abs(place - spot).max() <= 1e-6 * size:
            return vertex
    if len(tied) < 3:  # on the boundary but for rounding
        apart = np.abs(boundary.weight @ uv - spot).sum(axis=1)
        return int(boundary.vertex[apart.argmin()])
    vertex = result.new_vertex(ring, mixture, *name, *tied, len(forks.get(tied, [])))
    forks.setdefault(tied, []).append((spot, vertex))
    return vertex


def undominated(entries: Entries, tolerance: float) -> Int64[np.ndarray, " relevant"]:
    """Entries that may be the largest somewhere: no other is at least as large at all points (ties: the lower)."""
    above = np.all(entries[:, :, None] >= entries[:, None] - tolerance, axis=0)  # i >= j everywhere
    equal = above & above.T
    lower = np.arange(len(above))[:, None] < np.arange(len(above))
    dominated = (above & (~equal | lower)).any(axis=0) | ~np.isfinite(entries).all(axis=0)
    return np.flatnonzero(~dominated)


def clip(
    winner: int, at_corners: Entries, weight: np.ndarray, label: np.ndarray, new_label: int, tolerance: float
) -> tuple[Float[np.ndarray, "points corners"], Int64[np.ndarray, " points"]]:
    """The part of a polygon where one entry is at least as large as each other: its points and edge labels."""
    for other in range(at_corners.shape[1]):
        if other == winner:
            continue
        lead = weight @ (at_corners[:, winner] - at_corners[:, other])
        sign = np.where(lead > tolerance, 1, np.where(lead < -tolerance, -1, 0))
        if (sign <= 0).all():
            return weight[:0], label[:0]
        if (sign < 0).any():
            weight, label = _cut_off(weight, label, lead, sign, new_label)
    return weight, label


def _cut_off(
    weight: np.ndarray, label: np.ndarray, lead: np.ndarray, sign: np.ndarray, new_label: int
) -> tuple[np.ndarray, np.ndarray]:
    """Removes the part of a convex polygon where the sign is negative; the new edge is labelled `new_label`."""
    points, labels = [], []
    for k in range(len(sign)):
        onward = (k + 1) % len(sign)
        if sign[k] >= 0:
            points.append(weight[k])
            labels.append(new_label if sign[k] == 0 and sign[onward] < 0 else label[k])
        if sign[k] * sign[onward] < 0:
            t = lead[k] / (lead[k] - lead[onward])
            points.append((1 - t) * weight[k] + t * weight[onward])
            labels.append(new_label if sign[k] > 0 else label[k])
    return np.array(points), np.array(labels)
