"""The exact decision boundary on a slice, its kinks, and the unit whose cut makes each kink.

Inside a region every output is affine, so the points where two classes tie and no other is larger form a segment.
Segments of neighbouring regions meet on the cut between them; where they turn, that cut's unit made the kink. The
units that make no kink do not shape the decision, which is what You et al. 2022 (Sec. 3.2) say and do not compute.

A network with one output decides by its sign: class 1 where it is positive, class 0 elsewhere.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int64

from splinecut.geometry.subdivision.polygons import next_place

if TYPE_CHECKING:
    from splinecut.geometry.partition import Partition


@dataclass(frozen=True)
class Boundary:
    """Segments where two classes tie and no other is larger.

    ends:    (u, v) of both ends
    classes: the two classes that tie, lower first
    region:  the region each segment lies in; one that runs along a cut belongs to the region of lower index
    place:   for each end, the place in the partition's indices after whose vertex the crossed edge lies; -1 - vertex if
             the end is a vertex; `INSIDE` where a third class takes over within the region
    """

    ends: Float[np.ndarray, "segments 2 2"]
    classes: Int64[np.ndarray, "segments 2"]
    region: Int64[np.ndarray, " segments"]
    place: Int64[np.ndarray, "segments 2"]

    def __len__(self) -> int:
        return len(self.ends)

    @property
    def lengths(self) -> Float[np.ndarray, " segments"]:
        """Length of each segment in (u, v)."""
        return np.linalg.norm(self.ends[:, 1] - self.ends[:, 0], axis=1)


@dataclass(frozen=True)
class Kinks:
    """Points where the decision boundary turns, and whose cut turns it.

    uv: where.  layer, unit: whose cut.  turn: by what angle, in radians.  segments: the two that meet there
    """

    uv: Float[np.ndarray, "kinks 2"]
    layer: Int64[np.ndarray, " kinks"]
    unit: Int64[np.ndarray, " kinks"]
    turn: Float[np.ndarray, " kinks"]
    segments: Int64[np.ndarray, "kinks 2"]

    def __len__(self) -> int:
        return len(self.uv)

    def per_unit(self) -> dict[tuple[int, int], int]:
        """How many kinks each (layer, unit) makes; units that make none are absent."""
        units, counts = np.unique(np.stack([self.layer, self.unit], axis=1), axis=0, return_counts=True)
        return {(int(layer), int(unit)): int(n) for (layer, unit), n in zip(units, counts, strict=True)}


INSIDE = np.iinfo(np.int64).min


def boundary(partition: Partition, tolerance: float = 1e-12) -> Boundary:
    """The exact segments of the decision boundary; `tolerance` is relative to the largest output.

    Of classes that are equal throughout a region the lower wins there, so such a region has boundary only on its rim.
    """
    values = partition.outputs
    if values.shape[1] == 1:
        values = np.concatenate([np.zeros_like(values), values], axis=1)
    margin = tolerance * float(np.abs(values).max(initial=0.0))
    pairs = _pairs(_contenders(partition, values, margin))
    pieces = [_segments(partition, values, i, j, regions, margin) for i, j, regions in pairs]
    return _once(pieces)


def kinks(partition: Partition, line: Boundary, least_turn: float = 1e-9) -> Kinks:
    """Where segments of the same two classes meet on a cut and turn by more than `least_turn` radians.

    A corner where three classes meet is made by the classes, not by a unit, and a point where the boundary crosses
    itself has no turn of its own: neither is a kink. Where a boundary turns exactly at a vertex of the partition, the
    lowest of the cuts that meet there is named.
    """
    first, second = _meetings(partition, line)
    segments = np.stack([first // 2, second // 2], axis=1)
    turn = _turns(line, first, second)
    layer, unit = _makers(partition, line, first)
    is_kink = (turn > least_turn) & (layer >= 0)
    uv = line.ends[first // 2, first % 2]
    return Kinks(uv[is_kink], layer[is_kink], unit[is_kink], turn[is_kink], segments[is_kink])


def _once(pieces: list[_Pieces]) -> Boundary:
    """All segments; of those along an edge, one per edge, and only where the classes change across it."""
    nothing = _Pieces(np.zeros((0, 2, 2)), *(np.zeros(shape, np.int64) for shape in ((0, 2), 0, (0, 2), 0)))
    ends, classes, region, place, side = (np.concatenate(column) for column in zip(nothing, *pieces, strict=True))
    edge = np.flatnonzero(side)
    keys = np.concatenate([np.sort(place[edge], axis=1), classes[edge]], axis=1)
    _, first, inverse = np.unique(keys, axis=0, return_index=True, return_inverse=True)
    n_above = np.bincount(inverse.ravel(), side[edge] > 0)
    n_below = np.bincount(inverse.ravel(), side[edge] < 0)
    # Of equal classes the lower wins: a lone region below its edge has a region of ties for a neighbour.
    is_change = (n_below == 1) & (n_above <= 1)
    kept = np.concatenate([np.flatnonzero(side == 0), edge[first[is_change]]])
    kept = kept[np.lexsort((classes[kept, 1], classes[kept, 0], region[kept]))]
    return Boundary(ends[kept], classes[kept], region[kept], place[kept])


def _meetings(partition: Partition, line: Boundary) -> tuple[np.ndarray, np.ndarray]:
    """Pairs of segment ends (2 * segment + end) of the same classes that meet, just these two, on an edge or vertex."""
    place = line.place.ravel()
    ends = np.flatnonzero(place != INSIDE)
    at = place[ends]
    following = next_place(partition.offsets)
    edge = np.stack([partition.indices[at.clip(min=0)], partition.indices[following[at.clip(min=0)]]], axis=1)
    vertex = np.repeat((-1 - at)[:, None], 2, axis=1)
    where = np.where((at >= 0)[:, None], np.sort(edge, axis=1), vertex)
    keys = np.concatenate([where, line.classes[ends // 2]], axis=1)
    order = np.lexsort(keys.T[::-1])
    _, start, count = np.unique(keys[order], axis=0, return_index=True, return_counts=True)
    # Exactly two: where more meet, the boundary forks or crosses itself and no one turn is defined.
    pairs = start[count == 2]
    return ends[order[pairs]], ends[order[pairs + 1]]


def _turns(line: Boundary, first: np.ndarray, second: np.ndarray) -> np.ndarray:
    """The angle by which the boundary turns from one segment into the next; 0 is straight on."""
    incoming = line.ends[first // 2, first % 2] - line.ends[first // 2, 1 - first % 2]
    outgoing = line.ends[second // 2, 1 - second % 2] - line.ends[second // 2, second % 2]
    cross = incoming[:, 0] * outgoing[:, 1] - incoming[:, 1] * outgoing[:, 0]
    return np.abs(np.arctan2(cross, (incoming * outgoing).sum(axis=1)))


def _makers(partition: Partition, line: Boundary, ends: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(layer, unit) of the edge each end lies on; at a vertex, of the lowest cut that meets there."""
    place = line.place.ravel()[ends].copy()
    for i in np.flatnonzero(place < 0):
        touching = np.flatnonzero((partition.indices == -1 - place[i]) & (partition.edge_layer >= 0))
        if len(touching):
            lowest = np.lexsort((partition.edge_unit[touching], partition.edge_layer[touching]))[0]
            place[i] = touching[lowest]
    is_edge = place >= 0
    at = place.clip(min=0)
    return np.where(is_edge, partition.edge_layer[at], -1), np.where(is_edge, partition.edge_unit[at], -1)


