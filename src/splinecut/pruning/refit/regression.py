"""One layer's refit: what the whole network sent it, regressed on what the cut network sends, checked on held-out rows.

Let x (units) be what a layer received and x' (kept) what it receives now. Its weights W become W C with x ~ C x'. A
kept unit is expected to predict itself, so C is shrunk towards that map, C_0, and not towards zero:

    C = C_0 + argmin over D of  E |x - C_0 x' - D x'|^2 + ridge |D|^2

Rows are split by sample. Several ridges are tried on one part, the error that counts is that of W C on the other part,
and the ridge that is best there is used on all rows. Where none is better than C_0, the weights stay as they are.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float
from torch import Tensor

RIDGES = (1e-5, 1e-4, 1e-3, 1e-2, 1e-1, 1.0, 10.0)  # of the mean second moment
UNCHECKED = 1e-2  # the ridge where no row can be held out


@dataclass(frozen=True, eq=False)
class Fit:
    """x ~ made_of x' + what the means leave over.

    made_of: (units, kept).
    missing: (units,) mean of x - made_of x', which a bias takes up; zero where nothing can.
    error:   on held-out rows, of what the layer receives in all; None where no row was held out.
    before:  the same without any refit.
    """

    made_of: Float[Tensor, "units kept"]
    missing: Float[Tensor, " units"]
    error: float | None = None
    before: float | None = None


def fitted(
    whole: Float[Tensor, "rows units"],
    left: Float[Tensor, "rows kept"],
    kept: Bool[Tensor, " units"],
    outgoing: Float[Tensor, "units units"],
    is_held: Bool[Tensor, " rows"],
    constant: str,
) -> Fit | None:
    """The best refit of a layer, or None where the held-out error is smaller with its weights as they are.

    whole, left: what is sent to the layer by the whole network and by the cut one, row by row; float64.
    outgoing:    B = W^T W, which says how much an error in each unit matters.
    constant:    what takes up constant differences: "bias", "norm" (the batch norm behind, in any case), or "nothing".
    """
    difference = whole.clone()
    difference[:, kept] -= left
    if not is_held.any() or is_held.all():
        return _solution(whole, left, kept, difference, UNCHECKED, constant)
    centres = _centres(left[~is_held], difference[~is_held], constant)
    path = _Path.of(left[~is_held] - centres[0], difference[~is_held] - centres[1], outgoing)
    held = left[is_held] - centres[0], difference[is_held] - centres[1]
    errors = path.errors(*held, RIDGES)
    without = _weighted(difference[is_held] if constant == "bias" else held[1], outgoing)
    if constant == "bias":  # may be corrected alone
        errors.append(_weighted(held[1], outgoing))
    best = min(range(len(errors)), key=errors.__getitem__)
    if not errors[best] < without:
        return None
    ridge = RIDGES[best] if best < len(RIDGES) else torch.inf
    return _solution(whole, left, kept, difference, ridge, constant, errors[best], without)


def _centres(left: Tensor, difference: Tensor, constant: str) -> tuple[Tensor, Tensor]:
    if constant == "nothing":
        return left.new_zeros(left.shape[1]), left.new_zeros(difference.shape[1])
    return left.mean(0), difference.mean(0)


def _weighted(rows: Float[Tensor, "rows units"], outgoing: Float[Tensor, "units units"]) -> float:
    """Mean over rows of what an error of this size in each unit does to the layer's output, squared."""
    return max(0.0, ((rows.T @ rows / len(rows)) * outgoing).sum().item())


def _solution(
    whole: Tensor,
    left: Tensor,
    kept: Tensor,
    difference: Tensor,
    ridge: float,
    constant: str,
    error: float | None = None,
    before: float | None = None,
) -> Fit:
    made_of = whole.new_zeros(len(kept), left.shape[1])
    made_of[kept] = torch.eye(left.shape[1], dtype=whole.dtype)
    centres = _centres(left, difference, constant)
    if ridge < torch.inf:
        path = _Path.of(left - centres[0], difference - centres[1], None)
        made_of += path.coefficients(ridge).T
    missing = whole.mean(0) - made_of @ left.mean(0) if constant == "bias" else whole.new_zeros(len(kept))
    return Fit(made_of, missing, error, before)


@dataclass(frozen=True, eq=False)
class _Path:
    """Ridge regressions of `difference` on `left` for any ridge, by one eigendecomposition of the Gram matrix.

    With Gram matrix V diag(d) V^T and cross products Y, the coefficients are V diag(1 / (d + ridge)) V^T Y.
    """

    values: Float[Tensor, " kept"]
    vectors: Float[Tensor, "kept kept"]
    cross: Float[Tensor, "kept units"]  # V^T Y
    outgoing: Float[Tensor, "units units"] | None

    @classmethod
    def of(cls, left: Tensor, difference: Tensor, outgoing: Tensor | None) -> _Path:
        values, vectors = torch.linalg.eigh(left.T @ left / len(left))
        return cls(values.clamp_min(0), vectors, vectors.T @ (left.T @ difference / len(left)), outgoing)

    def shrunk(self, ridge: float) -> Float[Tensor, " kept"]:
        """1 / (d + ridge of the mean d); zero everywhere where nothing moves."""
        mean = self.values.mean()
        if not mean > torch.finfo(mean.dtype).tiny / torch.finfo(mean.dtype).eps:
            return torch.zeros_like(self.values)
        return 1 / (self.values + ridge * mean)

    def coefficients(self, ridge: float) -> Float[Tensor, "kept units"]:
        return self.vectors @ (self.shrunk(ridge)[:, None] * self.cross)

    def errors(self, left: Tensor, difference: Tensor, ridges: Sequence[float]) -> list[float]:
        """The error on other rows for each ridge, weighted by the outgoing products."""
        assert self.outgoing is not None
        rotated = left @ self.vectors
        gram, crossed = rotated.T @ rotated / len(left), rotated.T @ difference / len(left)
        weighted = self.cross @ self.outgoing
        linear, square = (weighted * crossed).sum(1), gram * (weighted @ self.cross.T)
        alone = _weighted(difference, self.outgoing)
        scales = [self.shrunk(ridge) for ridge in ridges]
        return [max(0.0, (alone - 2 * scale @ linear + scale @ square @ scale).item()) for scale in scales]
