"""Convex polygons in bulk: area, centroid, mixing vertex rows, and taking some polygons with their vertices.

A set of polygons is ragged: polygon p has the vertices ring[offsets[p]:offsets[p + 1]], counter-clockwise.
"""

from __future__ import annotations

import numpy as np
from jaxtyping import Float, Int64
from numba import njit


@njit(cache=True)
def _measure(offsets, ring, xy):  # type: ignore[no-untyped-def]
    n = len(offsets) - 1
    area, centroid = np.zeros(n), np.zeros((n, 2))
    for p in range(n):
        first, stop = offsets[p], offsets[p + 1]
        # Seen from the first vertex: differences of nearby points keep the digits of small polygons.
        x0, y0 = xy[ring[first], 0], xy[ring[first], 1]
        twice, mx, my = 0.0, 0.0, 0.0
        for place in range(first + 1, stop - 1):
            ax, ay = xy[ring[place], 0] - x0, xy[ring[place], 1] - y0
            bx, by = xy[ring[place + 1], 0] - x0, xy[ring[place + 1], 1] - y0
            piece = ax * by - ay * bx
            twice += piece
            mx += piece * (ax + bx)
            my += piece * (ay + by)
        area[p] = twice / 2
        if twice > 0:
            centroid[p, 0], centroid[p, 1] = x0 + mx / (3 * twice), y0 + my / (3 * twice)
        else:  # no area to weigh by: the mean of the vertices is as good
            for place in range(first, stop):
                centroid[p, 0] += xy[ring[place], 0] / (stop - first)
                centroid[p, 1] += xy[ring[place], 1] / (stop - first)
    return area, centroid


def areas_and_centroids(
    offsets: Int64[np.ndarray, " polygons_and_one"], ring: Int64[np.ndarray, " places"], xy: Float[np.ndarray, "n 2"]
) -> tuple[Float[np.ndarray, " polygons"], Float[np.ndarray, "polygons 2"]]:
    """Area (positive when counter-clockwise) and centroid of each polygon."""
    return _measure(offsets, ring, xy)  # type: ignore[no-any-return]


@njit(cache=True)
def take(offsets, ring, first, stop, n_vertices):  # type: ignore[no-untyped-def]
    """Polygons first..stop with their vertices renumbered in order of appearance: (offsets, ring, old numbers, new numbers)."""
    low, high = offsets[first], offsets[stop]
    number = np.full(n_vertices, -1, dtype=np.int64)
    used = np.empty(min(high - low, n_vertices), dtype=np.int64)
    fresh = np.empty(high - low, dtype=np.int64)
    count = 0
    for place in range(low, high):
        vertex = ring[place]
        if number[vertex] < 0:
            number[vertex] = count
            used[count] = vertex
            count += 1
        fresh[place - low] = number[vertex]
    return offsets[first : stop + 1] - low, fresh, used[:count], number


@njit(cache=True)
def mixed_rows(rows, wanted, e, f, share):  # type: ignore[no-untyped-def]
    """Rows of the wanted vertices: old ones as they are, new ones (1-share) e + share f, e and f old or on an edge."""
    n_old, width = rows.shape
    out = np.empty((len(wanted), width), dtype=rows.dtype)
    for k in range(len(wanted)):
        vertex = wanted[k]
        if vertex < n_old:
            for c in range(width):
                out[k, c] = rows[vertex, c]
            continue
        a, b, s = e[vertex - n_old], f[vertex - n_old], share[vertex - n_old]
        if a < n_old and b < n_old:
            for c in range(width):
                out[k, c] = (1.0 - s) * rows[a, c] + s * rows[b, c]
            continue
        a1, a2, ta = (a, a, 0.0) if a < n_old else (e[a - n_old], f[a - n_old], share[a - n_old])
        b1, b2, tb = (b, b, 0.0) if b < n_old else (e[b - n_old], f[b - n_old], share[b - n_old])
        for c in range(width):
            at_a = (1.0 - ta) * rows[a1, c] + ta * rows[a2, c]
            at_b = (1.0 - tb) * rows[b1, c] + tb * rows[b2, c]
            out[k, c] = (1.0 - s) * at_a + s * at_b
    return out


def next_place(offsets: Int64[np.ndarray, " polygons_and_one"]) -> Int64[np.ndarray, " places"]:
    """For each place of the ring, the place that follows it in its polygon."""
    onward = np.arange(1, offsets[-1] + 1)
    onward[offsets[1:] - 1] = offsets[:-1]
    return onward
