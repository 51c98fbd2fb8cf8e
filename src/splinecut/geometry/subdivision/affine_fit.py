"""The affine map of each region: from three of its corners, or by differentiation where it is too thin for that."""

from __future__ import annotations

import numpy as np
import torch
from jaxtyping import Float, Int64

from splinecut.geometry.graph import Graph
from splinecut.geometry.slices import Slice
from splinecut.geometry.subdivision.polygons import Offsets, Ring, wide_triangles


def thin_polygons(offsets: Offsets, ring: Ring, xy: Float[np.ndarray, "n 2"]) -> Int64[np.ndarray, " thin"]:
    """Polygons so thin that a map read off their corners would lose more than six digits."""
    height = wide_triangles(offsets, ring, xy)[1]
    # Slopes divide by the height: 1e-6 of the window leaves about ten of sixteen digits.
    return np.flatnonzero(height < 1e-6 * np.ptp(xy, axis=0).max())


def affine_maps(
    offsets: Offsets, ring: Ring, xy: Float[np.ndarray, "n 2"], outputs: Float[np.ndarray, "n outputs"]
) -> Float[np.ndarray, "regions outputs 3"]:
    """The affine map through the values at three corners of each polygon; zero slopes where it has no height at all."""
    (i, j, k), height = (column.T for column in wide_triangles(offsets, ring, xy))
    (x1, y1), (x2, y2) = (xy[j] - xy[i]).T[..., None], (xy[k] - xy[i]).T[..., None]
    d1, d2 = outputs[j] - outputs[i], outputs[k] - outputs[i]
    det = np.where(height > 0, (x1 * y2 - x2 * y1)[:, 0], np.inf)[:, None]
    a, b = (d1 * y2 - d2 * y1) / det, (x1 * d2 - x2 * d1) / det
    return np.stack([a, b, outputs[i] - a * xy[i, :1] - b * xy[i, 1:]], axis=2)


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
            # One pass an output for all points: points do not depend on each other, so the sum separates.
            for o in range(n_outputs):
                (slope,) = torch.autograd.grad(outputs[:, o].sum(), points, retain_graph=True, allow_unused=True)
                slope = torch.zeros_like(points) if slope is None else slope
                level = outputs[:, o] - (slope * points).sum(1)
                maps[part, o] = torch.cat([slope, level[:, None]], dim=1).detach().numpy()
    return maps
