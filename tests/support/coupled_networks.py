"""Small networks with every kind of coupling between channels, and the models of the package at small width."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from splinecut.networks.groups.read import groups
from splinecut.networks.groups.values import Groups
from splinecut.networks.models import build


class DenseNet(nn.Module):
    """Dense blocks (Huang et al. 2017): each layer reads the concatenation of all before it; a halving transition."""

    def __init__(self, growth: int = 4, layers: int = 3) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, 6, 3, padding=1)
        channels, blocks = 6, []
        for _ in range(2):
            block = nn.ModuleList()
            for _ in range(layers):
                bottleneck = [nn.BatchNorm2d(channels), nn.ReLU(), nn.Conv2d(channels, 8, 1, bias=False)]
                block.append(
                    nn.Sequential(*bottleneck, nn.BatchNorm2d(8), nn.ReLU(), nn.Conv2d(8, growth, 3, padding=1))
                )
                channels += growth
            transition = nn.Sequential(nn.BatchNorm2d(channels), nn.ReLU(), nn.Conv2d(channels, channels // 2, 1))
            channels //= 2
            blocks.append(nn.ModuleDict({"layers": block, "transition": transition}))
        self.blocks = nn.ModuleList(blocks)
        self.norm = nn.BatchNorm2d(channels)
        self.head = nn.Linear(channels, 5)

    def forward(self, x: Tensor) -> Tensor:
        x = self.stem(x)
        for block in self.blocks:
            features = [x]
            for layer in block["layers"]:
                features.append(layer(torch.cat(features, 1)))
            x = functional.avg_pool2d(block["transition"](torch.cat(features, 1)), 2)
        return self.head(functional.relu(self.norm(x)).mean((2, 3)))


class InvertedResidual(nn.Module):
    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        hidden = 3 * inputs
        self.expand = nn.Sequential(
            nn.Conv2d(inputs, hidden, 1, bias=False), nn.BatchNorm2d(hidden), nn.ReLU6(inplace=True)
        )
        depthwise = nn.Conv2d(hidden, hidden, 3, stride, 1, groups=hidden, bias=False)
        self.depthwise = nn.Sequential(depthwise, nn.BatchNorm2d(hidden), nn.ReLU6(inplace=True))
        self.project = nn.Sequential(nn.Conv2d(hidden, outputs, 1, bias=False), nn.BatchNorm2d(outputs))
        self.is_residual = stride == 1 and inputs == outputs

    def forward(self, x: Tensor) -> Tensor:
        inner = self.project(self.depthwise(self.expand(x)))
        return x + inner if self.is_residual else inner


class MobileNetV2(nn.Module):
    """Inverted residuals with depthwise convolutions and relu6 (Sandler et al. 2018)."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, 6, 3, 2, 1, bias=False), nn.BatchNorm2d(6), nn.ReLU6())
        self.blocks = nn.Sequential(*(InvertedResidual(*shape) for shape in [(6, 6, 1), (6, 8, 2), (8, 8, 1)]))
        self.head = nn.Sequential(nn.Conv2d(8, 16, 1), nn.ReLU6(), nn.AdaptiveAvgPool2d(1), nn.Flatten())
        self.classifier = nn.Sequential(nn.Dropout(0.2), nn.Linear(16, 5))

    def forward(self, x: Tensor) -> Tensor:
        return self.classifier(self.head(self.blocks(self.stem(x))))


class ResNeXtBlock(nn.Module):
    def __init__(self, channels: int, width: int, cardinality: int) -> None:
        super().__init__()
        self.conv1, self.bn1 = nn.Conv2d(channels, width, 1, bias=False), nn.BatchNorm2d(width)
        self.conv2, self.bn2 = nn.Conv2d(width, width, 3, 1, 1, groups=cardinality, bias=False), nn.BatchNorm2d(width)
        self.conv3, self.bn3 = nn.Conv2d(width, channels, 1, bias=False), nn.BatchNorm2d(channels)

    def forward(self, x: Tensor) -> Tensor:
        inner = functional.relu(self.bn1(self.conv1(x)))
        inner = functional.relu(self.bn2(self.conv2(inner)))
        return functional.relu(self.bn3(self.conv3(inner)) + x)


