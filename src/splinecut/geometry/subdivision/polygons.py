"""Convex polygons in bulk: area, centroid, the widest triangle, mixing vertex rows, taking some polygons.

A set of polygons is ragged: polygon p has the vertices ring[offsets[p]:offsets[p + 1]], counter-clockwise.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from jaxtyping import Float, Int64
from scipy.sparse import csr_array

Offsets = Int64[np.ndarray, " polygons_and_one"]
Ring = Int64[np.ndarray, " places"]


def next_place(offsets: Offsets) -> Int64[np.ndarray, " places"]:
    """For each place of the ring, the place that follows it in its polygon."""
    onward = np.arange(1, offsets[-1] + 1)
    onward[offsets[1:] - 1] = offsets[:-1]
    return onward


def areas_and_centroids(
    offsets: Offsets, ring: Ring, xy: Float[np.ndarray, "n 2"]
) -> tuple[Float[np.ndarray, " polygons"], Float[np.ndarray, "polygons 2"]]:
    """Area (positive when counter-clockwise) and centroid of each polygon.

    Seen from the first vertex: differences of nearby points keep the digits of small polygons. A polygon without area
    has the mean of its vertices for a centroid.
    """
    origin = xy[ring[offsets[:-1]]]
    a = xy[ring] - np.repeat(origin, np.diff(offsets), axis=0)
    b = a[next_place(offsets)]
    piece = a[:, 0] * b[:, 1] - a[:, 1] * b[:, 0]
    twice = np.add.reduceat(piece, offsets[:-1])
    moment = np.add.reduceat(piece[:, None] * (a + b), offsets[:-1], axis=0)
    mean = np.add.reduceat(a, offsets[:-1], axis=0) / np.diff(offsets)[:, None]
    # Polygons thinner than rounding may come out with no area or a negative one.
    is_flat = twice <= 0
    shift = np.where(is_flat[:, None], mean, moment / np.where(is_flat, 1.0, 3 * twice)[:, None])
    return twice / 2, origin + shift


def by_size(offsets: Offsets, most: int = 1 << 16) -> Iterator[tuple[np.ndarray, Int64[np.ndarray, "some corners"]]]:
    """Polygons grouped by their number of corners: (which, their places), at most `most` polygons at once."""
    sizes = np.diff(offsets)
    for size in np.unique(sizes):
        which = np.flatnonzero(sizes == size)
        for start in range(0, len(which), most):
            some = which[start : start + most]
            yield some, offsets[some, None] + np.arange(size)


def wide_triangles(
    offsets: Offsets, ring: Ring, xy: Float[np.ndarray, "n 2"]
) -> tuple[Int64[np.ndarray, "polygons 3"], Float[np.ndarray, " polygons"]]:
    """Three corners of each polygon that lie far apart, and how high their triangle is.

    Two at the largest distance, and the one farthest from the line through them.
    """
    corners, height = np.empty((len(offsets) - 1, 3), dtype=np.int64), np.empty(len(offsets) - 1)
    for which, places in by_size(offsets):
        points = xy[ring[places]]
        # All pairs: polygons have few corners, and a bad triangle costs digits of the affine map.
        i, j = np.triu_indices(places.shape[1], 1)
        apart = ((points[:, i] - points[:, j]) ** 2).sum(axis=2)
        longest, row = apart.argmax(axis=1), np.arange(len(which))
        a, b = points[row, i[longest]], points[row, j[longest]]
        d, e = (b - a)[:, None], points - a[:, None]
        twice = np.abs(d[..., 0] * e[..., 1] - d[..., 1] * e[..., 0])
        corners[which] = ring[
            np.stack([places[row, i[longest]], places[row, j[longest]], places[row, twice.argmax(1)]], 1)
        ]
        length = np.sqrt(apart[row, longest])
        height[which] = np.divide(twice.max(axis=1), length, out=np.zeros_like(length), where=length > 0)
    return corners, height


def take(offsets: Offsets, ring: Ring, first: int, stop: int) -> tuple[Offsets, Ring, Int64[np.ndarray, " taken"]]:
    """Polygons first..stop with their vertices renumbered: their offsets, ring, and the old number of each vertex."""
    low, high = offsets[first], offsets[stop]
    used, fresh = np.unique(ring[low:high], return_inverse=True)
    return offsets[first : stop + 1] - low, fresh, used


def mixtures(
    n_old: int,
    corner: Int64[np.ndarray, "new k"],
    weight: Float[np.ndarray, "new k"],
    wanted: Int64[np.ndarray, " wanted"],
) -> csr_array:
    """(wanted, old) matrix that mixes rows: old vertices stay as they are, new ones are weighted sums of old ones."""
    is_old = wanted < n_old
    new = wanted[~is_old] - n_old
    counts = np.ones(len(wanted), dtype=np.int64)
    # Zero weights are padding; stored, they would read vertices that mean nothing.
    counts[~is_old] = (weight[new] != 0).sum(axis=1)
    columns, data = np.empty(counts.sum(), dtype=np.int64), np.ones(counts.sum())
    from_new = np.repeat(~is_old, counts)
    columns[~from_new] = wanted[is_old]
    columns[from_new], data[from_new] = corner[new][weight[new] != 0], weight[new][weight[new] != 0]
    starts = np.concatenate([[0], np.cumsum(counts)])
    return csr_array((data, columns, starts), shape=(len(wanted), n_old))
