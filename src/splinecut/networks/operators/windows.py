"""Index windows of maxima: which entries of the flattened inputs each unit of a max operator takes the largest of.

Positions count through the inputs one after the other, each in C order without the batch axis; -1 is padding. Windows
are listed rather than computed while running: subdivision looks at the entries of a window at every vertex.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
from jaxtyping import Int64

from splinecut.networks.export import spatial_axes
from splinecut.networks.operators.calls import Max, OpCall, Shape, Unsupported, ValueRef, as_called
from splinecut.networks.operators.readers import Reader, Shapes

Windows = Int64[np.ndarray, "windows size"]


def largest(windows: Callable[[OpCall, Shapes], Windows]) -> Reader:
    """Reads a call as the maximum over the windows that the function lists for it."""
    return lambda call, shapes: Max(as_called(call, first=True), windows(call, shapes))


def pool(call: OpCall, shapes: Shapes) -> Windows:
    """max_pool1d, 2d, 3d with stride, padding and dilation."""
    shape, arguments = shapes[call.inputs()[0]], call.arguments
    n_axes = spatial_axes(call.name)
    axes = []
    for axis in range(n_axes):
        kernel = _along(arguments["kernel_size"], axis, 1)
        stride = _along(arguments["stride"], axis, kernel)
        padding, dilation = _along(arguments["padding"], axis, 0), _along(arguments["dilation"], axis, 1)
        length = shape[axis - n_axes]
        # As many outputs as the call gave: with ceil_mode there is one that reaches beyond the edge.
        starts = [o * stride - padding for o in range(call.shape[axis - n_axes])]
        looks = [[s + k * dilation for k in range(kernel)] for s in starts]
        axes.append([[at for at in look if 0 <= at < length] for look in looks])
    return _grid(shape, axes)


def adaptive_pool(call: OpCall, shapes: Shapes) -> Windows:
    """Output o of n_out looks at positions floor(o n / n_out) to ceil((o + 1) n / n_out), as torch does."""
    shape, n_axes = shapes[call.inputs()[0]], spatial_axes(call.name)
    sizes = [(shape[axis - n_axes], call.shape[axis - n_axes]) for axis in range(n_axes)]
    axes = [[list(range(o * n // out, -(-(o + 1) * n // out))) for o in range(out)] for n, out in sizes]
    return _grid(shape, axes)


def along_axes(call: OpCall, shapes: Shapes) -> Windows:
    """amax and max over some axes."""
    shape = shapes[call.inputs()[0]]
    dims = call.arguments["dim"]
    dims = [dims] if isinstance(dims, int) else dims
    if not dims:
        raise Unsupported("a maximum over all axes mixes the points of a batch; name the axes")
    along = [dim % (len(shape) + 1) - 1 for dim in dims]
    positions = np.arange(np.prod(shape, dtype=np.int64)).reshape(shape)
    moved = np.moveaxis(positions, along, range(-len(along), 0))
    return moved.reshape(-1, int(np.prod([shape[a] for a in along])))


def pairs(call: OpCall, shapes: Shapes) -> Windows:
    """maximum(x, y): windows of two entries, broadcast against each other."""
    first, second = call.arguments["self"], call.arguments["other"]
    if not (isinstance(first, ValueRef) and isinstance(second, ValueRef)):
        raise Unsupported("a maximum with a constant is a clamp; write torch.clamp or a ReLU")
    offset, positions = 0, {}
    # By name: maximum(x, x) reads one input, and both entries of its windows are the same position.
    for name in call.inputs():
        n = int(np.prod(shapes[name], dtype=np.int64))
        positions[name] = np.broadcast_to(np.arange(offset, offset + n).reshape(shapes[name]), call.shape).ravel()
        offset += n
    return np.stack([positions[first.name], positions[second.name]], axis=1)


def _grid(shape: Shape, axes: list[list[list[int]]]) -> Windows:
    """Windows over the last axes of `shape`: axes[a][o] lists the positions along axis a that output o looks at."""
    positions = np.arange(np.prod(shape, dtype=np.int64)).reshape(-1, *shape[-len(axes) :])
    rows = []
    for plane in positions:
        for looks in itertools.product(*axes):
            rows.append(plane[np.ix_(*looks)].ravel())
    width = max(map(len, rows))
    # Windows at a border are shorter; padded, all fit one array.
    return np.stack([np.pad(row, (0, width - len(row)), constant_values=-1) for row in rows])


def _along(value: Any, axis: int, default: int) -> int:
    """One axis' entry of an argument that is a number, a list with one entry for all axes, or a list of all."""
    if isinstance(value, int):
        return value
    return value[axis if len(value) > 1 else 0] if value else default
