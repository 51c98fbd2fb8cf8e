"""Local search after elimination: a kept unit against a removed one, the best pair first, until no swap helps.

Elimination never takes back a choice. For the columns S that stay, with A = E x x^T and B = E x y^T, the error that the
best fit leaves is E y^2 - trace(B_S^T A_SS^-1 B_S). OSSCAR (Meng et al. 2024) searches subsets by such swaps. Let
H = A_SS^-1, W = H B_S and, for a removed unit r, T = H A_Sr. If a kept unit u leaves, the error grows by
trace(W_u^T M W_u) with M = H_uu^-1; if then r comes back, it falls by trace(R^T C^-1 R), where

    R = B_r - A_rS W + T_u^T M W_u,    C = A_rr - A_rS T + T_u^T M T_u.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from jaxtyping import Float, Int64
from torch import Tensor

from splinecut.pruning.refit.elimination import RIDGE, Reader

LEAST = 1e-9  # of the layer's power: smaller gains are rounding
ELEMENTS = 2**24  # of the largest intermediate value: kept units are gone through in parts


def swapped(
    readers: Sequence[Reader], order: Int64[np.ndarray, " units"], n_kept: int, most: int = 16
) -> Int64[np.ndarray, " units"]:
    """`order` (the first to leave first; places of units in the readers' blocks) after at most `most` swaps.

    The last `n_kept` units stay: swaps are between them and the others. A unit that comes back is the first of them to
    leave next, one that goes is the last of the others.
    """
    gone, kept = (list(map(int, part)) for part in np.split(order, [len(order) - n_kept]))
    if not gone or not kept:
        return order
    fits = [_SubsetFit(reader) for reader in readers]
    for _ in range(most):
        gains = torch.stack([fit.swap_gains(kept, gone) for fit in fits]).sum(0)
        place = int(gains.argmax())
        if not float(gains.flatten()[place]) > LEAST:
            break
        leaving, back = kept[place // len(gone)], gone[place % len(gone)]
        kept = [back, *(unit for unit in kept if unit != leaving)]
        gone = [*(unit for unit in gone if unit != back), leaving]
    return np.array([*gone, *kept])


class _SubsetFit:
    """How the error of one reader's best fit changes with the units it reads, as shares of what the layer gives."""

    def __init__(self, reader: Reader) -> None:
        xx, xy = reader.moments.xx, reader.moments.xy
        mean = xx.diagonal(dim1=1, dim2=2).mean(1).clamp_min(torch.finfo(torch.float64).tiny)
        # The same ridge, towards the same weights, as the elimination has.
        self.a = xx + (RIDGE * mean)[:, None, None] * torch.eye(xx.shape[1], dtype=torch.float64)
        self.b = self.a @ reader.weight + (xy - xx @ reader.weight)
        self.blocks, self.power = reader.blocks, max(reader.power, torch.finfo(torch.float64).tiny)
        of_no_unit = torch.ones(xx.shape[1], dtype=torch.bool)
        of_no_unit[reader.blocks.flatten()] = False
        self.others = torch.nonzero(of_no_unit)[:, 0]

    def swap_gains(self, kept: Sequence[int], gone: Sequence[int]) -> Float[Tensor, "kept gone"]:
        """What the error falls by when a kept unit leaves and a removed one comes back; negative where it grows."""
        block = self.blocks.shape[1]
        inside = torch.cat([self.blocks[list(kept)].flatten(), self.others])
        outside = self.blocks[list(gone)].flatten()
        inverse = torch.cholesky_inverse(torch.linalg.cholesky_ex(self.a[:, inside][:, :, inside])[0])
        weight = inverse @ self.b[:, inside]
        across = self.a[:, inside][:, :, outside]
        solved = inverse @ across
        left = _rows_by_unit(self.b[:, outside] - across.mT @ weight, block)  # groups gone block outputs
        own = self.blocks[list(gone)]
        schur = self.a[:, own[:, :, None], own[:, None, :]] - torch.einsum(
            "gsrb,gsrc->grbc", *(_columns_by_unit(part, block) for part in (across, solved))
        )
        n = len(kept) * block
        places = torch.arange(n).view(len(kept), block)
        within = inverse[:, places[:, :, None], places[:, None, :]]  # groups kept block block
        weight = _rows_by_unit(weight[:, :n], block)
        solved = solved[:, :n].view(len(solved), len(kept), block, len(gone), block)
        per_kept = left.numel() + schur.numel()
        step = max(1, ELEMENTS // per_kept)
        parts = [slice(start, start + step) for start in range(0, len(kept), step)]
        return torch.cat([_gains(within[:, p], weight[:, p], solved[:, p], left, schur) for p in parts]) / self.power


def _gains(
    within: Float[Tensor, "groups kept b b"],
    weight: Float[Tensor, "groups kept b outputs"],
    solved: Float[Tensor, "groups kept b gone b"],
    left: Float[Tensor, "groups gone b outputs"],
    schur: Float[Tensor, "groups gone b b"],
) -> Float[Tensor, "kept gone"]:
    """H_uu, W_u, T_u, R and C of the docstring above, the last two before u leaves -> the gain of every pair."""
    scaled = torch.linalg.solve(within, weight)
    cost = (scaled * weight).sum((0, 2, 3))
    residual = left[:, None] + torch.einsum("gubrc,gubo->gurco", solved, scaled)
    flat = solved.flatten(3)
    turned = torch.linalg.solve(within, flat).view_as(solved)
    inner = schur[:, None] + torch.einsum("gubrc,gubrd->gurcd", solved, turned)
    gain = (torch.linalg.solve(inner, residual) * residual).sum((0, 3, 4))
    return gain - cost[:, None]


def _rows_by_unit(values: Float[Tensor, "groups rows outputs"], block: int) -> Float[Tensor, "groups n b outputs"]:
    return values.reshape(len(values), -1, block, values.shape[2])


def _columns_by_unit(values: Float[Tensor, "groups rows columns"], block: int) -> Float[Tensor, "groups rows n b"]:
    return values.reshape(len(values), values.shape[1], -1, block)
