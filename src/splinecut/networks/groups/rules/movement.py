"""Rules for operators that only move entries: they are run on the labels themselves."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, fx

from splinecut.networks.export import operator_name, piece_bounds, place
from splinecut.networks.groups.labels import Labels, spread, thin, varies
from splinecut.networks.groups.rules.base import Arguments
from splinecut.networks.layers import Select

if TYPE_CHECKING:
    from splinecut.networks.groups.label_pass import LabelPass


def move(walk: LabelPass, node: fx.Node, a: Arguments) -> Any:
    """Runs the operation on the labels."""
    args, kwargs = fx.node.map_arg((node.args, node.kwargs), walk.labels)
    return node.target(*args, **kwargs)  # type: ignore[operator]


def cat(walk: LabelPass, node: fx.Node, a: Arguments) -> Labels:
    """Side by side along one axis; along every other axis all parts must stay equally long, index by index."""
    labels = [walk.labels(source) for source in a["tensors"] if source.meta["val"].shape != (0,)]
    dim = a["dim"] % labels[0].ndim
    joined = torch.cat(thin(labels, but=dim), dim)
    if any(varies(part, axis) for part in labels for axis in range(part.ndim) if axis != dim):
        joined = _alike_along(walk, joined, dim)
    return joined.expand(node.meta["val"].shape)


def stack(walk: LabelPass, node: fx.Node, a: Arguments) -> Labels:
    """One over the other along a new axis: the parts must keep the same shape, so that they lose the same entries."""
    shape = node.meta["val"].shape
    dim = a["dim"] % len(shape)
    stacked = torch.stack(torch.broadcast_tensors(*(walk.labels(source) for source in a["tensors"])), dim)
    return _alike_along(walk, stacked, dim)


def _alike_along(walk: LabelPass, labels: Labels, dim: int) -> Labels:
    """Ties what lies behind one another along `dim`: an axis on which units of several layers meet keeps its length."""
    first = labels.narrow(dim, 0, 1)
    walk.ties.tie(labels, first)
    return first.expand(labels.shape)


def by_position(walk: LabelPass, node: fx.Node, a: Arguments) -> Any:
    """Slices and shifts: fixed positions, so the axis they count along must keep its length."""
    labels, value = walk.labels(a["self"]), node.meta["val"]
    takes_all = isinstance(value, Tensor) and value.shape == labels.shape and operator_name(node) == "slice"
    dims = a.get("dim", a.get("dims", 0))
    for dim in [dims] if isinstance(dims, int) else dims:
        if _counts_units(labels, dim) and not takes_all:
            walk.ties.freeze(labels, f"{place(node)} counts its units by position")
    moved = move(walk, node, a)
    return tuple(moved) if isinstance(moved, list) else moved


def _counts_units(labels: Labels, dim: int) -> bool:
    """Whether the axis gets shorter when a unit leaves: labels vary along it, and along no other."""
    return [axis for axis in range(labels.ndim) if varies(labels, axis)] == [dim % labels.ndim]


def pieces(walk: LabelPass, node: fx.Node, a: Arguments) -> Any:
    """chunk and split: equal pieces stay equal, so the j-th units of all pieces are one."""
    labels, dim = walk.labels(a["self"]), a["dim"]
    bounds = piece_bounds(operator_name(node), a, labels.shape[dim])
    pieces = [labels.narrow(dim, start, stop - start) for start, stop in bounds]
    if not varies(labels, dim) or len(pieces) == 1:
        return tuple(pieces)
    if len({piece.shape for piece in pieces}) > 1:
        walk.ties.freeze(labels, f"{place(node)} counts its units by position")
        return tuple(pieces)
    for piece in pieces[1:]:
        walk.ties.tie(piece, pieces[0])
    return (pieces[0],) * len(pieces)


def reshape(walk: LabelPass, node: fx.Node, a: Arguments) -> Labels:
    """Merging axes keeps every label; an axis of units that is split must shrink evenly in all its parts."""
    before, shape = walk.labels(a["self"]), tuple(node.meta["val"].shape)
    labels = before.reshape(shape)
    for old, new in _blocks(tuple(before.shape), shape):
        if not any(varies(before, axis) for axis in old):
            continue
        # Only the innermost may shrink freely: as a rule the program states the outer lengths as numbers.
        *outer, _ = [axis for axis in new if varies(labels, axis)] or [0]
        for axis in outer:
            first = labels.narrow(axis, 0, 1)
            walk.ties.tie(labels, first)
            labels = first.expand(shape)
    return labels


def _blocks(before: tuple[int, ...], after: tuple[int, ...]) -> list[tuple[list[int], list[int]]]:
    """Axes that a reshape turns into each other: the shortest runs with equal products."""
    blocks, i, j = [], 0, 0
    while i < len(before) or j < len(after):
        ours, theirs = [i] if i < len(before) else [], [j] if j < len(after) else []
        i, j = i + len(ours), j + len(theirs)
        while (x := math.prod(before[k] for k in ours)) != (y := math.prod(after[k] for k in theirs)):
            if x < y:
                ours, i = [*ours, i], i + 1
            else:
                theirs, j = [*theirs, j], j + 1
        blocks.append((ours, theirs))
    return blocks


def channel_shuffle(walk: LabelPass, node: fx.Node, a: Arguments) -> Labels:
    units = walk.ties.along(walk.labels(a["self"]), 1).view(a["groups"], -1)
    walk.ties.tie(units, units[0])
    return spread(units[0].repeat_interleave(a["groups"]), 1, node.meta["val"].shape)


def index_select(walk: LabelPass, node: fx.Node, a: Arguments) -> Labels:
    """A list of channels kept as a buffer can shrink: as a group of its own (`select`) or with its source."""
    index, labels = a["index"], walk.labels(a["self"])
    key = None if walk.weight(index) else walk.key(index)
    shape, dim = node.meta["val"].shape, a["dim"] % node.meta["val"].ndim
    if key is None or not varies(labels, dim):
        if varies(labels, dim):
            walk.ties.freeze(labels, f"{place(node)} counts its units by position")
        return labels.narrow(dim, 0, 1).expand(shape)
    channels = walk.ties.along(labels, dim)
    places = walk.model.get_buffer(key).cpu()
    is_selector = walk.residual == "select" and isinstance(walk.module(node), Select)
    picked = walk.axis_labels(index, 0, "selector" if is_selector else "pointer")
    if is_selector:
        # The stream stays: each selector drops its own channels of it.
        walk.ties.freeze(channels, "a selector reads it")
        walk.selects(a["self"], index, torch.full((len(channels),), -1).index_put((places,), picked))
        return spread(picked, dim, shape)
    walk.ties.tie(picked, channels[places])
    walk.points_at[key] = channels
    return spread(channels[places], dim, shape)