class _Pieces(NamedTuple):
    """Segments of one pair of classes; `side` is the sign of f_i - f_j beside one that runs along an edge, else 0."""

    ends: Float[np.ndarray, "segments 2 2"]
    classes: Int64[np.ndarray, "segments 2"]
    region: Int64[np.ndarray, " segments"]
    place: Int64[np.ndarray, "segments 2"]
    side: Int64[np.ndarray, " segments"]


def _contenders(partition: Partition, values: np.ndarray, margin: float) -> Bool[np.ndarray, "regions classes"]:
    """The classes that may be largest somewhere in each region.

    The largest output is nowhere below max_k min_corners f_k, so a class that stays below that never wins.
    """
    # At corners only: affine functions take their extremes there.
    corners = values[partition.indices]
    lowest = np.minimum.reduceat(corners, partition.offsets[:-1])
    highest = np.maximum.reduceat(corners, partition.offsets[:-1])
    return highest >= lowest.max(axis=1, keepdims=True) - margin


def _pairs(contenders: Bool[np.ndarray, "regions classes"]) -> Iterator[tuple[int, int, Int64[np.ndarray, " regions"]]]:
    """Every two classes that contend in some region, with those regions."""
    open_regions = np.flatnonzero(contenders.sum(axis=1) > 1)
    disputed = contenders[open_regions]
    together = disputed.T.astype(np.int64) @ disputed
    for i, j in np.argwhere(np.triu(together, k=1)).tolist():
        yield i, j, open_regions[disputed[:, i] & disputed[:, j]]


