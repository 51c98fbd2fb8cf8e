"""Fully connected networks; the default is the paper's FCNet, 2 -> 20 -> 2."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

from torch import nn

from splinecut.errors import InputError
from splinecut.networks.models.activations import Activation
from splinecut.networks.models.building_blocks import scaled


class MLP(nn.Sequential):
    """Linear layers with an activation between each two; an input of any shape is flattened first."""

    def __init__(
        self, input_shape: tuple[int, ...], hidden: Iterable[int], outputs: int, activation: Activation
    ) -> None:
        layers: list[nn.Module] = [nn.Flatten()] if len(input_shape) > 1 else []
        inputs = math.prod(input_shape)
        for units in hidden:
            layers += [nn.Linear(inputs, units), activation()]
            inputs = units
        super().__init__(*layers, nn.Linear(inputs, outputs))
        self.input_shape = input_shape


def mlp(
    classes: int = 2,
    in_channels: int = 2,
    width: float = 1.0,
    activation: Activation = nn.ReLU,
    image_size: int | None = None,
    hidden: Sequence[int] = (20,),
) -> MLP:
    """Fully connected network: the paper's FCNet by default, `hidden` units per layer.

    Takes points of `in_channels` coordinates, or, given an `image_size`, images, which it flattens.
    """
    if any(units < 1 for units in hidden):
        raise InputError(f"hidden must list layers of at least one unit, got {list(hidden)}; leave a layer out instead")
    input_shape = (in_channels,) if image_size is None else (in_channels, image_size, image_size)
    return MLP(input_shape, [scaled(units, width) for units in hidden], classes, activation)
