"""Early-bird pruning in a training loop of your own: two lines watch, one draws, one cuts."""

from __future__ import annotations

import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.nn import functional as F

import splinecut as sc

torch.manual_seed(0)
digits = load_digits()
images = torch.from_numpy(digits.images).float()[:, None] / 16
labels = torch.from_numpy(digits.target)
train, test = torch.randperm(len(images)).split([1437, 360])

model = nn.Sequential(
    nn.Conv2d(1, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU(),
    nn.Conv2d(16, 32, 3, padding=1, stride=2), nn.BatchNorm2d(32), nn.ReLU(),
    nn.Flatten(), nn.Linear(512, 64), nn.ReLU(), nn.Linear(64, 10),
)  # fmt: skip
optimizer = torch.optim.SGD(model.parameters(), lr=0.02, momentum=0.9)


def one_epoch(model: nn.Module) -> None:
    model.train()
    for rows in train[torch.randperm(len(train))].split(64):
        optimizer.zero_grad()
        F.cross_entropy(model(images[rows]), labels[rows]).backward()
        optimizer.step()


def accuracy(model: nn.Module) -> float:
    with torch.no_grad():
        return float((model.eval()(images[test]).argmax(1) == labels[test]).float().mean())


bird = sc.EarlyBird(images[train[:256]])
for _ in range(20):
    one_epoch(model)
    if bird.observe(model).drawn:
        break
print(f"the partition has settled after epoch {bird.verdict.step}, at distance {bird.verdict.distance:.3f}")

ticket = sc.draw(model, images[train[:512]], keep=0.5)
smaller = sc.cut(model, ticket, optimizer=optimizer, refit="least_squares", probe=images[train[:512]])
print(ticket)
print(f"accuracy {accuracy(model):.3f}, right after the cut {accuracy(smaller):.3f}")

for _ in range(5):  # the same optimiser goes on, its momentum cut along with the weights
    one_epoch(smaller)
print(f"after five more epochs {accuracy(smaller):.3f}")
