"""The order in which a group's units leave: always the one whose removal costs its readers least, the rest refitted.

Let a layer read x (channels x taps) and give y = W^T x, with E x x^T = A and H = A^-1. If the columns u of a unit leave
and all others are refitted, the error grows by

    error_u = trace(W_u^T (H_uu)^-1 W_u)

which is Optimal Brain Surgeon (Hassibi & Stork 1993) for a block of weights. Then H loses these columns (a Schur
complement), W takes over what the others can do for them, and the next error is again exact.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int64
from torch import Tensor

from splinecut.pruning.refit.moments import Centred

RIDGE = 1e-4  # of the mean second moment: columns that the probe never moves still need an inverse
COUPLED = 0.1  # units more alike than this do not leave in one round
ROUNDS = 64  # a group is emptied in about as many rounds, one unit a round if it is smaller


@dataclass(frozen=True, eq=False)
class Reader:
    """What one layer knows of a group: moments of its input, its weights, and the columns of each unit.

    blocks: (units, columns of a unit), in the order of `moments`.
    power:  what the layer gives, squared: errors of several readers are added as shares of it.
    """

    moments: Centred
    weight: Float[Tensor, "groups columns outputs"]
    blocks: Int64[Tensor, "units block"]
    power: float


def removal_order(readers: Sequence[Reader]) -> Int64[Tensor, " units"]:
    """The units of a group, the first to leave first; of equal errors the higher index leaves first."""
    states = [_State(reader) for reader in readers]
    alive = torch.arange(len(readers[0].blocks))
    per_round, order = max(1, len(alive) // ROUNDS), []
    while len(alive) > 1:
        errors = torch.stack([state.errors() for state in states]).sum(0)
        # Reversed before a stable sort: ties go to the higher index.
        ranked = len(alive) - 1 - torch.argsort(errors.flip(0), stable=True)
        gone = _apart(states, ranked, min(per_round, len(alive) - 1))
        order.append(alive[gone])
        stays = torch.ones(len(alive), dtype=torch.bool)
        stays[gone] = False
        for state in states:
            state.remove(stays)
        alive = alive[stays]
    return torch.cat([*order, alive])


def _apart(states: Sequence[_State], ranked: Int64[Tensor, " alive"], n: int) -> Int64[Tensor, " gone"]:
    """Those of the first `n` units that do not stand in for each other: of two copies each looks free, and one is."""
    if n == 1:
        return ranked[:1]
    first = ranked[:n]
    coupled = torch.stack([state.coupling(first) for state in states]).amax(0) > COUPLED
    chosen: list[int] = []
    for place in range(len(first)):
        if not coupled[place, chosen].any():
            chosen.append(place)
    return first[chosen]


class _State:
    """H and W of one reader while units leave. Columns of no unit of the group stay, and take over as others do."""

    def __init__(self, reader: Reader) -> None:
        xx = reader.moments.xx
        mean = xx.diagonal(dim1=1, dim2=2).mean(1).clamp_min(torch.finfo(torch.float64).tiny)
        ridge = (RIDGE * mean)[:, None, None] * torch.eye(xx.shape[1], dtype=torch.float64)
        factor = torch.linalg.cholesky_ex(xx + ridge)[0]
        self.inverse = torch.cholesky_inverse(factor)
        # The weights that fit best, not those of the network: then errors of removal are above the same floor.
        self.weight = reader.weight + torch.cholesky_solve(reader.moments.xy - xx @ reader.weight, factor)
        self.blocks, self.power = reader.blocks, max(reader.power, torch.finfo(torch.float64).tiny)

    def errors(self) -> Float[Tensor, " alive"]:
        """What the removal of each unit adds, as a share of what the layer gives."""
        inner = self.inverse[:, self.blocks[:, :, None], self.blocks[:, None, :]]  # groups units block block
        outgoing = self.weight[:, self.blocks]  # groups units block outputs
        solved = torch.linalg.solve(inner, outgoing) if self.blocks.shape[1] > 1 else outgoing / inner
        return (solved * outgoing).sum((0, 2, 3)) / self.power

    def coupling(self, units: Int64[Tensor, " some"]) -> Float[Tensor, "some some"]:
        """How much the removal of one unit raises the error of another: squared correlations in H, block by block."""
        places = self.blocks[units]
        parts = self.inverse[:, places[:, None, :, None], places[None, :, None, :]]  # groups some some block block
        squares = parts.square().sum((3, 4)).amax(0)
        own = squares.diagonal().sqrt().clamp_min(torch.finfo(torch.float64).tiny)
        return squares / (own[:, None] * own)

    def remove(self, stays: Tensor) -> None:
        """Takes the units that do not stay out of H and W."""
        gone = self.blocks[~stays].flatten()
        left = torch.ones(self.inverse.shape[1], dtype=torch.bool)
        left[gone] = False
        among = self.inverse[:, gone][:, :, gone]
        across = self.inverse[:, left][:, :, gone]
        solved = torch.linalg.solve(among, torch.cat([across.mT, self.weight[:, gone]], 2))
        n_left = across.shape[1]
        self.weight = self.weight[:, left] - across @ solved[:, :, n_left:]
        self.inverse = self.inverse[:, left][:, :, left] - across @ solved[:, :, :n_left]
        self.blocks = (torch.cumsum(left, 0) - 1)[self.blocks[stays]]
