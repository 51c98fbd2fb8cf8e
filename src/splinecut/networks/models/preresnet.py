"""Pre-activation bottleneck ResNet for CIFAR (He et al. 2016b) whose blocks can drop input channels by a selector."""

from __future__ import annotations

from torch import Tensor, nn

from splinecut.errors import InputError
from splinecut.networks.layers import Select
from splinecut.networks.models.activations import Activation
from splinecut.networks.models.building_blocks import conv1x1, conv3x3, require_image, scaled, start

STEM = 16
PLANES = (16, 32, 64)
EXPANSION = 4


class Bottleneck(nn.Module):
    """x + W3 a(W2 a(W1 a(x))), where a is batch norm then activation and W1's input passes a selector."""

    def __init__(self, inputs: int, planes: int, stride: int, activation: Activation) -> None:
        super().__init__()
        outputs = EXPANSION * planes
        self.bn1 = nn.BatchNorm2d(inputs)
        self.select = Select(inputs)
        self.act1 = activation()
        self.conv1 = conv1x1(inputs, planes)
        self.bn2 = nn.BatchNorm2d(planes)
        self.act2 = activation()
        self.conv2 = conv3x3(planes, planes, stride)
        self.bn3 = nn.BatchNorm2d(planes)
        self.act3 = activation()
        self.conv3 = conv1x1(planes, outputs)
        keeps_shape = stride == 1 and inputs == outputs
        self.shortcut = nn.Identity() if keeps_shape else conv1x1(inputs, outputs, stride)

    def forward(self, x: Tensor) -> Tensor:
        inner = self.conv1(self.act1(self.select(self.bn1(x))))
        inner = self.conv2(self.act2(self.bn2(inner)))
        inner = self.conv3(self.act3(self.bn3(inner)))
        return self.shortcut(x) + inner


class PreResNet(nn.Module):
    """A stem, three stages of equally many bottlenecks, and a linear layer behind a last selector."""

    def __init__(
        self, in_channels: int, image_size: int, classes: int, blocks: int, width: float, activation: Activation
    ) -> None:
        super().__init__()
        channels = scaled(STEM, width)
        self.stem = conv3x3(in_channels, channels)
        stages: list[nn.Module] = []
        for number, base in enumerate(PLANES):
            planes = scaled(base, width)
            for block in range(blocks):
                stride = 2 if number and block == 0 else 1
                stages.append(Bottleneck(channels, planes, stride, activation))
                channels = EXPANSION * planes
        self.blocks = nn.Sequential(*stages)
        self.bn = nn.BatchNorm2d(channels)
        self.select = Select(channels)
        self.act = activation()
        self.pool = nn.AdaptiveAvgPool2d(1)
        self.flatten = nn.Flatten()
        self.classifier = nn.Linear(channels, classes)
        self.input_shape = (in_channels, image_size, image_size)
        start(self, gamma=0.5)

    def forward(self, x: Tensor) -> Tensor:
        stream = self.blocks(self.stem(x))
        return self.classifier(self.flatten(self.pool(self.act(self.select(self.bn(stream))))))


def preresnet(
    classes: int = 10,
    in_channels: int = 3,
    width: float = 1.0,
    activation: Activation = nn.ReLU,
    image_size: int | None = None,
    depth: int = 101,
) -> PreResNet:
    """Pre-activation bottleneck ResNet for CIFAR with prunable input selectors; any depth 9n+2."""
    blocks, rest = divmod(depth - 2, 9)
    if rest or blocks < 1:
        nearest = 9 * max(1, round((depth - 2) / 9)) + 2
        raise InputError(f"preresnet's depth must be 9n+2 (11, 20, 29, ...), got {depth}; use preresnet{nearest}")
    size = require_image("preresnet", image_size, default=32, at_least=1)
    return PreResNet(in_channels, size, classes, blocks, width, activation)
