"""Redraws the pictures of docs/geometry.md from exact partitions: python examples/figures.py docs/images"""

from __future__ import annotations

import copy
import sys
from pathlib import Path

import torch
from torch import Tensor, nn

import splinecut as sc
from splinecut.geometry import plotting as pictures


def trained(hidden: tuple[int, ...], seed: int) -> nn.Sequential:
    """A ReLU network with one output, fitted to a ring: positive between two circles."""
    torch.manual_seed(seed)
    sizes = (2, *hidden)
    layers = [layer for n, m in zip(sizes, hidden, strict=False) for layer in (nn.Linear(n, m), nn.ReLU())]
    net = nn.Sequential(*layers, nn.Linear(sizes[-1], 1)).double()
    x = 2 * torch.rand(2000, 2, dtype=torch.float64) - 1
    radius = x.norm(dim=1, keepdim=True)
    label = ((radius > 0.35) & (radius < 0.8)).double()
    optimizer = torch.optim.Adam(net.parameters(), lr=0.02)
    for _ in range(500):
        optimizer.zero_grad()
        nn.functional.binary_cross_entropy_with_logits(net(x), label).backward()
        optimizer.step()
    return net.eval()


def pruned(net: nn.Sequential, keep: Tensor) -> nn.Sequential:
    """The network with only the kept weights in its first layer; a unit without weights loses its bias too."""
    smaller = copy.deepcopy(net)
    with torch.no_grad():
        smaller[0].weight.mul_(keep)
        smaller[0].bias.mul_(keep.any(dim=1))
    return smaller


folder = Path(sys.argv[1] if len(sys.argv) > 1 else "images")
window = sc.Slice.square(1.0)
toy = trained((6, 6), seed=1)
partition = sc.subdivide(toy, window)
pictures.layer_by_layer(partition, folder / "layer-by-layer.svg")

size = toy[0].weight.abs()
without_units = torch.tensor([True, False, True, True, False, True])[:, None].expand(6, 2)
networks = [toy, pruned(toy, without_units), pruned(toy, size > size.median())]
titles = ["as trained", "two units removed", "half of the weights removed"]
pictures.side_by_side([sc.subdivide(net, window) for net in networks], titles, folder / "pruning.svg")

pictures.unit_by_unit(partition, 1, folder / "unit-by-unit.svg", columns=6)
pictures.one_cut(partition, layer=1, unit=5, path=folder / "one-cut.svg")
sc.subdivide(trained((24, 24, 24), seed=0), window).plot(folder / "partition.png", with_kinks=True)
print(f"drew {len(list(folder.iterdir()))} pictures in {folder}")
