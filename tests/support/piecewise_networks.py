"""Small networks of every kind the geometry must serve, in eval mode and float64, for several test files."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn


class Residual(nn.Module):
    """x + relu(conv(x)), twice, with batch norm before each relu."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.stem = nn.Conv2d(2, channels, 3, padding=1)
        self.convs = nn.ModuleList(nn.Conv2d(channels, channels, 3, padding=1) for _ in range(2))
        self.norms = nn.ModuleList(nn.BatchNorm2d(channels) for _ in range(2))
        self.head = nn.Linear(channels, 3)

    def forward(self, x: Tensor) -> Tensor:
        x = self.stem(x)
        for conv, norm in zip(self.convs, self.norms, strict=True):
            x = x + conv(torch.relu(norm(x)))
        return self.head(torch.relu(x).mean(dim=(2, 3)))


class Concat(nn.Module):
    """Two branches side by side, one of them depthwise."""

    def __init__(self) -> None:
        super().__init__()
        self.left, self.right = nn.Conv2d(2, 4, 3), nn.Conv2d(2, 2, 3, groups=2)
        self.head = nn.Linear(6 * 16, 2)

    def forward(self, x: Tensor) -> Tensor:
        both = torch.cat([self.left(x).relu(), self.right(x).abs()], dim=1)
        return self.head(both.flatten(1))


def mlp(activation: Callable[[], nn.Module] = nn.ReLU, bias: bool = True) -> nn.Module:
    layers: list[nn.Module] = []
    for n_in, n_out in ((3, 12), (12, 10)):
        layers += [nn.Linear(n_in, n_out, bias=bias), activation()]
    return nn.Sequential(*layers, nn.Linear(10, 3, bias=bias))


def pooled() -> nn.Module:
    conv = nn.Sequential(nn.Conv2d(2, 6, 3, padding=1), nn.BatchNorm2d(6), nn.ReLU(), nn.MaxPool2d(2))
    deep = nn.Sequential(nn.Conv2d(6, 5, 2), nn.MaxPool2d(2, stride=1, padding=1), nn.LeakyReLU(0.2))
    return nn.Sequential(conv, deep, nn.Flatten(), nn.Linear(5 * 9, 4))


SHAPES: dict[str, tuple[int, ...]] = {
    "relu": (3,),
    "no-bias": (3,),
    "leaky": (3,),
    "prelu": (3,),
    "relu6": (3,),
    "hardtanh": (3,),
    "pooled": (2, 6, 6),
    "residual": (2, 6, 6),
    "concat": (2, 6, 6),
}
BUILD: dict[str, Callable[[], nn.Module]] = {
    "relu": mlp,
    "no-bias": lambda: mlp(bias=False),
    "leaky": lambda: mlp(lambda: nn.LeakyReLU(0.1)),
    "prelu": lambda: mlp(nn.PReLU),
    "relu6": lambda: mlp(nn.ReLU6),
    "hardtanh": lambda: mlp(lambda: nn.Hardtanh(-0.5, 0.25)),
    "pooled": pooled,
    "residual": lambda: Residual(4),
    "concat": Concat,
}


def build(name: str, seed: int = 0) -> nn.Module:
    """The named network with weights large enough that its units fold; batch-norm statistics are not trivial."""
    torch.manual_seed(seed)
    net = BUILD[name]().double()
    with torch.no_grad():
        for parameter in net.parameters():
            parameter.mul_(2.0)
        for module in net.modules():
            if isinstance(module, nn.BatchNorm2d):
                module.running_mean.normal_(0, 0.3)
                module.running_var.uniform_(0.5, 2)
                module.weight.normal_(0, 1)
    return net.eval()


def inputs(name: str, n: int, seed: int = 0) -> Tensor:
    return torch.randn(n, *SHAPES[name], dtype=torch.float64, generator=torch.Generator().manual_seed(seed))
