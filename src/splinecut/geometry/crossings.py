"""Where units change sign: three-valued signs at vertices, the units that cut each polygon, the points on its edges.

Signs are decided once per vertex and unit, and crossings once per edge, so that polygons sharing a vertex or an edge
always agree: what follows is combinatorial.
"""

from __future__ import annotations

import numpy as np
from jaxtyping import Float, Int64, UInt64
from numba import njit

_DE_BRUIJN = np.int64(0x03F79D71B4CB0A89)
_PLACE = np.zeros(64, dtype=np.int64)
for _bit in range(64):
    _PLACE[((int(_DE_BRUIJN) << _bit) & (2**64 - 1)) >> 58] = _bit


def sign_bits(
    values: Float[np.ndarray, "vertices units"], tolerance: Float[np.ndarray, " units"]
) -> tuple[Int64[np.ndarray, "vertices words"], Int64[np.ndarray, "vertices words"]]:
    """Bit tables of the units strictly above and strictly below zero at each vertex; in neither table means zero.

    Units lie in the order of np.packbits: unit u is bit (u % 64) ^ 7 of word u // 64, so the bytes of a row are a code.
    """
    return _words(values > tolerance), _words(values < -tolerance)


def _words(table: np.ndarray) -> Int64[np.ndarray, "rows words"]:
    packed = np.packbits(table, axis=1)
    n_words = -(-table.shape[1] // 64)
    if packed.shape[1] != 8 * n_words:
        packed = np.pad(packed, ((0, 0), (0, 8 * n_words - packed.shape[1])))
    return packed.view(np.int64)


@njit(cache=True)
def unit_of(word: int, bits: int) -> int:
    """The unit of the lowest set bit."""
    lowest = bits & -bits
    return word * 64 + (_PLACE[np.uint64(lowest * _DE_BRUIJN) >> np.uint64(58)] ^ 7)


@njit(cache=True)
def any_of(offsets, ring, bits):  # type: ignore[no-untyped-def]
    """Per polygon, the union of the bit rows of its vertices: (polygons, words)."""
    n_words = bits.shape[1]
    union = np.zeros((len(offsets) - 1, n_words), dtype=np.int64)
    for polygon in range(len(offsets) - 1):
        for place in range(offsets[polygon], offsets[polygon + 1]):
            for word in range(n_words):
                union[polygon, word] |= bits[ring[place], word]
    return union


@njit(cache=True)
def cuts_of(above, below):  # type: ignore[no-untyped-def]
    """The units that cut each polygon, as rows of a ragged table: (offsets, units). Above somewhere, below elsewhere."""
    n_polygons, n_words = above.shape
    offsets = np.zeros(n_polygons + 1, dtype=np.int64)
    units = np.empty(1024, dtype=np.int64)
    count = 0
    for polygon in range(n_polygons):
        for word in range(n_words):
            bits = above[polygon, word] & below[polygon, word]
            while bits != 0:
                if count == len(units):
                    units = grown(units)
                units[count] = unit_of(word, bits)
                count += 1
                bits &= bits - 1
        offsets[polygon + 1] = count
    return offsets, units[:count]


@njit(cache=True)
def grown(array):  # type: ignore[no-untyped-def]
    """A copy with room for twice as many entries."""
    larger = np.empty(2 * len(array), dtype=array.dtype)
    larger[: len(array)] = array
    return larger


@njit(cache=True)
def slot_of(table, key):  # type: ignore[no-untyped-def]
    """Where a non-negative key lies, or would lie, in an open-addressing table of size 2^k; -1 marks a free slot."""
    mask = len(table) - 1
    slot = (key * np.int64(-7046029254386353131)) >> np.int64(20) & mask
    while table[slot] != key and table[slot] != -1:
        slot = (slot + 1) & mask
    return slot


@njit(cache=True)
def edges_of(offsets, ring, cut_offsets):  # type: ignore[no-untyped-def]
    """The distinct edges of the polygons that are cut: edge of each ring place (-1 elsewhere), and both ends of each."""
    edge_at = np.full(len(ring), -1, dtype=np.int64)
    n_places = 0
    for polygon in range(len(offsets) - 1):
        if cut_offsets[polygon + 1] > cut_offsets[polygon]:
            n_places += offsets[polygon + 1] - offsets[polygon]
    size = 16
    while size < 2 * n_places:
        size *= 2
    table = np.full(size, -1, dtype=np.int64)
    index = np.empty(size, dtype=np.int64)
    ends = np.empty((n_places, 2), dtype=np.int64)
    count = 0
    for polygon in range(len(offsets) - 1):
        if cut_offsets[polygon + 1] == cut_offsets[polygon]:
            continue
        first, stop = offsets[polygon], offsets[polygon + 1]
        for place in range(first, stop):
            a, b = ring[place], ring[place + 1 if place + 1 < stop else first]
            key = (min(a, b) << 32) | max(a, b)
            slot = slot_of(table, key)
            if table[slot] == -1:
                table[slot] = key
                index[slot] = count
                ends[count, 0], ends[count, 1] = a, b
                count += 1
            edge_at[place] = index[slot]
    return edge_at, ends[:count]


@njit(cache=True)
def _sort_by(position, unit, count):  # type: ignore[no-untyped-def]
    """Sorts the first `count` pairs by position, then unit (Shell's sort: short lists mostly, long ones sometimes)."""
    gap = 1
    while gap < count // 3:
        gap = 3 * gap + 1
    while gap > 0:
        for k in range(gap, count):
            t, u, j = position[k], unit[k], k
            while j >= gap and (position[j - gap] > t or (position[j - gap] == t and unit[j - gap] > u)):
                position[j], unit[j] = position[j - gap], unit[j - gap]
                j -= gap
            position[j], unit[j] = t, u
        gap //= 3


@njit(cache=True)
def cross_edges(ends, above, below, values, tolerance, keys):  # type: ignore[no-untyped-def]
    """New vertices where units change sign strictly inside an edge: one for all units that do so at the same point.

    A unit joins the vertex of an earlier one on the edge if it is zero there, up to its tolerance. Every edge is
    walked from the end with the lower key, whichever polygon asks. Gives for each edge its range of new vertices
    (ordered along the walk, `ends` turned accordingly), and for each vertex its share t of the walk, the unit whose
    zero it is, and the lowest unit that joined it.
    """
    ranges = np.zeros(len(ends) + 1, dtype=np.int64)
    share = np.empty(1024, dtype=np.float64)
    zero_unit = np.empty(1024, dtype=np.int64)
    low_unit = np.empty(1024, dtype=np.int64)
    position = np.empty(64, dtype=np.float64)
    unit = np.empty(64, dtype=np.int64)
    count = 0
    for edge in range(len(ends)):
        a, b = ends[edge, 0], ends[edge, 1]
        if keys[a] > keys[b]:
            a, b = b, a
            ends[edge, 0], ends[edge, 1] = a, b
        found = 0
        for word in range(above.shape[1]):
            bits = (above[a, word] & below[b, word]) | (below[a, word] & above[b, word])
            while bits != 0:
                if found == len(unit):
                    position, unit = grown(position), grown(unit)
                u = unit_of(word, bits)
                unit[found] = u
                position[found] = values[a, u] / (values[a, u] - values[b, u])
                found += 1
                bits &= bits - 1
        _sort_by(position, unit, found)
        for k in range(found):
            t, u = position[k], unit[k]
            slope = abs(values[a, u] - values[b, u])
            if count > ranges[edge] and (t - share[count - 1]) * slope <= tolerance[u]:
                low_unit[count - 1] = min(low_unit[count - 1], u)
                continue
            if count == len(share):
                share, zero_unit, low_unit = grown(share), grown(zero_unit), grown(low_unit)
            share[count], zero_unit[count], low_unit[count] = t, u, u
            count += 1
        ranges[edge + 1] = count
    return ranges, share[:count], zero_unit[:count], low_unit[:count]


def mix(*parts: UInt64[np.ndarray, " n"] | int) -> UInt64[np.ndarray, " n"]:
    """A 64-bit key made of several: equal parts give equal keys, others collide with chance 2^-64 (splitmix64)."""
    mixed = np.uint64(0)
    with np.errstate(over="ignore"):
        for part in parts:
            mixed = (mixed ^ np.asarray(part).astype(np.uint64)) + np.uint64(0x9E3779B97F4A7C15)
            mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
            mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
            mixed = mixed ^ (mixed >> np.uint64(31))
    return mixed  # type: ignore[return-value]
