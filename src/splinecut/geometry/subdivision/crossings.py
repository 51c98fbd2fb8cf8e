"""Where units change sign: three-valued signs at vertices, the units that cut each polygon, the points on its edges.

Signs are decided once per vertex and unit, and crossings once per edge, so that polygons sharing a vertex or an edge
always agree: what follows is combinatorial.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int64, UInt64

from splinecut.geometry.subdivision.polygons import next_place


def sign_bits(
    values: Float[np.ndarray, "vertices units"], tolerance: Float[np.ndarray, " units"]
) -> tuple[Int64[np.ndarray, "vertices words"], Int64[np.ndarray, "vertices words"]]:
    """Bit tables of the units strictly above and strictly below zero at each vertex; in neither table means zero."""
    # Three-valued: a cut through a vertex leaves the vertex on neither side, so it splits no edge that ends there.
    return pack_words(values > tolerance), pack_words(values < -tolerance)


def pack_words(table: np.ndarray) -> Int64[np.ndarray, "rows words"]:
    """A table of booleans, 64 to a word, in the order of np.packbits: the bytes of a row are its code."""
    packed = np.packbits(table, axis=1)
    n_words = -(-table.shape[1] // 64)
    if packed.shape[1] != 8 * n_words:
        packed = np.pad(packed, ((0, 0), (0, 8 * n_words - packed.shape[1])))
    return np.ascontiguousarray(packed).view(np.int64)


def set_bits(words: Int64[np.ndarray, "rows words"]) -> tuple[Int64[np.ndarray, " set"], Int64[np.ndarray, " set"]]:
    """(row, bit) of every bit that is set, by row, then bit."""
    row, word = np.nonzero(words)
    which, bit = np.nonzero(np.unpackbits(words[row, word, None].view(np.uint8), axis=1))
    return row[which], 64 * word[which] + bit


def any_of(
    offsets: Int64[np.ndarray, " polygons_and_one"],
    ring: Int64[np.ndarray, " places"],
    bits: Int64[np.ndarray, "vertices words"],
) -> Int64[np.ndarray, "polygons words"]:
    """Per polygon, the union of the bit rows of its vertices."""
    return np.bitwise_or.reduceat(bits[ring], offsets[:-1], axis=0)


class Edges(NamedTuple):
    """The distinct edges of some polygons, with the new vertices on them.

    at: (places,) edge from each ring place to the next, -1 for polygons left out.
    ends: (edges, 2) vertices; an edge is walked from the end with the lower key, whichever polygon asks.
    ranges: (edges + 1,) range of new vertices on each edge, ordered along the walk.
    share, unit, low_unit: (new,) where on the walk, whose zero it is, and the lowest unit that is zero there.
    """

    at: Int64[np.ndarray, " places"]
    ends: Int64[np.ndarray, "edges 2"]
    ranges: Int64[np.ndarray, " edges_and_one"]
    share: Float[np.ndarray, " new"]
    unit: Int64[np.ndarray, " new"]
    low_unit: Int64[np.ndarray, " new"]


def edges_of(
    offsets: Int64[np.ndarray, " polygons_and_one"],
    ring: Int64[np.ndarray, " places"],
    is_cut: np.ndarray,
    keys: UInt64[np.ndarray, " vertices"],
) -> tuple[Int64[np.ndarray, " places"], Int64[np.ndarray, "edges 2"]]:
    """`at` and `ends` of the edges of the polygons that are cut."""
    places = np.flatnonzero(np.repeat(is_cut, np.diff(offsets)))
    here, onward = ring[places], ring[next_place(offsets)[places]]
    # By key, not by number: the edge is walked the same way in every block, so both blocks round its points alike.
    turned = keys[here] > keys[onward]
    names, edge = np.unique(np.where(turned, onward << 32 | here, here << 32 | onward), return_inverse=True)
    at = np.full(len(ring), -1)
    at[places] = edge
    return at, np.stack([names >> 32, names & 0xFFFFFFFF], axis=1)


def cross_edges(
    at: Int64[np.ndarray, " places"],
    ends: Int64[np.ndarray, "edges 2"],
    above: Int64[np.ndarray, "vertices words"],
    below: Int64[np.ndarray, "vertices words"],
    values: Float[np.ndarray, "vertices units"],
    tolerance: Float[np.ndarray, " units"],
) -> Edges:
    """New vertices where units change sign strictly inside an edge: one for all units that do so at the same point.

    A unit joins the vertex of an earlier one on the edge if it is zero there, up to its tolerance.
    """
    a, b = ends.T
    # Strictly on both sides only: a unit that is zero at an end already has its vertex there.
    edge, unit = set_bits((above[a] & below[b]) | (below[a] & above[b]))
    at_a, at_b = values[a[edge], unit], values[b[edge], unit]
    share = at_a / (at_a - at_b)
    # Ties by unit: which of several units leads a vertex must not depend on the polygon that asks.
    order = np.lexsort((unit, share, edge))
    edge, unit, share = edge[order], unit[order], share[order]
    # How far along the edge the unit stays within its tolerance: two vertices nearer than that would be one point.
    reach = (tolerance[unit] / np.abs(at_a - at_b)[order]).clip(max=1.0)
    first = np.flatnonzero(_leads(edge, share, reach))
    # The lowest unit names the vertex: it is the same whichever of the units was found first.
    low_unit = np.minimum.reduceat(unit, first) if len(unit) else unit
    ranges = np.searchsorted(edge[first], np.arange(len(ends) + 1))
    return Edges(at, ends, ranges, share[first], unit[first], low_unit)


def _leads(edge: np.ndarray, share: np.ndarray, reach: np.ndarray) -> Bool[np.ndarray, " crossings"]:
    """Which crossings get a vertex of their own; the others lie within reach of the last one before that does."""
    leads = np.ones(len(edge), dtype=bool)
    leads[1:] = (np.diff(edge) != 0) | (np.diff(share) > reach[1:])
    # Compared with the leader, not with the crossing before: chains of near ones would merge points far apart.
    for k in np.flatnonzero(~leads).tolist():
        leader = k - 1
        while not leads[leader]:
            leader -= 1
        leads[k] = share[k] - share[leader] > reach[k]
    return leads


def mix(*parts: np.ndarray | int) -> UInt64[np.ndarray, " n"]:
    """A 64-bit key made of several: equal parts give equal keys, others collide with chance 2^-64 (splitmix64)."""
    mixed = np.zeros(1, dtype=np.uint64)
    with np.errstate(over="ignore"):
        for part in parts:
            mixed = (mixed ^ np.asarray(part).astype(np.uint64)) + np.uint64(0x9E3779B97F4A7C15)
            mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
            mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
            mixed = mixed ^ (mixed >> np.uint64(31))
    return mixed
