"""Hyperplanes of units (cuts), batch norm folded in, and distances between them.

A unit's cut is the hyperplane {x : <w, x> + c = 0} on which it changes state, seen in the space of its layer's
inputs. Batch norm belongs to the unit, so it is folded in first; a convolution has one cut per channel, that of its
flattened filter (at a padded border only part of the filter is used; the cut of the inner positions stands for all).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from splinecut.errors import InputError


@dataclass(frozen=True)
class Cuts:
    """Hyperplanes {x : <normal, x> + offset = 0} with |normal| = 1, in float64.

    `norm` is the length |w| that was divided out, so offset * norm is the unit's own bias; it says nothing about
    where the cut lies. A dead unit (w = 0) cuts nothing: its normal, offset and norm are all 0.
    """

    normal: Float[Tensor, "units inputs"]
    offset: Float[Tensor, " units"]
    norm: Float[Tensor, " units"]

    def __len__(self) -> int:
        return len(self.offset)

    def __getitem__(self, units: slice | Tensor | list[int]) -> Cuts:
        return Cuts(self.normal[units], self.offset[units], self.norm[units])

    @property
    def is_dead(self) -> Bool[Tensor, " units"]:
        return self.norm == 0


CutDistance = Callable[[Cuts, Cuts, float], Tensor]
"""(a, b, rho) -> (a, b): how far each cut of a lies from each cut of b."""


def cuts(weight: Float[Tensor, " units *inputs"], bias: Float[Tensor, " units"] | None = None) -> Cuts:
    """The cuts of a layer's units; filters are flattened and a missing bias is zero."""
    w = weight.detach().double().flatten(1)
    c = torch.zeros(len(w), dtype=w.dtype) if bias is None else bias.detach().double()
    if c.shape != w.shape[:1]:
        raise InputError(f"bias must have shape ({len(w)},), got {tuple(c.shape)}; pass None when the layer has none")
    norm = w.norm(dim=1)
    # A length below the smallest normal number cannot be divided out; such a unit is as good as dead.
    norm = torch.where(norm > torch.finfo(w.dtype).tiny, norm, 0.0)
    is_live = norm > 0
    length = torch.where(is_live, norm, 1.0)
    return Cuts(torch.where(is_live[:, None], w / length[:, None], 0.0), torch.where(is_live, c / length, 0.0), norm)


def fold_batch_norm(
    weight: Float[Tensor, " units *inputs"],
    bias: Float[Tensor, " units"] | None,
    gain: Float[Tensor, " units"] | None,
    shift: Float[Tensor, " units"] | None,
    mean: Float[Tensor, " units"],
    variance: Float[Tensor, " units"],
    eps: float = 1e-5,
) -> tuple[Float[Tensor, " units *inputs"], Float[Tensor, " units"]]:
    """(w', c') of the single affine map that layer and following batch norm make together, in float64.

        w' = g/s w,   c' = b + g/s (c - m),   s = sqrt(variance + eps)

    with gain g and shift b (None: 1 and 0), running mean m, and the layer's own bias c (None: 0).
    A negative gain turns the unit round but leaves its cut; a gain of zero makes it dead.
    """
    w, m, s = weight.detach().double(), mean.detach().double(), (variance.detach().double() + eps).sqrt()
    g = torch.ones_like(m) if gain is None else gain.detach().double()
    b = torch.zeros_like(m) if shift is None else shift.detach().double()
    c = torch.zeros_like(m) if bias is None else bias.detach().double()
    ratio = g / s
    return w * ratio.view(-1, *[1] * (w.dim() - 1)), b + ratio * (c - m)


def corrected_distance(a: Cuts, b: Cuts, rho: float = 0.05) -> Float[Tensor, "a b"]:
    """How far apart cuts lie; zero exactly when they are the same hyperplane.

    Since (w, c) and (-w, -c) are one cut, both signs are tried and the nearer counts:

        d = min over s in {+1, -1} of  1 - s<w_a, w_b> + rho |c_a - s c_b|,     |w| = 1

    It does not change when a unit is rescaled or turned round, which is what Proposition 2 of You et al. 2022 needs
    and their N_rho (`paper_distance`) lacks. A dead unit cuts nothing; it is infinitely far from everything.
    """
    _check(a, b, rho)
    cosine = (a.normal @ b.normal.T).clamp(-1, 1)
    same = 1 - cosine + rho * (a.offset[:, None] - b.offset).abs()
    turned = 1 + cosine + rho * (a.offset[:, None] + b.offset).abs()
    return torch.minimum(same, turned).masked_fill(_either_dead(a, b), torch.inf)


def paper_distance(a: Cuts, b: Cuts, rho: float = 0.05) -> Float[Tensor, "a b"]:
    """N_rho of You et al. 2022 (Sec. 3.4) as printed: 1 - |cos(w_a, w_b)| + rho |bias_a - bias_b|.

    The biases are compared as they stand, whatever the lengths and directions of w: it can be zero for different
    cuts and positive for equal ones. Dead units, on which the paper is silent, are infinitely far.
    """
    _check(a, b, rho)
    cosine = (a.normal @ b.normal.T).clamp(-1, 1)
    bias_a, bias_b = a.offset * a.norm, b.offset * b.norm
    distance = 1 - cosine.abs() + rho * (bias_a[:, None] - bias_b).abs()
    return distance.masked_fill(_either_dead(a, b), torch.inf)


DISTANCES: dict[str, CutDistance] = {"corrected": corrected_distance, "paper": paper_distance}


def _either_dead(a: Cuts, b: Cuts) -> Bool[Tensor, "a b"]:
    return a.is_dead[:, None] | b.is_dead


def _check(a: Cuts, b: Cuts, rho: float) -> None:
    if a.normal.shape[1] != b.normal.shape[1]:
        raise InputError(
            f"cuts must live in the same space, got {a.normal.shape[1]} and {b.normal.shape[1]} inputs; "
            "compare units of one layer, or reduce both to a common dimension first"
        )
    if not rho >= 0:
        raise InputError(f"rho must be at least 0, got {rho}; the paper uses 0.05")