class ResNeXt(nn.Module):
    """Grouped convolutions inside residual blocks (Xie et al. 2017)."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, 8, 3, padding=1)
        self.blocks = nn.Sequential(ResNeXtBlock(8, 12, 4), ResNeXtBlock(8, 12, 3))
        self.head = nn.Linear(8, 5)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.blocks(functional.relu(self.stem(x))).amax((2, 3)))


class SqueezeExciteBlock(nn.Module):
    def __init__(self, channels: int) -> None:
        super().__init__()
        self.conv1, self.bn1 = nn.Conv2d(channels, channels, 3, padding=1), nn.BatchNorm2d(channels)
        self.conv2, self.bn2 = nn.Conv2d(channels, channels, 3, padding=1), nn.BatchNorm2d(channels)
        self.squeeze, self.excite = nn.Linear(channels, 4), nn.Conv2d(4, channels, 1)

    def forward(self, x: Tensor) -> Tensor:
        inner = self.bn2(self.conv2(functional.relu(self.bn1(self.conv1(x)))))
        gate = functional.silu(self.squeeze(inner.mean((2, 3))))
        return functional.relu(x + inner * torch.sigmoid(self.excite(gate[:, :, None, None])))


class SEResNet(nn.Module):
    """Squeeze-and-excitation (Hu et al. 2018): a product of channels with a gate computed from all of them."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, 8, 3, padding=1)
        self.blocks = nn.Sequential(SqueezeExciteBlock(8), SqueezeExciteBlock(8))
        self.head = nn.Linear(8 * 16, 5)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(functional.adaptive_avg_pool2d(self.blocks(self.stem(x)), 4).flatten(1))


class UNet(nn.Module):
    """Two levels down and up again, skips by concatenation (Ronneberger et al. 2015)."""

    def __init__(self) -> None:
        super().__init__()
        self.down1, self.down2 = self._double(3, 6), self._double(6, 8)
        self.bottom = self._double(8, 10)
        self.up2, self.up1 = nn.ConvTranspose2d(10, 8, 2, stride=2), nn.Upsample(scale_factor=2)
        self.join2, self.join1 = self._double(16, 8), self._double(14, 6)
        self.head = nn.Conv2d(6, 2, 1)

    @staticmethod
    def _double(inputs: int, outputs: int) -> nn.Sequential:
        first, second = nn.Conv2d(inputs, outputs, 3, padding=1), nn.Conv2d(outputs, outputs, 3, padding=1)
        return nn.Sequential(first, nn.BatchNorm2d(outputs), nn.LeakyReLU(0.1), second, nn.PReLU(outputs))

    def forward(self, x: Tensor) -> Tensor:
        one = self.down1(x)
        two = self.down2(functional.max_pool2d(one, 2))
        three = self.bottom(functional.max_pool2d(two, 2))
        two = self.join2(torch.cat([self.up2(three), two], 1))
        return self.head(self.join1(torch.cat([one, self.up1(two)], 1)))


class EncoderBlock(nn.Module):
    def __init__(self, width: int, heads: int, hidden: int) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attention = nn.MultiheadAttention(width, heads, batch_first=True)
        self.mlp = nn.Sequential(nn.Linear(width, hidden), nn.GELU(), nn.Linear(hidden, width))

    def forward(self, x: Tensor) -> Tensor:
        normed = self.norm1(x)
        x = x + self.attention(normed, normed, normed, need_weights=False)[0]
        return x + self.mlp(self.norm2(x))


class ViT(nn.Module):
    """Patches, a class token, positions, attention (Dosovitskiy et al. 2021): only the MLPs' hidden units can leave."""

    def __init__(self, width: int = 12, hidden: int = 20) -> None:
        super().__init__()
        self.patches = nn.Conv2d(3, width, 4, stride=4)
        self.token = nn.Parameter(torch.randn(1, 1, width))
        self.positions = nn.Parameter(torch.randn(1, 17, width))
        self.blocks = nn.Sequential(EncoderBlock(width, 3, hidden), EncoderBlock(width, 3, hidden))
        self.head = nn.Linear(width, 5)

    def forward(self, x: Tensor) -> Tensor:
        x = self.patches(x).flatten(2).transpose(1, 2)
        x = torch.cat([self.token.expand(len(x), -1, -1), x], 1) + self.positions
        return self.head(self.blocks(x)[:, 0])


class ConvNeXt(nn.Module):
    """Depthwise, layer norm over channels, a wide MLP, a learned scale (Liu et al. 2022): all can leave."""

    def __init__(self, width: int = 8) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, width, 4, stride=4)
        self.depthwise = nn.Conv2d(width, width, 3, padding=1, groups=width)
        self.norm = nn.LayerNorm(width)
        self.wide, self.narrow = nn.Linear(width, 3 * width), nn.Linear(3 * width, width)
        self.scale = nn.Parameter(torch.rand(width))
        self.head = nn.Linear(width, 5)

    def forward(self, x: Tensor) -> Tensor:
        x = self.stem(x)
        inner = self.norm(self.depthwise(x).permute(0, 2, 3, 1))
        inner = self.scale * self.narrow(functional.gelu(self.wide(inner)))
        return self.head((x + inner.permute(0, 3, 1, 2)).mean((2, 3)))


