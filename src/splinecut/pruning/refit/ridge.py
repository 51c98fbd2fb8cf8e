"""One layer's least-squares fit, shrunk towards its weights as they are; the ridge is chosen on held-out rows.

    W = W_0 + argmin over D of  E |y - (W_0 + D)^T x|^2 + ridge |D|^2

Rows are split by sample: ridges are tried on one part and compared on the other, then all rows are used. Where no
ridge does better than W_0, the weights stay. Each ridge is one Cholesky factorisation: seven of them cost a quarter of
the eigendecomposition that would serve them all.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int64
from torch import Tensor

from splinecut.pruning.refit.moments import Centred, Moments

RIDGES = (1e-7, 1e-5, 1e-4, 1e-3, 1e-2, 1e-1, 1.0, 10.0)  # of the mean second moment
FEW = (1e-4, 1e-2, 1.0)  # tried of layers with
MANY = 1200  # columns or more
UNCHECKED = 1e-2  # the ridge where no row can be held out
TINY = torch.finfo(torch.float64).tiny / torch.finfo(torch.float64).eps


@dataclass(frozen=True, eq=False)
class Fit:
    """The fitted weights of the columns that stay.

    weight:   (groups, kept columns, outputs).
    offset:   (groups, outputs) mean of y - W^T x.
    ridge:    which was best; None where the weights stay as they are.
    error, unfitted, power: on held-out rows, summed over outputs: after the fit, before it, and of y itself.
    """

    weight: Float[Tensor, "groups kept outputs"]
    offset: Float[Tensor, "groups outputs"]
    ridge: float | None
    error: float
    unfitted: float
    power: float


def fit(
    fitting: Moments,
    held: Moments,
    columns: Int64[Tensor, " kept"],
    weight: Float[Tensor, "groups columns outputs"],
    has_constant: bool = True,
    counts: Float[Tensor, "groups outputs"] | None = None,
    on_all: bool = True,
) -> Fit:
    """The best fit that reads only `columns`; `weight` are the weights as they are.

    has_constant: whether a bias or a batch norm takes up a constant.
    counts:       1 for outputs that matter, 0 for others.
    on_all:       the final fit uses held-out rows too; False keeps them unseen, to measure what follows.
    """
    old = weight[:, columns]
    counts = torch.ones_like(fitting.y) if counts is None else counts
    if not held.n_rows or not fitting.n_rows:
        every = fitting.merged(held).centred(has_constant=has_constant)
        new = _path(every.restricted(columns), old, (UNCHECKED,))[0]
        return Fit(new, _offset(every, columns, new, has_constant), UNCHECKED, 0.0, 0.0, 0.0)
    seen, unseen = fitting.centred(has_constant=has_constant), held.centred(fitting, has_constant)
    here, there = seen.restricted(columns), unseen.restricted(columns)
    ridges = ridges_for(len(columns))
    tried = _path(here, old, ridges)
    errors = [float((there.error(new) * counts).sum()) for new in tried]
    # A constant alone is taken up without any fit, so that it does not count against the weights as they are.
    unfitted = float((there.error(old) * counts).sum())
    best = min(range(len(errors)), key=errors.__getitem__)
    power = float((unseen.yy * counts).sum())
    if not errors[best] < unfitted:
        return Fit(old, _offset(seen, columns, old, has_constant), None, unfitted, unfitted, power)
    if not on_all:
        return Fit(
            tried[best], _offset(seen, columns, tried[best], has_constant), ridges[best], errors[best], unfitted, power
        )
    every = fitting.merged(held).centred(has_constant=has_constant)
    new = _path(every.restricted(columns), old, (ridges[best],))[0]
    return Fit(new, _offset(every, columns, new, has_constant), ridges[best], errors[best], unfitted, power)


def ridges_for(n_columns: int) -> tuple[float, ...]:
    """The ridges to try: fewer where each costs more."""
    return RIDGES if n_columns < MANY else FEW


def _offset(moments: Centred, columns: Tensor, weight: Tensor, has_constant: bool) -> Tensor:
    if not has_constant:
        return torch.zeros_like(moments.mean_y)
    return moments.mean_y - (weight * moments.mean_x[:, columns, None]).sum(1)


def _path(moments: Centred, old: Tensor, ridges: Sequence[float]) -> list[Float[Tensor, "groups kept outputs"]]:
    """The fitted weights for each ridge, a multiple of the mean second moment."""
    left = moments.xy - moments.xx @ old  # what the weights as they are leave unexplained
    mean = moments.xx.diagonal(dim1=1, dim2=2).mean(1)
    moves = (mean > TINY)[:, None, None]  # where nothing moves, nothing can be fitted
    safe = torch.where(mean > TINY, mean, 1.0)[:, None]
    eye = torch.eye(moments.xx.shape[1], dtype=torch.float64)
    factors = [torch.linalg.cholesky_ex(moments.xx + (ridge * safe)[:, :, None] * eye) for ridge in ridges]
    # A factorisation that fails leaves the weights as they are.
    steps = [torch.where(f.info[:, None, None] == 0, torch.cholesky_solve(left, f.L), 0.0) for f in factors]
    return [old + torch.where(moves & torch.isfinite(step), step, 0.0) for step in steps]
