"""Which polygon holds a point: a grid of cells over the window, each with the polygons whose box meets it."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int64
from numba import njit


class Grid(NamedTuple):
    low: np.ndarray  # (2,) corner of the grid
    step: np.ndarray  # (2,) size of a cell
    n: int  # cells per side
    start: np.ndarray  # (n * n + 1,) range of `polygon`
    polygon: np.ndarray


@njit(cache=True)
def _cell(x, low, step, n):  # type: ignore[no-untyped-def]
    return min(max(int((x - low) / step), 0), n - 1)


@njit(cache=True)
def _boxes(offsets, ring, xy, low, step, n):  # type: ignore[no-untyped-def]
    box = np.empty((len(offsets) - 1, 4), dtype=np.int64)
    for p in range(len(offsets) - 1):
        left, bottom = xy[ring[offsets[p]]]
        right, top = left, bottom
        for place in range(offsets[p], offsets[p + 1]):
            x, y = xy[ring[place]]
            left, right, bottom, top = min(left, x), max(right, x), min(bottom, y), max(top, y)
        box[p, 0], box[p, 1] = _cell(left, low[0], step[0], n), _cell(right, low[0], step[0], n)
        box[p, 2], box[p, 3] = _cell(bottom, low[1], step[1], n), _cell(top, low[1], step[1], n)
    return box


@njit(cache=True)
def _fill(box, n):  # type: ignore[no-untyped-def]
    start = np.zeros(n * n + 1, dtype=np.int64)
    for p in range(len(box)):
        for i in range(box[p, 0], box[p, 1] + 1):
            for j in range(box[p, 2], box[p, 3] + 1):
                start[i * n + j + 1] += 1
    start = np.cumsum(start)
    free, polygon = start.copy(), np.empty(start[-1], dtype=np.int64)
    for p in range(len(box)):
        for i in range(box[p, 0], box[p, 1] + 1):
            for j in range(box[p, 2], box[p, 3] + 1):
                polygon[free[i * n + j]] = p
                free[i * n + j] += 1
    return start, polygon


def grid_over(
    offsets: Int64[np.ndarray, " polygons_and_one"], ring: Int64[np.ndarray, " places"], xy: Float[np.ndarray, "n 2"]
) -> Grid:
    """A grid with about as many cells as there are polygons."""
    low, high = xy.min(axis=0), xy.max(axis=0)
    n = max(1, int(np.sqrt(len(offsets) - 1)))
    step = np.maximum(high - low, 1e-300) / n
    start, polygon = _fill(_boxes(offsets, ring, xy, low, step, n), n)
    return Grid(low, step, n, start, polygon)


@njit(cache=True)
def _margin(offsets, ring, xy, p, x, y):  # type: ignore[no-untyped-def]
    """Distance of a point to the nearest side of a convex polygon, negative outside."""
    least = np.inf
    first, stop = offsets[p], offsets[p + 1]
    for place in range(first, stop):
        a, b = ring[place], ring[place + 1 if place + 1 < stop else first]
        dx, dy = xy[b, 0] - xy[a, 0], xy[b, 1] - xy[a, 1]
        length = np.hypot(dx, dy)
        if length > 0:
            least = min(least, (dx * (y - xy[a, 1]) - dy * (x - xy[a, 0])) / length)
    return least


@njit(cache=True)
def _search(points, grid, offsets, ring, xy, slack):  # type: ignore[no-untyped-def]
    polygon = np.full(len(points), -1, dtype=np.int64)
    for k in range(len(points)):
        x, y = points[k]
        i, j = _cell(x, grid.low[0], grid.step[0], grid.n), _cell(y, grid.low[1], grid.step[1], grid.n)
        # Deepest, not first: on a common edge rounding may put a point outside of both neighbours.
        best = -slack
        for at in range(grid.start[i * grid.n + j], grid.start[i * grid.n + j + 1]):
            margin = _margin(offsets, ring, xy, grid.polygon[at], x, y)
            if margin > best:
                best = margin
                polygon[k] = grid.polygon[at]
    return polygon


def locate(
    points: Float[np.ndarray, "points 2"],
    grid: Grid,
    offsets: Int64[np.ndarray, " polygons_and_one"],
    ring: Int64[np.ndarray, " places"],
    xy: Float[np.ndarray, "n 2"],
) -> Int64[np.ndarray, " points"]:
    """The polygon each point lies deepest in; -1 outside of all. On a common side either may be given."""
    # Points on the window's rim may lie outside by rounding and still belong to it.
    slack = 1e-12 * float(np.abs(xy).max() + np.ptp(xy))
    return _search(np.ascontiguousarray(points, dtype=np.float64), grid, offsets, ring, xy, slack)