class GroupNormNet(nn.Module):
    """Group norms with many, one and all groups, and a depthwise layer that doubles its channels."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1, self.norm1 = nn.Conv2d(3, 12, 3), nn.GroupNorm(4, 12)
        self.conv2, self.norm2 = nn.Conv2d(12, 10, 3), nn.GroupNorm(1, 10)
        self.conv3, self.norm3 = nn.Conv2d(10, 6, 3), nn.GroupNorm(6, 6)
        self.twice = nn.Conv2d(6, 12, 3, groups=6)
        self.head = nn.Linear(12, 5)

    def forward(self, x: Tensor) -> Tensor:
        x = functional.elu(self.norm1(self.conv1(x)))
        x = functional.elu(self.norm2(self.conv2(x)))
        x = functional.elu(self.norm3(self.conv3(x)))
        return self.head(self.twice(x).mean((2, 3)))


class ShuffleNet(nn.Module):
    """Channels split in two halves, one transformed, the halves shuffled (Ma et al. 2018)."""

    def __init__(self, width: int = 12) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, width, 3, padding=1)
        self.branch = nn.Sequential(nn.Conv2d(width // 2, width // 2, 1), nn.BatchNorm2d(width // 2), nn.ReLU())
        self.head = nn.Linear(width, 5)

    def forward(self, x: Tensor) -> Tensor:
        left, right = self.stem(x).chunk(2, dim=1)
        x = torch.cat([left, self.branch(right)], 1)
        b, c, h, w = x.shape
        x = x.view(b, 2, c // 2, h, w).transpose(1, 2).reshape(b, c, h, w)
        return self.head(functional.relu(x).mean((2, 3)))


class Recurring(nn.Module):
    """One layer used twice, two layers that share a weight, a weight used without its module."""

    def __init__(self, width: int = 8) -> None:
        super().__init__()
        self.enter = nn.Linear(6, width)
        self.again = nn.Linear(width, width)
        self.twin_a, self.twin_b = nn.Linear(width, 7), nn.Linear(width, 7)
        self.twin_b.weight = self.twin_a.weight
        self.bare = nn.Parameter(torch.randn(7, 9))
        self.head = nn.Linear(9, 3)

    def forward(self, x: Tensor) -> Tensor:
        x = functional.relu(self.enter(x))
        x = functional.relu(self.again(functional.relu(self.again(x))))
        x = functional.relu(self.twin_a(x)) * torch.sigmoid(self.twin_b(x))
        return self.head(functional.relu(x @ self.bare))


Maker = Callable[[], nn.Module]

OURS: dict[str, Maker] = {
    "densenet": DenseNet,
    "mobilenetv2": MobileNetV2,
    "resnext": ResNeXt,
    "se-resnet": SEResNet,
    "unet": UNet,
    "vit": ViT,
    "convnext": ConvNeXt,
    "group-norm": GroupNormNet,
    "shufflenet": ShuffleNet,
    "recurring": Recurring,
}

PACKAGED: dict[str, Maker] = {
    "mlp": lambda: build("mlp", hidden=(9, 7), in_channels=4),
    "convnet": lambda: build("convnet", preset="digits", width=0.5),
    "alexnet": lambda: build("alexnet", width=0.05),
    "vgg16": lambda: build("vgg16", width=0.06),
    "preresnet11": lambda: build("preresnet11", width=0.5, image_size=8),
    "resnet18": lambda: build("resnet18", width=0.06, image_size=32),
    "resnet50": lambda: build("resnet50", width=0.06, image_size=32),
    "silu-convnet": lambda: build("convnet", preset="digits", width=0.5, activation="silu"),
}

ZOO = OURS | PACKAGED


def make(name: str, dtype: torch.dtype = torch.float32, seed: int = 0) -> tuple[nn.Module, Tensor]:
    """The network of that name with weights, statistics and a batch of inputs that leave nothing at zero or one."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = ZOO[name]().to(dtype)
        for module in model.modules():
            if isinstance(module, nn.BatchNorm1d | nn.BatchNorm2d):
                nn.init.uniform_(module.weight, 0.5, 1.5)
                nn.init.normal_(module.bias)
                nn.init.normal_(module.running_mean)
                nn.init.uniform_(module.running_var, 0.5, 2.0)
        shape = (6,) if name == "recurring" else getattr(model, "input_shape", (3, 16, 16))
        return model.eval(), torch.randn(4, *shape, dtype=dtype)


@cache
def read(name: str, residual: str = "tied") -> Groups:
    """The groups of the network of that name; they do not depend on its weights."""
    return groups(*make(name), residual=residual)


def random_scores(groups: Groups, seed: int = 0) -> dict[str, np.ndarray]:
    """A score for every unit, the same for the same seed."""
    rng = np.random.default_rng(seed)
    return {group.name: rng.random(group.size) for group in groups}


def draw(found: Groups, seed: int = 0, share: float = 0.5) -> dict[str, np.ndarray]:
    """A random keep map that empties no group."""
    rng = np.random.default_rng(seed)
    keep = {group.name: rng.random(group.size) < share for group in found}
    for kept in keep.values():
        kept[rng.integers(len(kept))] = True
    return keep
