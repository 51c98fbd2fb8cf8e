"""VGG-16 (Simonyan & Zisserman 2015) as pruning papers train it on CIFAR: batch norm and a single linear layer."""

from __future__ import annotations

from torch import Tensor, nn

from splinecut.networks.models.activations import Activation
from splinecut.networks.models.building_blocks import conv3x3, require_image, scaled, start

# Channels of the 13 convolutions; between two stages the image is halved by max-pooling, after the last by averaging.
STAGES = ((64, 64), (128, 128), (256, 256, 256), (512, 512, 512), (512, 512, 512))
SHRINKS = 2 ** len(STAGES)


class VGG(nn.Module):
    """Stages of 3x3 convolutions, each with batch norm and activation, then one linear layer."""

    def __init__(self, in_channels: int, image_size: int, classes: int, width: float, activation: Activation) -> None:
        super().__init__()
        layers: list[nn.Module] = []
        inputs = in_channels
        for number, stage in enumerate(STAGES):
            layers += [nn.MaxPool2d(2)] if number else []
            for channels in stage:
                outputs = scaled(channels, width)
                layers += [conv3x3(inputs, outputs), nn.BatchNorm2d(outputs), activation()]
                inputs = outputs
        self.features = nn.Sequential(*layers, nn.AvgPool2d(2))
        self.flatten = nn.Flatten()
        self.classifier = nn.Linear(inputs * (image_size // SHRINKS) ** 2, classes)
        self.input_shape = (in_channels, image_size, image_size)
        start(self, gamma=0.5)
        nn.init.normal_(self.classifier.weight, std=0.01)
        nn.init.zeros_(self.classifier.bias)

    def forward(self, x: Tensor) -> Tensor:
        return self.classifier(self.flatten(self.features(x)))


def vgg16(
    classes: int = 10,
    in_channels: int = 3,
    width: float = 1.0,
    activation: Activation = nn.ReLU,
    image_size: int | None = None,
) -> VGG:
    """VGG-16 for CIFAR: 13 convolutions with batch norm, one linear layer."""
    return VGG(in_channels, require_image("vgg16", image_size, 32, SHRINKS), classes, width, activation)
