"""Updates size attributes of modules (`in_channels`, `num_features`) after their parameters were cut."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import nn
from torch.nn.modules.batchnorm import _NormBase
from torch.nn.modules.conv import _ConvNd


def resize(module: nn.Module) -> None:
    """Sets in_channels, num_features and their kin from the shapes of the module's own parameters.

    A module of a kind not listed here keeps its attributes; whether it runs is proved when groups are read.
    """
    for kind, adjust in _SIZES:
        if isinstance(module, kind):
            adjust(module)
            return


def _convolution(module: Any) -> None:
    first, second = module.weight.shape[:2]
    if module.groups > 1 and module.groups == module.in_channels:
        per_input = module.out_channels // module.in_channels
        module.in_channels = module.groups = first if module.transposed else first // per_input
        module.out_channels = module.in_channels * per_input
    elif module.transposed:
        module.in_channels, module.out_channels = first, second * module.groups
    else:
        module.in_channels, module.out_channels = second * module.groups, first


def _linear(module: Any) -> None:
    module.out_features, module.in_features = module.weight.shape


def _embedding(module: Any) -> None:
    module.embedding_dim = module.weight.shape[1]


def _channel_norm(module: Any) -> None:
    vector = module.weight if module.weight is not None else module.running_mean
    if vector is not None:  # an instance norm without either treats any number of channels
        module.num_features = len(vector)


def _group_norm(module: Any) -> None:
    if module.weight is None:
        return
    if module.num_groups == module.num_channels:
        module.num_groups = len(module.weight)
    module.num_channels = len(module.weight)


def _layer_norm(module: Any) -> None:
    if module.weight is None:
        return
    module.normalized_shape = tuple(module.weight.shape)


def _prelu(module: Any) -> None:
    module.num_parameters = len(module.weight)


_SIZES: tuple[tuple[type[nn.Module], Callable[[Any], None]], ...] = (
    (_ConvNd, _convolution),
    (nn.Linear, _linear),
    (nn.Embedding, _embedding),
    (_NormBase, _channel_norm),
    (nn.GroupNorm, _group_norm),
    (nn.LayerNorm, _layer_norm),
    (nn.RMSNorm, _layer_norm),
    (nn.PReLU, _prelu),
)
