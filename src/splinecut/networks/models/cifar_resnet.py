"""ResNet-20, 32, 44, 56 and 110 for CIFAR-10 (He et al. 2016a, Sec. 4.2): shortcuts have no weights (option A).

Modules carry the names of akamaster/pytorch_resnet_cifar10, so its trained weights load as they are.
"""

from __future__ import annotations

from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional

from splinecut.errors import InputError
from splinecut.networks.models.activations import Activation
from splinecut.networks.models.building_blocks import conv3x3, require_image, scaled, start

PLANES = (16, 32, 64)


class Block(nn.Module):
    """Two 3x3 convolutions beside a shortcut: subsampled where they have a stride, zeros for the new channels."""

    def __init__(self, inputs: int, outputs: int, stride: int, activation: Activation) -> None:
        super().__init__()
        self.conv1 = conv3x3(inputs, outputs, stride)
        self.bn1 = nn.BatchNorm2d(outputs)
        self.act1 = activation()
        self.conv2 = conv3x3(outputs, outputs)
        self.bn2 = nn.BatchNorm2d(outputs)
        self.act2 = activation()
        self.stride = stride
        # Zeros on both sides, as in the published code: half of the new channels before the old ones, half after.
        before = (outputs - inputs) // 2
        self.new_channels = (before, outputs - inputs - before)

    def forward(self, x: Float[Tensor, "n inputs h w"]) -> Float[Tensor, "n outputs h2 w2"]:
        branch = self.bn2(self.conv2(self.act1(self.bn1(self.conv1(x)))))
        if self.stride > 1:
            x = x[:, :, :: self.stride, :: self.stride]
        if any(self.new_channels):
            x = functional.pad(x, (0, 0, 0, 0, *self.new_channels))
        return self.act2(branch + x)


class CifarResNet(nn.Module):
    """A stem, three stages of equally many blocks, average pooling and a linear layer."""

    def __init__(
        self, in_channels: int, image_size: int, classes: int, blocks: int, width: float, activation: Activation
    ) -> None:
        super().__init__()
        channels = scaled(PLANES[0], width)
        self.conv1 = conv3x3(in_channels, channels)
        self.bn1 = nn.BatchNorm2d(channels)
        self.act1 = activation()
        stages = []
        for number, base in enumerate(PLANES):
            stage: list[nn.Module] = []
            for block in range(blocks):
                stride = 2 if number and block == 0 else 1
                stage.append(Block(channels, scaled(base, width), stride, activation))
                channels = scaled(base, width)
            stages.append(nn.Sequential(*stage))
        self.layer1, self.layer2, self.layer3 = stages
        self.pool = nn.AdaptiveAvgPool2d(1)
        self.flatten = nn.Flatten()
        self.linear = nn.Linear(channels, classes)
        self.input_shape = (in_channels, image_size, image_size)
        start(self, gamma=1.0)

    def forward(self, x: Float[Tensor, "n channels h w"]) -> Float[Tensor, "n classes"]:
        x = self.layer3(self.layer2(self.layer1(self.act1(self.bn1(self.conv1(x))))))
        return self.linear(self.flatten(self.pool(x)))


def cifar_resnet(
    classes: int = 10,
    in_channels: int = 3,
    width: float = 1.0,
    activation: Activation = nn.ReLU,
    image_size: int | None = None,
    depth: int = 56,
) -> CifarResNet:
    """ResNet for CIFAR with shortcuts that have no weights (option A); any depth 6n+2."""
    blocks, rest = divmod(depth - 2, 6)
    if rest or blocks < 1:
        nearest = 6 * max(1, round((depth - 2) / 6)) + 2
        raise InputError(
            f"cifar_resnet's depth must be 6n+2 (20, 32, 44, 56, 110, ...), got {depth}; use cifar_resnet{nearest}"
        )
    size = require_image("cifar_resnet", image_size, default=32, at_least=1)
    return CifarResNet(in_channels, size, classes, blocks, width, activation)
