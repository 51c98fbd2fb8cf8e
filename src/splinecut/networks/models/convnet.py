"""A plain stack of convolutions for small images: the paper's ConvNet and two presets of ours."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from torch import Tensor, nn

from splinecut.errors import InputError, unknown
from splinecut.networks.models.activations import Activation
from splinecut.networks.models.building_blocks import scaled


@dataclass(frozen=True)
class Stack:
    """One entry per convolution, and the image side the stack was made for."""

    filters: tuple[int, ...]
    kernels: tuple[int, ...]
    strides: tuple[int, ...]
    paddings: tuple[int, ...]
    image_size: int

    def __post_init__(self) -> None:
        if len({len(self.filters), len(self.kernels), len(self.strides), len(self.paddings)}) > 1:
            raise InputError(f"filters, kernels, strides and paddings must be equally long, got {self}; give all four")
        if min((*self.filters, *self.kernels, *self.strides)) < 1 or min(self.paddings) < 0:
            raise InputError(f"filters, kernels and strides must be positive, paddings not negative, got {self}")

    def layers(self) -> Iterator[tuple[int, int, int, int]]:
        """Filters, kernel, stride and padding of each convolution."""
        return zip(self.filters, self.kernels, self.strides, self.paddings, strict=True)

    def sides(self) -> list[int]:
        """The image's side before the first convolution and after each; an error once nothing is left of it."""
        sides = [self.image_size]
        for _, kernel, stride, padding in self.layers():
            room = sides[-1] + 2 * padding - kernel
            if room < 0:
                raise InputError(
                    f"convnet: kernel {kernel} does not fit in its {sides[-1]}x{sides[-1]} input "
                    f"(images of {self.image_size}x{self.image_size}); use larger images or another preset"
                )
            sides.append(room // stride + 1)
        return sides


PRESETS = {
    # The paper: 20 filters of 21x21, then of 5x5, on MNIST; the authors' code has no padding and no pooling.
    "paper": Stack((20, 20), (21, 5), (1, 1), (0, 0), 28),
    "digits": Stack((16, 32), (3, 3), (1, 2), (1, 1), 8),
    "fashion": Stack((32, 64, 64), (3, 3, 3), (2, 2, 2), (1, 1, 1), 28),
}


class ConvNet(nn.Module):
    """Convolution, batch norm, activation, repeated; then one linear layer over all that is left."""

    def __init__(self, in_channels: int, stack: Stack, classes: int, activation: Activation) -> None:
        super().__init__()
        layers: list[nn.Module] = []
        inputs = in_channels
        for filters, kernel, stride, padding in stack.layers():
            convolution = nn.Conv2d(inputs, filters, kernel, stride, padding, bias=False)
            layers += [convolution, nn.BatchNorm2d(filters), activation()]
            inputs = filters
        self.features = nn.Sequential(*layers)
        self.flatten = nn.Flatten()
        self.classifier = nn.Linear(inputs * stack.sides()[-1] ** 2, classes)
        self.input_shape = (in_channels, stack.image_size, stack.image_size)

    def forward(self, x: Tensor) -> Tensor:
        return self.classifier(self.flatten(self.features(x)))


def convnet(
    classes: int = 10,
    in_channels: int = 1,
    width: float = 1.0,
    activation: Activation = nn.ReLU,
    image_size: int | None = None,
    preset: str = "paper",
    filters: Sequence[int] | None = None,
    kernels: Sequence[int] | None = None,
    strides: Sequence[int] | None = None,
    paddings: Sequence[int] | None = None,
) -> ConvNet:
    """Small ConvNet with batch norm: presets paper, digits, fashion; or your filters, kernels, strides, paddings."""
    if preset not in PRESETS:
        raise unknown("convnet preset", preset, PRESETS)
    base = PRESETS[preset]
    stack = Stack(
        filters=tuple(scaled(channels, width) for channels in filters or base.filters),
        kernels=tuple(kernels or base.kernels),
        strides=tuple(strides or base.strides),
        paddings=tuple(paddings or base.paddings),
        image_size=image_size or base.image_size,
    )
    return ConvNet(in_channels, stack, classes, activation)
