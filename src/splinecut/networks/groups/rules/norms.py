"""Rules for norms and prelu: their parameters are removed with the units they act on."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from torch import fx, nn

from splinecut.networks.export import module_path
from splinecut.networks.groups.labels import Labels, varies
from splinecut.networks.groups.rules.base import Arguments, follow, is_free

if TYPE_CHECKING:
    from splinecut.networks.groups.label_pass import LabelPass


def channel_norm(walk: LabelPass, node: fx.Node, a: Arguments) -> Any:
    """Batch and instance norm treat each channel alone."""
    x = a["input"]
    vectors = [a.get(name) for name in ("weight", "bias", "running_mean", "running_var")]
    if not all(is_free(walk, vector) for vector in vectors):
        return walk.freeze_all(node)
    labels = walk.labels(x)
    follow(walk, walk.ties.along(labels, 1), *vectors)
    key = next((walk.keys[vector] for vector in vectors if vector is not None), "")
    walk.norm_of[node] = key.rpartition(".")[0]
    if key and x in walk.produced_by and len(x.users) == 1:
        walk.norm_after[walk.produced_by[x]] = walk.norm_of[node]
    return (labels, None, None) if isinstance(node.meta["val"], (tuple, list)) else labels


def layer_norm(walk: LabelPass, node: fx.Node, a: Arguments) -> Any:
    """Layer and RMS norm over the last axis: the statistics are those of the units that are left."""
    module, labels = walk.module(node), walk.labels(a["input"])
    sized = (nn.LayerNorm, nn.RMSNorm)
    if not any(varies(labels, axis) for axis in range(-len(a["normalized_shape"]), 0)):
        return labels
    if len(a["normalized_shape"]) > 1 or not _is_standard(module, sized) or walk.key(a["weight"]) is None:
        return walk.freeze_all(node, f"{module_path(node)} normalises its units together and has no size we can change")
    follow(walk, walk.ties.along(labels, -1), a["weight"], a.get("bias"))
    return labels


def group_norm(walk: LabelPass, node: fx.Node, a: Arguments) -> Any:
    """All groups must stay equally large, as in a grouped convolution; one channel a group is an instance norm."""
    module, labels = walk.module(node), walk.labels(a["input"])
    if not _is_standard(module, (nn.GroupNorm,)) or walk.key(a["weight"]) is None:
        return walk.freeze_all(node, f"{module_path(node)} normalises its units together and has no size we can change")
    units = walk.ties.along(labels, 1)
    if len(units) > a["num_groups"]:
        walk.ties.tie(units.view(a["num_groups"], -1), units.view(a["num_groups"], -1)[0])
    follow(walk, units, a["weight"], a["bias"])
    return labels


def _is_standard(module: nn.Module, kinds: tuple[type[nn.Module], ...]) -> bool:
    return any(isinstance(module, kind) and type(module).forward is kind.forward for kind in kinds)


def prelu(walk: LabelPass, node: fx.Node, a: Arguments) -> Labels:
    labels = walk.labels(a["self"])
    if not walk.key(a["weight"]):
        return walk.freeze_all(node)
    if a["weight"].meta["val"].numel() > 1:
        follow(walk, walk.ties.along(labels, 1), a["weight"])
    return labels
