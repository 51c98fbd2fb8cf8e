"""What each operation does to the units that pass through it: one table, operator name -> rule.

A rule ties the labels it must, and returns the labels of the operation's value. An operator that is not in the
table mixes its units as far as we know, so they stay whole.
"""

from __future__ import annotations

from splinecut.networks.rules.axes import along_axis, pad, per_channel, reduce
from splinecut.networks.rules.base import Rule
from splinecut.networks.rules.entries import elementwise
from splinecut.networks.rules.layers import attention, convolution, embedding, linear, matmul
from splinecut.networks.rules.moves import by_position, cat, channel_shuffle, index_select, move, pieces, reshape, stack
from splinecut.networks.rules.norms import channel_norm, group_norm, layer_norm, prelu


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
        "abs add addcdiv addcmul alias alpha_dropout celu clamp clamp_max clamp_min clone contiguous cos detach div "
        "dropout elu erf exp feature_alpha_dropout feature_dropout gelu hardsigmoid hardswish hardtanh leaky_relu lerp "
        "lift_fresh_copy log log1p log_sigmoid maximum minimum mish mul neg pow reciprocal relu relu6 rsqrt rsub selu "
        "sigmoid sign silu sin softplus softsign sqrt square sub tanh to _to_copy where",
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
    **_named("expand flip mT movedim permute pixel_shuffle pixel_unshuffle t transpose unsqueeze", move),
    **_named("flatten reshape squeeze unflatten view _unsafe_view", reshape),
    **_named("cat concat", cat),
    "stack": stack,
    **_named("narrow roll select slice unbind", by_position),
    **_named("chunk split split_with_sizes", pieces),
    "scaled_dot_product_attention": attention,
    "channel_shuffle": channel_shuffle,
    "index_select": index_select,
}
