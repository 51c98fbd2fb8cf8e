"""ResNet-18 and ResNet-50 for ImageNet (He et al. 2016a): no convolution bias, stride in the 3x3.

Parameters carry torchvision's names, so its trained weights load as they are.
"""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor, nn

from splinecut.networks.models.activations import Activation
from splinecut.networks.models.building_blocks import conv1x1, conv3x3, require_image, scaled, start

PLANES = (64, 128, 256, 512)


class BasicBlock(nn.Module):
    """Two 3x3 convolutions beside a shortcut."""

    expansion = 1

    def __init__(self, inputs: int, planes: int, stride: int, activation: Activation) -> None:
        super().__init__()
        self.conv1 = conv3x3(inputs, planes, stride)
        self.bn1 = nn.BatchNorm2d(planes)
        self.act1 = activation()
        self.conv2 = conv3x3(planes, planes)
        self.bn2 = nn.BatchNorm2d(planes)
        self.downsample = _shortcut(inputs, planes, stride)
        self.act2 = activation()

    def forward(self, x: Tensor) -> Tensor:
        inner = self.act1(self.bn1(self.conv1(x)))
        inner = self.bn2(self.conv2(inner))
        return self.act2(inner + self.downsample(x))


class Bottleneck(nn.Module):
    """1x1, 3x3 (with the stride) and 1x1 convolutions beside a shortcut."""

    expansion = 4

    def __init__(self, inputs: int, planes: int, stride: int, activation: Activation) -> None:
        super().__init__()
        outputs = self.expansion * planes
        self.conv1 = conv1x1(inputs, planes)
        self.bn1 = nn.BatchNorm2d(planes)
        self.act1 = activation()
        self.conv2 = conv3x3(planes, planes, stride)
        self.bn2 = nn.BatchNorm2d(planes)
        self.act2 = activation()
        self.conv3 = conv1x1(planes, outputs)
        self.bn3 = nn.BatchNorm2d(outputs)
        self.downsample = _shortcut(inputs, outputs, stride)
        self.act3 = activation()

    def forward(self, x: Tensor) -> Tensor:
        inner = self.act1(self.bn1(self.conv1(x)))
        inner = self.act2(self.bn2(self.conv2(inner)))
        inner = self.bn3(self.conv3(inner))
        return self.act3(inner + self.downsample(x))


def _shortcut(inputs: int, outputs: int, stride: int) -> nn.Module:
    if stride == 1 and inputs == outputs:
        return nn.Identity()
    return nn.Sequential(conv1x1(inputs, outputs, stride), nn.BatchNorm2d(outputs))


class ResNet(nn.Module):
    """A strided stem, four stages of residual blocks, average pooling and a linear layer."""

    def __init__(
        self,
        block: type[BasicBlock | Bottleneck],
        blocks: Sequence[int],
        in_channels: int,
        image_size: int,
        classes: int,
        width: float,
        activation: Activation,
    ) -> None:
        super().__init__()
        channels = scaled(PLANES[0], width)
        self.conv1 = nn.Conv2d(in_channels, channels, 7, stride=2, padding=3, bias=False)
        self.bn1 = nn.BatchNorm2d(channels)
        self.act1 = activation()
        self.maxpool = nn.MaxPool2d(3, stride=2, padding=1)
        stages = []
        for number, (count, base) in enumerate(zip(blocks, PLANES, strict=True)):
            stage: list[nn.Module] = []
            for position in range(count):
                stride = 2 if number and position == 0 else 1
                stage.append(block(channels, scaled(base, width), stride, activation))
                channels = block.expansion * scaled(base, width)
            stages.append(nn.Sequential(*stage))
        self.layer1, self.layer2, self.layer3, self.layer4 = stages
        self.avgpool = nn.AdaptiveAvgPool2d(1)
        self.flatten = nn.Flatten()
        self.fc = nn.Linear(channels, classes)
        self.input_shape = (in_channels, image_size, image_size)
        start(self, gamma=1.0)

    def forward(self, x: Tensor) -> Tensor:
        x = self.maxpool(self.act1(self.bn1(self.conv1(x))))
        x = self.layer4(self.layer3(self.layer2(self.layer1(x))))
        return self.fc(self.flatten(self.avgpool(x)))


def resnet18(
    classes: int = 10,
    in_channels: int = 3,
    width: float = 1.0,
    activation: Activation = nn.ReLU,
    image_size: int | None = None,
) -> ResNet:
    """ResNet-18 for ImageNet."""
    size = require_image("resnet18", image_size, default=224, at_least=1)
    return ResNet(BasicBlock, (2, 2, 2, 2), in_channels, size, classes, width, activation)


def resnet50(
    classes: int = 10,
    in_channels: int = 3,
    width: float = 1.0,
    activation: Activation = nn.ReLU,
    image_size: int | None = None,
) -> ResNet:
    """ResNet-50 for ImageNet, bottleneck blocks."""
    size = require_image("resnet50", image_size, default=224, at_least=1)
    return ResNet(Bottleneck, (3, 4, 6, 3), in_channels, size, classes, width, activation)
