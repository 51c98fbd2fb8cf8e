"""Redraws the pictures of docs/geometry.md from exact partitions of small trained networks.

python examples/figures.py docs/images
"""

from __future__ import annotations

import copy
import sys
from pathlib import Path

import torch
from torch import nn

import splinecut as sc
from splinecut.geometry import pictures


def trained(hidden: tuple[int, ...], seed: int, steps: int = 500) -> nn.Sequential:
    """A ReLU network with one output, fitted to two rings: class 1 inside the outer and outside the inner circle."""
    torch.manual_seed(seed)
    sizes = (2, *hidden)
    layers = [layer for n, m in zip(sizes, hidden, strict=False) for layer in (nn.Linear(n, m), nn.ReLU())]
    net = nn.Sequential(*layers, nn.Linear(sizes[-1], 1)).double()
    x = 2 * torch.rand(2000, 2, dtype=torch.float64) - 1
    radius = x.norm(dim=1, keepdim=True)
    label = ((radius > 0.35) & (radius < 0.8)).double()
    optimizer = torch.optim.Adam(net.parameters(), lr=0.02)
    for _ in range(steps):
        optimizer.zero_grad()
        nn.functional.binary_cross_entropy_with_logits(net(x), label).backward()
        optimizer.step()
    return net.eval()


def without_units(net: nn.Sequential, layer: int, units: list[int]) -> nn.Sequential:
    """The network with some units of a linear layer removed: weights and biases zero."""
    pruned = copy.deepcopy(net)
    with torch.no_grad():
        pruned[layer].weight[units] = 0
        pruned[layer].bias[units] = 0
    return pruned


def without_weights(net: nn.Sequential, layer: int, keep: float) -> nn.Sequential:
    """The network with the smaller weights of a linear layer removed."""
    pruned = copy.deepcopy(net)
    weight = pruned[layer].weight
    with torch.no_grad():
        order = weight.abs().flatten().argsort()
        weight.view(-1)[order[: round((1 - keep) * weight.numel())]] = 0
    return pruned


def main(folder: Path) -> None:
    window = sc.Slice.square(1.0)
    toy = trained((6, 6), seed=1)
    partition = sc.subdivide(toy, window)
    pictures.layer_by_layer(partition, folder / "layer-by-layer.svg")
    pruned = [
        sc.subdivide(net, window) for net in (toy, without_units(toy, 0, [1, 4]), without_weights(toy, 0, keep=0.5))
    ]
    titles = ["as trained", "two units removed", "half of the weights removed"]
    pictures.side_by_side(pruned, titles, folder / "pruning.svg")
    pictures.unit_by_unit(partition, 1, folder / "unit-by-unit.svg", columns=6)
    pictures.one_cut(partition, 1, int(partition.edge_unit[partition.edge_layer == 1][0]), folder / "one-cut.svg")
    deep = sc.subdivide(trained((24, 24, 24), seed=0), window)
    deep.plot(folder / "partition.png", with_kinks=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else Path("docs/images"))
