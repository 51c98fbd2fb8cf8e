"""Shared parts of the models: scaled widths, weight initialization, convolutions, smallest image."""

from __future__ import annotations

from torch import nn

from splinecut.errors import InputError


def scaled(channels: int, width: float, multiple: int = 1) -> int:
    """`width` times as many channels, rounded to a multiple of `multiple` (for grouped convolutions), never none."""
    return multiple * max(1, round(channels * width / multiple))


def conv3x3(inputs: int, outputs: int, stride: int = 1) -> nn.Conv2d:
    """A 3x3 convolution that keeps the image's size (at stride 1); batch norm follows, so no bias."""
    return nn.Conv2d(inputs, outputs, 3, stride=stride, padding=1, bias=False)


def conv1x1(inputs: int, outputs: int, stride: int = 1) -> nn.Conv2d:
    """A 1x1 convolution without bias."""
    return nn.Conv2d(inputs, outputs, 1, stride=stride, bias=False)


def start(model: nn.Module, gamma: float) -> None:
    """Convolutions ~ N(0, 2 / (k k outputs)) (He et al. 2015, fan out), batch norm y = `gamma` x, in place.

    The CIFAR models of network slimming (Liu et al. 2017) start at gamma = 0.5, those of ImageNet at 1.
    """
    for module in model.modules():
        if isinstance(module, nn.Conv2d):
            nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")
        elif isinstance(module, nn.BatchNorm2d):
            nn.init.constant_(module.weight, gamma)
            nn.init.zeros_(module.bias)


def require_image(model: str, image_size: int | None, default: int, at_least: int) -> int:
    """The side of the square images `model` is built for; an error where nothing would be left of one inside."""
    size = default if image_size is None else image_size
    if size < at_least:
        raise InputError(f"{model} needs images of side {at_least} or more, got {size}; use larger images or convnet")
    return size
