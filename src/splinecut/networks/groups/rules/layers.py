"""Rules for layers that make and read units: linear maps, convolutions, embeddings, attention."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from jaxtyping import Int64
from torch import Tensor, fx

from splinecut.networks.export import operator_name
from splinecut.networks.groups.labels import Labels, spread
from splinecut.networks.groups.rules.base import Arguments, follow, is_free

if TYPE_CHECKING:
    from splinecut.networks.groups.label_pass import LabelPass

_COMPUTED = "its weight is no parameter but computed, or a buffer, so it has no rows to remove"


def linear(walk: LabelPass, node: fx.Node, a: Arguments) -> Labels:
    """x W^T + b reads its units along the last axis and makes one unit per row."""
    x, weight = a["input"], a["weight"]
    if not walk.weight(weight) or not is_free(walk, a["bias"]) or weight.meta["val"].ndim != 2:
        return walk.freeze_all(node, _COMPUTED)
    return _product(walk, node, x, weight, reads=1, makes=0, bias=a["bias"])


def matmul(walk: LabelPass, node: fx.Node, a: Arguments) -> Labels:
    """x W with a parameter W; a product of two values mixes their units."""
    x, weight = a["self"], a.get("other", a.get("mat2"))
    if not walk.weight(weight) or weight.meta["val"].ndim != 2 or walk.key(x):
        return walk.freeze_all(node)
    return _product(walk, node, x, weight, reads=0, makes=1, bias=None)


def _product(walk: LabelPass, node: fx.Node, x: fx.Node, weight: fx.Node, reads: int, makes: int, bias: Any) -> Labels:
    walk.ties.tie(walk.axis_labels(weight, reads, "consumer"), walk.ties.along(walk.labels(x), -1))
    rows = walk.axis_labels(weight, makes, "producer")
    follow(walk, rows, bias)
    walk.makes(node, weight, makes, bias)
    shape = node.meta["val"].shape
    walk.charge(weight, node, shape[-1])
    return spread(rows, len(shape) - 1, shape)


def embedding(walk: LabelPass, node: fx.Node, a: Arguments) -> Labels:
    if not walk.weight(a["weight"]):
        return walk.freeze_all(node, _COMPUTED)
    rows = walk.axis_labels(a["weight"], 1, "producer")
    walk.makes(node, a["weight"], 1, None)
    shape = node.meta["val"].shape
    return spread(rows, len(shape) - 1, shape)


def convolution(walk: LabelPass, node: fx.Node, a: Arguments) -> Labels:
    """A convolution of any number of axes and groups, transposed or not.

    In a grouped convolution all groups must stay equally large: the j-th input of every group is one unit, and so
    is the j-th output. Where each group has one input (depthwise) the outputs simply follow their inputs.
    """
    x, weight, bias, groups = a["input"], a["weight"], a["bias"], a["groups"]
    shape = node.meta["val"].shape
    axis = len(shape) - weight.meta["val"].ndim + 1
    is_depthwise = groups > 1 and groups == x.meta["val"].shape[axis]
    # Fixed filters (a blur) may go along with their input; what makes units of its own must be a parameter.
    if not (walk.weight(weight) or (is_depthwise and walk.key(weight))) or not is_free(walk, bias):
        return walk.freeze_all(node, _COMPUTED)
    inputs = walk.ties.along(walk.labels(x), axis)
    is_transposed = a.get("transposed") or operator_name(node).startswith("conv_transpose")
    if is_depthwise:
        outputs = _depthwise(walk, weight, inputs, shape[axis])
    elif is_transposed:
        outputs = _transposed(walk, node, a, inputs, groups)
    else:
        outputs = _grouped(walk, node, a, inputs, groups)
    walk.charge(weight, x if is_transposed else node, (x if is_transposed else node).meta["val"].shape[axis])
    follow(walk, outputs, bias)
    return spread(outputs, axis, shape)


def _depthwise(
    walk: LabelPass, weight: fx.Node, inputs: Int64[Tensor, " inputs"], n_outputs: int
) -> Int64[Tensor, " outputs"]:
    outputs = inputs.repeat_interleave(n_outputs // len(inputs))
    filters = walk.axis_labels(weight, 0, "follower")
    walk.ties.tie(filters, outputs if len(filters) == n_outputs else inputs)
    return outputs


def _grouped(walk: LabelPass, node: fx.Node, a: Arguments, inputs: Tensor, groups: int) -> Int64[Tensor, " outputs"]:
    walk.ties.tie(walk.axis_labels(a["weight"], 1, "consumer"), inputs.view(groups, -1))
    outputs = walk.axis_labels(a["weight"], 0, "producer")
    # One weight tensor has one number of rows a group: uneven groups cannot be stored.
    walk.ties.tie(outputs.view(groups, -1), outputs.view(groups, -1)[0])
    walk.makes(node, a["weight"], 0, a["bias"])
    return outputs


def _transposed(walk: LabelPass, node: fx.Node, a: Arguments, inputs: Tensor, groups: int) -> Int64[Tensor, " outputs"]:
    walk.ties.tie(walk.axis_labels(a["weight"], 0, "consumer"), inputs)
    walk.ties.tie(inputs.view(groups, -1), inputs.view(groups, -1)[0])
    outputs = walk.axis_labels(a["weight"], 1, "producer").repeat(groups)
    walk.makes(node, a["weight"], 1, a["bias"])
    return outputs


def attention(walk: LabelPass, node: fx.Node, a: Arguments) -> Any:
    return walk.freeze_all(node, "attention mixes its units")
