"""The affine map of each region: from three of its corners, or by differentiation where it is too thin for that."""

from __future__ import annotations

import numpy as np
import torch
from jaxtyping import Float, Int64
from numba import njit

from splinecut.geometry.graph import Graph
from splinecut.geometry.slices import Slice


@njit(cache=True)
def _triangle(offsets, ring, xy, p):  # type: ignore[no-untyped-def]
    """Three corners of a polygon that lie far apart: two at the largest distance, the third farthest from their line."""
    first, stop = offsets[p], offsets[p + 1]
    a, b, far = first, first, -1.0
    for i in range(first, stop):
        for j in range(i + 1, stop):
            apart = (xy[ring[i], 0] - xy[ring[j], 0]) ** 2 + (xy[ring[i], 1] - xy[ring[j], 1]) ** 2
            if apart > far:
                a, b, far = i, j, apart
    c, area = first, -1.0
    dx, dy = xy[ring[b], 0] - xy[ring[a], 0], xy[ring[b], 1] - xy[ring[a], 1]
    for i in range(first, stop):
        twice = abs(dx * (xy[ring[i], 1] - xy[ring[a], 1]) - dy * (xy[ring[i], 0] - xy[ring[a], 0]))
        if twice > area:
            c, area = i, twice
    return ring[a], ring[b], ring[c], area / np.sqrt(far) if far > 0 else 0.0


@njit(cache=True)
def _heights(offsets, ring, xy):  # type: ignore[no-untyped-def]
    height = np.empty(len(offsets) - 1)
    for p in range(len(height)):
        height[p] = _triangle(offsets, ring, xy, p)[3]
    return height


def thin_polygons(
    offsets: Int64[np.ndarray, " regions_and_one"], ring: Int64[np.ndarray, " places"], xy: Float[np.ndarray, "n 2"]
) -> Int64[np.ndarray, " thin"]:
    """Polygons so thin that a map read off their corners would lose more than half of its digits."""
    return np.flatnonzero(_heights(offsets, ring, xy) < 1e-6 * np.ptp(xy, axis=0).max())


@njit(cache=True)
def affine_maps(offsets, ring, xy, outputs):  # type: ignore[no-untyped-def]
    """(regions, outputs, 3): the affine map through the values at three corners of each polygon."""
    maps = np.zeros((len(offsets) - 1, outputs.shape[1], 3))
    for p in range(len(maps)):
        i, j, k, height = _triangle(offsets, ring, xy, p)
        if height <= 0:
            continue
        x1, y1 = xy[j, 0] - xy[i, 0], xy[j, 1] - xy[i, 1]
        x2, y2 = xy[k, 0] - xy[i, 0], xy[k, 1] - xy[i, 1]
        det = x1 * y2 - x2 * y1
        for o in range(outputs.shape[1]):
            d1, d2 = outputs[j, o] - outputs[i, o], outputs[k, o] - outputs[i, o]
            a, b = (d1 * y2 - d2 * y1) / det, (x1 * d2 - x2 * d1) / det
            maps[p, o, 0], maps[p, o, 1] = a, b
            maps[p, o, 2] = outputs[i, o] - a * xy[i, 0] - b * xy[i, 1]
    return maps


def affine_by_differentiation(
    graph: Graph, region: Slice, uv: Float[np.ndarray, "points 2"]
) -> Float[np.ndarray, "points outputs 3"]:
    """The affine map of the region around each point, by autograd."""
    n_outputs = graph[graph.output].size
    maps = np.zeros((len(uv), n_outputs, 3))
    for start in range(0, len(uv), 256):
        part = slice(start, min(start + 256, len(uv)))
        with torch.enable_grad():
            points = torch.from_numpy(uv[part].copy()).requires_grad_()
            flat = points @ torch.from_numpy(region.basis.reshape(2, -1)) + torch.from_numpy(region.origin.ravel())
            outputs = graph.run(flat.reshape(-1, *region.input_shape)).reshape(len(points), -1)
            for o in range(n_outputs):
                (slope,) = torch.autograd.grad(outputs[:, o].sum(), points, retain_graph=True, allow_unused=True)
                slope = torch.zeros_like(points) if slope is None else slope
                level = outputs[:, o] - (slope * points).sum(1)
                maps[part, o] = torch.cat([slope, level[:, None]], dim=1).detach().numpy()
    return maps
