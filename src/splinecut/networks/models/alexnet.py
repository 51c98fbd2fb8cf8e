"""AlexNet (Krizhevsky et al. 2012) as the paper trains it on CIFAR: batch norm, one pooling layer, no dropout."""

from __future__ import annotations

from torch import Tensor, nn

from splinecut.networks.models.activations import Activation
from splinecut.networks.models.building_blocks import require_image, scaled

STEM_KERNEL, STEM_STRIDE = 11, 4
POOL_KERNEL, POOL_STRIDE = 3, 2
# After the stem of 96: output channels, kernel, groups.
CONVOLUTIONS = ((256, 5, 2), (384, 3, 1), (384, 3, 2), (256, 3, 2))
HIDDEN = 4096


class AlexNet(nn.Module):
    """Five convolutions, three of them in two groups, and three linear layers."""

    def __init__(self, in_channels: int, image_size: int, classes: int, width: float, activation: Activation) -> None:
        super().__init__()
        # Groups of two need even channel counts at any width.
        inputs = scaled(96, width, multiple=2)
        stem = nn.Conv2d(in_channels, inputs, STEM_KERNEL, stride=STEM_STRIDE)
        layers: list[nn.Module] = [stem, nn.BatchNorm2d(inputs), activation(), nn.MaxPool2d(POOL_KERNEL, POOL_STRIDE)]
        for channels, kernel, groups in CONVOLUTIONS:
            outputs = scaled(channels, width, multiple=2)
            convolution = nn.Conv2d(inputs, outputs, kernel, padding=kernel // 2, groups=groups)
            layers += [convolution, nn.BatchNorm2d(outputs), activation()]
            inputs = outputs
        self.features = nn.Sequential(*layers)
        self.flatten = nn.Flatten()
        self.classifier = _classifier(inputs * _final_side(image_size) ** 2, scaled(HIDDEN, width), classes, activation)
        self.input_shape = (in_channels, image_size, image_size)

    def forward(self, x: Tensor) -> Tensor:
        return self.classifier(self.flatten(self.features(x)))


def _classifier(inputs: int, hidden: int, classes: int, activation: Activation) -> nn.Sequential:
    return nn.Sequential(
        nn.Linear(inputs, hidden), activation(), nn.Linear(hidden, hidden), activation(), nn.Linear(hidden, classes)
    )


def _final_side(image_size: int) -> int:
    after_stem = (image_size - STEM_KERNEL) // STEM_STRIDE + 1
    return (after_stem - POOL_KERNEL) // POOL_STRIDE + 1


def alexnet(
    classes: int = 10,
    in_channels: int = 3,
    width: float = 1.0,
    activation: Activation = nn.ReLU,
    image_size: int | None = None,
) -> AlexNet:
    """AlexNet for CIFAR: five convolutions with batch norm, three linear layers."""
    # 19 is the smallest image of which the stem leaves the three pixels that pooling needs.
    size = require_image("alexnet", image_size, default=32, at_least=19)
    return AlexNet(in_channels, size, classes, width, activation)
