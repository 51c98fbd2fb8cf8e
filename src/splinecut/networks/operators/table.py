"""The operator table: one row says what an aten operator is to geometry and how it couples channels.

Geometry refuses what has no `read` (`trace`); groups leave uncut what has no `couple` (`groups.label_pass`). So an
operator is added, for both, in one row here.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from splinecut.networks.groups.rules import axes, layers, movement, norms, pointwise
from splinecut.networks.groups.rules.base import Rule
from splinecut.networks.operators import readers, windows
from splinecut.networks.operators.calls import Affine, Fold, Max, OpCall, Pieces, Smooth, Unsupported, as_called
from splinecut.networks.operators.readers import Reader, Shapes


@dataclass(frozen=True)
class Operator:
    """One row; `names` are aten names without overload or in-place underscore, {n} stands for 1, 2 and 3.

    op:          what `Graph.Node.op` calls it; empty: the aten name.
    read:        what a call is to geometry; None: geometry refuses it.
    couple:      labels of its value, and which labels it ties; None: it mixes its units as far as we know.
    smooth:      for what is not piecewise affine, kinks of the relu it softens (none: no activation); None: not known.
    keeps_zero:  gives zeros where all its inputs are zeros, so it may follow a dropped residual branch.
    keeps_units: entry i of its value belongs to the unit that entry i of its inputs belongs to.
    makes_units: its channels are units of its weight, whatever it reads.
    """

    names: str
    op: str = ""
    read: Reader | None = None
    couple: Rule | None = None
    smooth: tuple[float, ...] | None = None
    keeps_zero: bool = False
    keeps_units: bool = False
    makes_units: bool = False

    def each_name(self) -> Iterator[str]:
        """All aten names of the row."""
        for name in self.names.split():
            yield from (name.replace("{n}", str(n)) for n in (1, 2, 3)) if "{n}" in name else (name,)


_RELU = (0.0,)  # the kink of the activations that soften relu
_LINEAR = readers.one_input
_EACH = pointwise.elementwise

OPERATORS: tuple[Operator, ...] = (
    # Layers
    Operator("linear", "linear", _LINEAR, layers.linear, makes_units=True),
    Operator("matmul mm", "matmul", _LINEAR, layers.matmul, makes_units=True),
    Operator("conv{n}d convolution", "conv", _LINEAR, layers.convolution, makes_units=True),
    Operator("conv_transpose{n}d", "conv_transpose", _LINEAR, layers.convolution),
    Operator("embedding", couple=layers.embedding),
    Operator("scaled_dot_product_attention", couple=layers.attention, smooth=()),
    Operator(
        "batch_norm _native_batch_norm_legit_no_training",
        *("batch_norm", readers.batch_norm, norms.channel_norm),
        keeps_units=True,
    ),
    Operator("instance_norm", couple=norms.channel_norm, smooth=()),
    Operator("layer_norm", couple=norms.layer_norm, smooth=()),
    Operator("rms_norm", couple=norms.layer_norm),
    Operator("group_norm", couple=norms.group_norm, smooth=()),
    # Activations
    Operator("relu leaky_relu abs", read=readers.fold(0.0), couple=_EACH, keeps_zero=True),
    Operator("prelu", read=readers.fold(0.0), couple=norms.prelu),
    Operator("relu6", read=readers.fold(0.0, 6.0), couple=_EACH, keeps_zero=True),
    Operator("hardtanh", read=readers.clamp("min_val", "max_val"), couple=_EACH),
    Operator("clamp", read=readers.clamp("min", "max"), couple=_EACH),
    Operator("clamp_min", read=readers.clamp("min", ""), couple=_EACH),
    Operator("clamp_max", read=readers.clamp("", "max"), couple=_EACH),
    Operator("gelu hardswish silu tanh", couple=_EACH, smooth=_RELU, keeps_zero=True),
    Operator("celu elu mish selu softplus", couple=_EACH, smooth=_RELU),
    Operator("sigmoid log_sigmoid", couple=_EACH, smooth=()),
    Operator("glu", smooth=()),
    Operator("softmax log_softmax", couple=axes.along_axis, smooth=()),
    Operator("hardshrink hardsigmoid softshrink threshold", couple=_EACH),
    # Arithmetic, entry by entry
    Operator("add", "add", readers.sum_of_two, _EACH, keeps_units=True),
    Operator("sub", "sub", readers.sum_of_two, _EACH, keeps_units=True),
    Operator("rsub", "rsub", readers.sum_of_two, _EACH, keeps_units=True),
    Operator("mul", "mul", readers.product, _EACH, keeps_zero=True, keeps_units=True),
    Operator("div", "div", readers.product, _EACH, keeps_units=True),
    Operator("neg", "neg", readers.negation, _EACH, keeps_zero=True, keeps_units=True),
    Operator("maximum", "max", windows.largest(windows.pairs), _EACH),
    Operator("erf exp log pow rsqrt sqrt square", couple=_EACH, smooth=()),
    Operator(
        "absolute addcdiv addcmul atan bitwise_and bitwise_not bitwise_or ceil clip cos divide eq exp2 expm1 floor ge "
        "gt isnan le lerp log1p logical_and logical_not logical_or lt masked_fill minimum multiply nan_to_num ne "
        "negative reciprocal round sign sin subtract true_divide trunc type_as where",
        couple=_EACH,
    ),
    # Copies and fills
    Operator("clone contiguous", "identity", readers.identity, _EACH, keeps_zero=True, keeps_units=True),
    Operator("dropout", "identity", readers.identity, _EACH, keeps_zero=True, keeps_units=True),
    Operator(
        "feature_dropout alpha_dropout feature_alpha_dropout alias detach to _to_copy lift_fresh_copy",
        *("identity", readers.identity, _EACH),
        keeps_units=True,
    ),
    Operator("zeros_like", "constant", readers.constant(0.0), _EACH),
    Operator("ones_like", "constant", readers.constant(1.0), _EACH),
    Operator("full_like", "constant", readers.constant(), _EACH),
    Operator("zeros new_zeros", "constant", readers.constant(0.0)),
    Operator("ones new_ones", "constant", readers.constant(1.0)),
    Operator("full new_full", "constant", readers.constant()),
    # Pooling, padding, upsampling
    Operator(
        "max_pool{n}d max_pool{n}d_with_indices", "max_pool", windows.largest(windows.pool), couple=axes.per_channel
    ),
    Operator("adaptive_max_pool{n}d", "max_pool", windows.largest(windows.adaptive_pool), axes.per_channel),
    Operator("avg_pool{n}d adaptive_avg_pool{n}d", "avg_pool", _LINEAR, axes.per_channel),
    Operator("upsample_nearest{n}d", "upsample", _LINEAR, axes.per_channel),
    Operator("_upsample_nearest_exact{n}d", couple=axes.per_channel),
    Operator("upsample_linear1d upsample_bilinear2d upsample_bicubic2d upsample_trilinear3d", couple=axes.per_channel),
    Operator("pad constant_pad_nd", "pad", _LINEAR, axes.pad),
    Operator("reflection_pad{n}d replication_pad{n}d", couple=axes.per_channel),
    # Reductions
    Operator("mean", "mean", _LINEAR, axes.reduce),
    Operator("sum", "sum", _LINEAR, axes.reduce),
    Operator("amax max", "max", windows.largest(windows.along_axes), axes.reduce),
    Operator("amin logsumexp min std var", couple=axes.reduce),
    Operator("cumsum", couple=axes.along_axis),
    # Movement of entries
    Operator("view reshape _unsafe_view flatten unflatten squeeze", "reshape", readers.reshape, movement.reshape),
    Operator("unsqueeze", "reshape", readers.reshape, movement.move),
    Operator("expand", "expand", readers.expand, movement.move),
    Operator("permute transpose flip pixel_shuffle pixel_unshuffle", read=_LINEAR, couple=movement.move),
    Operator("mT movedim swapaxes swapdims t", couple=movement.move),
    Operator("channel_shuffle", "channel_shuffle", _LINEAR, movement.channel_shuffle),
    Operator("slice select", read=_LINEAR, couple=movement.by_position),
    Operator("narrow roll unbind", couple=movement.by_position),
    Operator("index_select", "index_select", _LINEAR, movement.index_select),
    Operator("index", "index", _LINEAR),
    Operator("cat concat", "cat", readers.joined, movement.cat),
    Operator("stack", "stack", readers.joined, movement.stack),
    Operator("chunk split split_with_sizes", "split", readers.pieces, movement.pieces),
)

BY_NAME: Mapping[str, Operator] = {name: row for row in OPERATORS for name in row.each_name()}
"""aten name -> its row"""


def op_of(name: str) -> str:
    """What `Graph.Node.op` calls the operator of this aten name."""
    return (BY_NAME[name].op if name in BY_NAME else "") or name


def ops_where(flag: str) -> frozenset[str]:
    """`Graph.Node.op` of all rows in which a flag such as "keeps_units" is set."""
    return frozenset(op_of(name) for name, row in BY_NAME.items() if getattr(row, flag))


def read(call: OpCall, shapes: Shapes) -> Affine | Fold | Max | Pieces:
    """What the call is to geometry; `shapes` are those of its inputs. Raises `Unsupported` with the reason."""
    row = BY_NAME.get(call.name)
    if row is not None and row.read is not None:
        return row.read(call, shapes)
    if row is not None and row.smooth is not None:
        raise Unsupported("it is smooth, so it has no cuts; soft codes (splinecut.geometry.soft_codes) describe it")
    names = {name.replace("{n}d", "") for row in OPERATORS if row.read for name in row.names.split()}
    raise Unsupported(f"supported are {', '.join(sorted(name for name in names if name[0] != '_'))}")


def read_with_smooth(call: OpCall, shapes: Shapes) -> Affine | Fold | Max | Pieces | Smooth:
    """As `read`, but what it refuses is run as called: enough to see codes, not enough for exact geometry."""
    try:
        return read(call, shapes)
    except Unsupported:
        row = BY_NAME.get(call.name)
        return Smooth(as_called(call, first=True), (row.smooth if row is not None else None) or ())
