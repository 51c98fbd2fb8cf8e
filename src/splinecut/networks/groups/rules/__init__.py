"""What each operation does to the units that pass through it: one table, operator name -> rule.

A rule ties the labels it must, and returns the labels of the operation's value. An operator that is not in the
table mixes its units as far as we know, so they stay whole.
"""

from __future__ import annotations

from splinecut.networks.groups.rules.axes import along_axis, pad, per_channel, reduce
from splinecut.networks.groups.rules.base import Rule
from splinecut.networks.groups.rules.layers import attention, convolution, embedding, linear, matmul
from splinecut.networks.groups.rules.movement import (
    by_position,
    cat,
    channel_shuffle,
    index_select,
    move,
    pieces,
    reshape,
    stack,
)
from splinecut.networks.groups.rules.norms import channel_norm, group_norm, layer_norm, prelu
from splinecut.networks.groups.rules.pointwise import elementwise


def _named(names: str, rule: Rule) -> dict[str, Rule]:
    return dict.fromkeys(names.split(), rule)


def _dimensioned(names: str) -> dict[str, Rule]:
    return {name.replace("#", str(n)): per_channel(n) for name in names.split() for n in (1, 2, 3)}


RULES: dict[str, Rule] = {
    "linear": linear,
    **_named("matmul mm", matmul),
    "embedding": embedding,
    **_named("convolution conv1d conv2d conv3d conv_transpose1d conv_transpose2d conv_transpose3d", convolution),
    **_named("batch_norm _native_batch_norm_legit_no_training instance_norm", channel_norm),
    **_named("layer_norm rms_norm", layer_norm),
    "group_norm": group_norm,
    "prelu": prelu,
    **_named(
        "abs absolute add addcdiv addcmul alias alpha_dropout atan bitwise_and bitwise_not bitwise_or ceil celu clamp "
        "clamp_max clamp_min clip clone contiguous cos detach div divide dropout elu eq erf exp exp2 expm1 "
        "feature_alpha_dropout feature_dropout floor full_like ge gelu gt hardshrink hardsigmoid hardswish hardtanh "
        "isnan le leaky_relu lerp lift_fresh_copy log log1p log_sigmoid logical_and logical_not logical_or lt "
        "masked_fill maximum minimum mish mul multiply nan_to_num ne neg negative ones_like pow reciprocal relu relu6 "
        "round rsqrt rsub selu sigmoid sign silu sin softplus softshrink softsign sqrt square sub subtract tanh "
        "threshold to _to_copy true_divide trunc type_as where zeros_like",
        elementwise,
    ),
    **_dimensioned("max_pool#d max_pool#d_with_indices adaptive_max_pool#d avg_pool#d adaptive_avg_pool#d lp_pool#d"),
    **_dimensioned("upsample_nearest#d _upsample_nearest_exact#d reflection_pad#d replication_pad#d"),
    **_named("upsample_linear1d", per_channel(1)),
    **_named("upsample_bilinear2d upsample_bicubic2d", per_channel(2)),
    **_named("upsample_trilinear3d", per_channel(3)),
    **_named("pad constant_pad_nd", pad),
    **_named("amax amin logsumexp max mean min std sum var", reduce),
    **_named("cumsum log_softmax softmax", along_axis),
    **_named(
        "expand flip mT movedim permute pixel_shuffle pixel_unshuffle swapaxes swapdims t transpose unsqueeze", move
    ),
    **_named("flatten reshape squeeze unflatten view _unsafe_view", reshape),
    **_named("cat concat", cat),
    "stack": stack,
    **_named("narrow roll select slice unbind", by_position),
    **_named("chunk split split_with_sizes", pieces),
    "scaled_dot_product_attention": attention,
    "channel_shuffle": channel_shuffle,
    "index_select": index_select,
}
