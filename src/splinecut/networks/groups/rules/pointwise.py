"""Rule for elementwise operators."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

import torch
from torch import Tensor, fx

from splinecut.networks.export import operator_name, place
from splinecut.networks.groups.labels import Labels, varies
from splinecut.networks.groups.rules.base import Arguments

if TYPE_CHECKING:
    from splinecut.networks.groups.label_pass import LabelPass


def elementwise(walk: LabelPass, node: fx.Node, a: Arguments) -> Labels:
    """Operands of equal shape are tied entry by entry; one that is repeated over another's units stays whole."""
    shape = node.meta["val"].shape
    operands = [walk.labels(source) for source in node.all_input_nodes if isinstance(source.meta.get("val"), Tensor)]
    if walk.residual != "tied" and operator_name(node).startswith("add") and _joins_streams(walk, node, operands):
        for labels in operands:
            walk.ties.freeze(labels, walk.stream_stays)
    full = [labels.expand(shape) for labels in operands]
    repeated = [_repeated_axes(labels, shape) for labels in operands]
    # A vector of one entry spread over units has no entry to give up when one of them leaves.
    is_over = [any(varies(other, axis) for other in full for axis in axes) for axes in repeated]
    for labels, over in zip(operands, is_over, strict=True):
        if over:
            walk.ties.freeze(labels, f"{place(node)} repeats it over other units")
    alike = [labels for labels, over in zip(full, is_over, strict=True) if not over]
    for one, other in itertools.pairwise(alike):
        walk.ties.tie(one, other)
    return alike[0] if alike else walk.freeze_all(node)


def _joins_streams(walk: LabelPass, node: fx.Node, operands: list[Labels]) -> bool:
    """Whether two values of equal shape are added, both of which depend on the input."""
    terms = [source for source in node.all_input_nodes if source in walk.depends]
    return len(terms) > 1 and len({labels.shape for labels in operands}) == 1


def _repeated_axes(labels: Labels, shape: torch.Size) -> list[int]:
    aligned = (1,) * (len(shape) - labels.ndim) + tuple(labels.shape)
    return [axis for axis, (ours, whole) in enumerate(zip(aligned, shape, strict=True)) if ours == 1 < whole]
