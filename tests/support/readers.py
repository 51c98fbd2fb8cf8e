"""Layers with known inputs and weights, and the error that a refit by least squares leaves, for tests of choices."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from splinecut.pruning.refit.elimination import Reader
from splinecut.pruning.refit.moments import Moments

DOUBLE = torch.float64


def drawn(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=DOUBLE)


@dataclass(frozen=True)
class Rows:
    """What a layer reads (groups, rows, columns), its weights (groups, columns, outputs), the columns of each unit."""

    x: Tensor
    weight: Tensor
    blocks: Tensor

    @property
    def y(self) -> Tensor:
        return self.x @ self.weight

    @property
    def power(self) -> float:
        return float((self.y - self.y.mean(1, keepdim=True)).square().mean(1).sum())

    @property
    def reader(self) -> Reader:
        seen = Moments.zero(len(self.x), self.x.shape[2], self.weight.shape[2])
        seen.add(self.x, self.y)
        return Reader(seen.centred(), self.weight, self.blocks, self.power)

    def error(self, units: Sequence[int]) -> float:
        """What is left of the outputs, as a share, when these units and columns of no unit are refitted to them."""
        free = sorted(set(range(self.x.shape[2])) - set(self.blocks.flatten().tolist()))
        columns = [*self.blocks[list(units)].flatten().tolist(), *free]
        left = 0.0
        for x, y in zip(self.x.numpy(), self.y.numpy(), strict=True):
            x, y = x[:, columns] - x[:, columns].mean(0), y - y.mean(0)
            left += float(((y - x @ np.linalg.lstsq(x, y, rcond=None)[0]) ** 2).mean(0).sum())
        return left / self.power


def layer(
    n_units: int, taps: int = 1, n_free: int = 0, n_groups: int = 1, outputs: int = 4, rows: int = 400, seed: int = 0
) -> Rows:
    """Mixed but well-conditioned columns of different importance, the units' columns in a shuffled order."""
    n = n_units * taps + n_free
    mixing = torch.eye(n, dtype=DOUBLE) + drawn(n_groups, n, n, seed=seed + 1) / n**0.5 / 2
    weight = drawn(n_groups, n, outputs, seed=seed + 2)
    places = torch.randperm(n, generator=torch.Generator().manual_seed(seed + 3))[: n_units * taps]
    return Rows(drawn(n_groups, rows, n, seed=seed) @ mixing + 1, weight, places.view(n_units, taps))
