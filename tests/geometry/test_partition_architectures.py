"""Every kind of layer: partitions of small networks of each architecture are certified and tell the network's value."""

from __future__ import annotations

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import splinecut as sc
from splinecut.geometry.certify import certify
from splinecut.geometry.partition import subdivide
from splinecut.networks.trace import trace


class Residual(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.stem, self.one, self.two, self.head = nn.Linear(2, 8), nn.Linear(8, 8), nn.Linear(8, 8), nn.Linear(8, 3)

    def forward(self, x: Tensor) -> Tensor:
        x = self.stem(x)
        return self.head(F.relu(x + self.two(F.relu(self.one(F.relu(x))))))


class Concatenating(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.one, self.two, self.head = nn.Linear(2, 6), nn.Linear(8, 5), nn.Linear(13, 2)

    def forward(self, x: Tensor) -> Tensor:
        x = torch.cat([x, F.relu(self.one(x))], dim=1)
        return self.head(torch.cat([x, F.leaky_relu(self.two(x), 0.2)], dim=1))


class Maxout(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.body, self.head = nn.Linear(2, 20), nn.Linear(5, 2)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.body(x).unflatten(1, (5, 4)).amax(dim=2))


def normalised(layer: nn.Module) -> nn.Module:
    """Batch norm with statistics as after training."""
    layer.running_mean.normal_(0, 0.3)
    layer.running_var.uniform_(0.5, 2)
    layer.weight.data.uniform_(-1, 1)
    layer.bias.data.normal_(0, 0.3)
    return layer


def convolutional(*layers: nn.Module) -> nn.Sequential:
    return nn.Sequential(nn.Conv2d(1, 4, 3, padding=1), *layers, nn.Flatten(), nn.LazyLinear(3))


ARCHITECTURES = {
    "batch norm": lambda: nn.Sequential(nn.Linear(2, 9), normalised(nn.BatchNorm1d(9)), nn.ReLU(), nn.Linear(9, 2)),
    "residual": Residual,
    "concat": Concatenating,
    "maxout": Maxout,
    "leaky": lambda: nn.Sequential(nn.Linear(2, 8), nn.LeakyReLU(0.1), nn.Linear(8, 6), nn.LeakyReLU(0.1)),
    "prelu": lambda: nn.Sequential(nn.Linear(2, 8), nn.PReLU(8, 0.3), nn.Linear(8, 6), nn.PReLU(), nn.Linear(6, 2)),
    "relu6": lambda: nn.Sequential(
        nn.Linear(2, 8), nn.ReLU6(), nn.Linear(8, 6), nn.Hardtanh(-0.1, 0.2), nn.Linear(6, 2)
    ),
    "convolution": lambda: convolutional(normalised(nn.BatchNorm2d(4)), nn.ReLU(), nn.Conv2d(4, 3, 3), nn.ReLU()),
    "max-pool": lambda: convolutional(nn.ReLU(), nn.MaxPool2d(2)),
    "overlapping max-pool": lambda: convolutional(nn.MaxPool2d(3, 2, 1), nn.ReLU()),
    "depthwise": lambda: convolutional(nn.ReLU(), nn.Conv2d(4, 4, 3, groups=4), nn.ReLU(), nn.Conv2d(4, 4, 1)),
    "grouped": lambda: convolutional(nn.Conv2d(4, 12, 3, groups=2, dilation=2), nn.ReLU(), nn.AvgPool2d(2)),
    "upsampling": lambda: convolutional(nn.ReLU(), nn.AdaptiveAvgPool2d(2), nn.Upsample(scale_factor=2), nn.ReLU()),
}


@pytest.mark.parametrize("name", ARCHITECTURES)
def test_partitions_of_each_architecture_are_certified(name):
    torch.manual_seed(3)
    model = ARCHITECTURES[name]().eval()
    is_image = any(isinstance(layer, nn.Conv2d) for layer in model.modules())
    window = sc.Slice.through(*torch.rand(3, 1, 6, 6)) if is_image else sc.Slice.square(1.5)
    with torch.no_grad():
        model(window.embed(window.window).float())
    graph = trace(model, torch.zeros(1, *window.input_shape))
    partition = subdivide(graph, window)
    findings = certify(partition, graph)
    assert findings.ok, str(findings)
    assert len(partition) > 10
    rng = np.random.default_rng(0)
    uv = rng.uniform(window.window.min(axis=0), window.window.max(axis=0), size=(500, 2))
    a, b, c = np.moveaxis(partition.affine[partition.locate(uv)], 2, 0)
    expected = model.double()(window.embed(uv)).flatten(1).detach().numpy()
    np.testing.assert_allclose(a * uv[:, :1] + b * uv[:, 1:] + c, expected, rtol=1e-8, atol=1e-8)


def test_a_window_of_equal_entries_is_not_cut():
    model = nn.Sequential(nn.Linear(2, 1), nn.Linear(1, 4), nn.Unflatten(1, (1, 4)), nn.MaxPool1d(4)).eval()
    model[1].weight.data.fill_(1.0)
    model[1].bias.data.fill_(0.5)
    assert len(sc.subdivide(model, sc.Slice.square())) == 1


def test_three_entries_meet_in_a_fork():
    model = nn.Sequential(nn.Linear(2, 3), nn.Unflatten(1, (1, 3)), nn.MaxPool1d(3)).double().eval()
    angle = torch.arange(3, dtype=torch.float64) * 2 * torch.pi / 3
    model[0].weight.data = torch.stack([angle.cos(), angle.sin()], dim=1)
    model[0].bias.data.zero_()
    partition = sc.subdivide(model, sc.Slice.square())
    assert len(partition) == 3
    fork = np.abs(partition.vertices).max(axis=1).argmin()
    np.testing.assert_allclose(partition.vertices[fork], 0, atol=1e-15)
    assert (partition.indices == fork).sum() == 3
