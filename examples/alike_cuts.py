"""Redraws Fig. 6 of You et al. 2022 (cuts like one another, and a layer without the spare ones) from exact partitions.

python examples/alike_cuts.py docs/images
"""

from __future__ import annotations

import sys
from pathlib import Path

import torch
from torch import nn

import splinecut as sc
from splinecut.geometry import plotting as pictures
from splinecut.geometry.cuts import cuts, paper_distance

RHO, REFERENCE = 1.0, 1  # the weight of biases in the figure's N_1; the unit drawn green

torch.manual_seed(3)
net = nn.Sequential(nn.Linear(2, 5), nn.ReLU(), nn.Linear(5, 8), nn.ReLU(), nn.Linear(8, 1)).double()
x = 2 * torch.rand(1000, 2, dtype=torch.float64) - 1
label = ((x.norm(dim=1) > 0.35) & (x.norm(dim=1) < 0.8)).double()[:, None]
optimizer = torch.optim.Adam(net.parameters(), lr=0.02)
for _ in range(300):
    optimizer.zero_grad()
    nn.functional.binary_cross_entropy_with_logits(net(x), label).backward()
    optimizer.step()
net.eval()

# Half of the second layer leaves by the paper's distance; the first layer stays whole.
ticket = sc.draw(net, x, "spline", keep=0.5, form="paper", scope="layer", rho=RHO)
second = sc.Ticket({"2": ticket.keep["2"]}, ticket.groups)
smaller = sc.cut(net, second, refit="least_squares", probe=x)

folder = Path(sys.argv[1] if len(sys.argv) > 1 else "images")
window = sc.Slice.square(1.0)
layer = cuts(net[2].weight, net[2].bias)
distance = paper_distance(layer, layer, RHO)[REFERENCE].numpy()
before, after = sc.subdivide(net, window), sc.subdivide(smaller, window)
pictures.alike(before, after, 1, REFERENCE, distance, folder / "alike-cuts.svg")
print(f"{len(before)} regions, {len(after)} after pruning; distances to unit {REFERENCE}:", *distance.round(2))
