"""Rules for operators along some axes: pooling, padding, reductions, softmax."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import fx

from splinecut.networks.export import operator_name, spatial_axes
from splinecut.networks.export import place as place_of
from splinecut.networks.groups.labels import CONSTANT, Labels, constant, spread, varies
from splinecut.networks.groups.rules.base import Arguments
from splinecut.networks.groups.rules.pointwise import elementwise

if TYPE_CHECKING:
    from splinecut.networks.groups.label_pass import LabelPass


def per_channel(walk: LabelPass, node: fx.Node, a: Arguments) -> Any:
    """Pooling, upsampling and the like over the last axes, as many as the operator's name says."""
    value = node.meta["val"]
    result = value[0] if isinstance(value, (tuple, list)) else value
    axis = result.ndim - spatial_axes(operator_name(node)) - 1
    labels = spread(walk.ties.along(walk.labels(node.all_input_nodes[0]), axis), axis, result.shape)
    return (labels, labels) if isinstance(value, (tuple, list)) else labels


def reduce(walk: LabelPass, node: fx.Node, a: Arguments) -> Any:
    """A sum, mean or maximum over axes along which units repeat leaves them; over the units themselves it mixes."""
    if isinstance(a.get("other"), fx.Node):
        return elementwise(walk, node, a)
    labels, value = walk.labels(a["self"]), node.meta["val"]
    dims = a.get("dim")
    dims = range(labels.ndim) if dims is None or dims == [] else [dims] if isinstance(dims, int) else dims
    dims = sorted({dim % labels.ndim for dim in dims})
    if any(varies(labels, dim) for dim in dims):
        return walk.freeze_all(node)
    result = value[0] if isinstance(value, (tuple, list)) else value
    for dim in reversed(dims):
        labels = labels.narrow(dim, 0, 1) if a.get("keepdim") else labels.select(dim, 0)
    labels = labels.expand(result.shape)
    return (labels, labels) if isinstance(value, (tuple, list)) else labels


def along_axis(walk: LabelPass, node: fx.Node, a: Arguments) -> Labels:
    """softmax, cumsum: mixes the entries of one axis and keeps the shape."""
    labels = walk.labels(a["self"])
    return walk.freeze_all(node) if varies(labels, a["dim"]) else labels


def pad(walk: LabelPass, node: fx.Node, a: Arguments) -> Labels:
    """New pixels belong to the channel they are in; new channels are of fixed number, so they stay."""
    labels, pad = walk.labels(a["self"]), list(a["pad"])
    shape = node.meta["val"].shape
    for place, (before, after) in enumerate(zip(pad[::2], pad[1::2], strict=True)):
        axis = labels.ndim - 1 - place
        if varies(labels, axis):
            if min(before, after) < 0:
                return walk.freeze_all(node, f"{place_of(node)} counts its units by position")
            sides = [constant(CONSTANT, (*labels.shape[:axis], n, *labels.shape[axis + 1 :])) for n in (before, after)]
            labels = torch.cat([sides[0], labels, sides[1]], dim=axis)
        else:
            labels = labels.narrow(axis, 0, 1).expand(*labels.shape[:axis], shape[axis], *labels.shape[axis + 1 :])
    return labels