def _segments(
    partition: Partition, values: np.ndarray, i: int, j: int, regions: Int64[np.ndarray, " regions"], margin: float
) -> _Pieces:
    """Where f_i = f_j runs through the given regions (or along an edge of theirs) and no third class is larger."""
    owner, place = _places(partition, regions)
    onward = next_place(partition.offsets)[place]
    here = values[partition.indices[place], i] - values[partition.indices[place], j]
    there = values[partition.indices[onward], i] - values[partition.indices[onward], j]
    # A tie at a corner counts once, at the corner, not on the two edges that end there.
    is_zero = np.abs(here) <= margin
    is_hit = is_zero | (np.minimum(here, there) < -margin) & (np.maximum(here, there) > margin)
    above = np.bincount(owner[here > margin], minlength=len(regions)) > 0
    below = np.bincount(owner[here < -margin], minlength=len(regions)) > 0
    # A convex region is entered and left once; more hits mean that it ties everywhere.
    is_crossed = (np.bincount(owner[is_hit], minlength=len(regions)) == 2) & (above | below)
    hits = np.flatnonzero(is_hit & is_crossed[owner]).reshape(-1, 2)
    share = np.where(is_zero[hits], 0.0, here[hits] / np.where(is_zero[hits], 1.0, here[hits] - there[hits]))
    side = (above.astype(np.int64) - below)[owner[hits[:, 0]]]
    at, along = place[hits], onward[hits]
    is_forward, is_backward = along[:, 0] == at[:, 1], along[:, 1] == at[:, 0]
    # Along the window's rim nothing lies on the other side, so no class changes.
    is_window_side = partition.edge_layer[np.where(is_forward, at[:, 0], at[:, 1])] < 0
    is_segment = (side == 0) | ((is_forward | is_backward) & ~is_window_side)
    at, along, share, side = (each[is_segment] for each in (at, along, share, side))
    low, high = _where_top(_between(values[partition.indices], at, along, share), i, margin)
    uv = _between(partition.vertices[partition.indices], at, along, share)
    ends = uv[:, :1] + np.stack([low, high], axis=1)[..., None] * (uv[:, 1:] - uv[:, :1])
    where = np.where(share > 0, at, -1 - partition.indices[at])
    # Ends that a third class cut short lie inside the region and meet no cut.
    where[low > 0, 0], where[high < 1, 1] = INSIDE, INSIDE
    region = regions[owner[hits[is_segment, 0]]]
    pieces = _Pieces(ends, np.tile([i, j], (len(ends), 1)), region, where, side)
    return _Pieces(*(each[high > low] for each in pieces))


def _places(partition: Partition, regions: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(which of the regions, place) of every corner of theirs, in order."""
    sizes = np.diff(partition.offsets)[regions]
    owner = np.repeat(np.arange(len(regions)), sizes)
    rank = np.arange(len(owner)) - np.repeat(np.cumsum(sizes) - sizes, sizes)
    return owner, partition.offsets[regions][owner] + rank


def _between(rows: np.ndarray, at: np.ndarray, along: np.ndarray, share: np.ndarray) -> np.ndarray:
    return rows[at] + share[..., None] * (rows[along] - rows[at])


def _where_top(at_ends: Float[np.ndarray, "n 2 classes"], i: int, margin: float) -> tuple[np.ndarray, np.ndarray]:
    """The part low..high of the way from one end to the other on which no third class exceeds class i."""
    lead = at_ends[:, :, i : i + 1] - at_ends
    start, end = lead[:, 0], lead[:, 1]
    starts_behind, ends_behind = start < -margin, end < -margin
    # Divided only where the lead changes sign; elsewhere the quotient is not used.
    meets = start / np.where(starts_behind != ends_behind, start - end, 1.0)
    low = np.where(starts_behind, meets, 0.0).max(axis=1, initial=0.0)
    high = np.where(ends_behind, meets, 1.0).min(axis=1, initial=1.0)
    return np.where((starts_behind & ends_behind).any(axis=1), 1.0, low), high
