"""One layer's refit: its input in the dense network regressed on its input in the cut one, checked on held-out rows.

Let x (units) be what a layer received and x' (kept) what it receives now. Its weights W become W C with x ~ C x'. A
kept unit is expected to predict itself, so C is shrunk towards that map, C_0, and not towards zero:

    C = C_0 + argmin over D of  E |x - C_0 x' - D x'|^2 + ridge |D|^2

Rows are split by sample. Several ridges are tried on one part, the error that counts is that of W C on the other part,
and the ridge that is best there is used on all rows. Where none is better than C_0, the weights stay as they are.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from jaxtyping import Bool, Float
from torch import Tensor

RIDGES = (1e-5, 1e-4, 1e-3, 1e-2, 1e-1, 1.0, 10.0)  # of the mean second moment
UNCHECKED = 1e-2  # the ridge where no row can be held out

Constant = Literal["bias", "norm", "nothing"]
"""What takes up a constant difference: the layer's bias, the batch norm behind it in any case, or nothing."""


@dataclass(frozen=True, eq=False)
class LayerFit:
    """x ~ coefficients x' + offset.

    coefficients: (units, kept), C above.
    offset:       (units,) mean of x - C x', which a bias takes up; zero where nothing can.
    error:        on held-out rows, of the layer's output; None where no row was held out.
    unfitted:     the same error with the weights as they are.
    """

    coefficients: Float[Tensor, "units kept"]
    offset: Float[Tensor, " units"]
    error: float | None = None
    unfitted: float | None = None


def fit_layer(
    dense: Float[Tensor, "rows units"],
    cut: Float[Tensor, "rows kept"],
    kept: Bool[Tensor, " units"],
    outgoing: Float[Tensor, "units units"],
    is_held: Bool[Tensor, " rows"],
    constant: Constant,
) -> LayerFit | None:
    """The best refit of a layer, or None where the held-out error is smaller with its weights as they are.

    dense, cut: the layer's input in the dense network and in the cut one, row by row; float64.
    outgoing:   B = W^T W, which says how much an error in each unit matters.
    is_held:    which rows are held out; rows of one sample must be on one side.
    """
    difference = dense.clone()
    difference[:, kept] -= cut  # x - C_0 x': what the cut changed, which D is to explain
    if not is_held.any() or is_held.all():
        return _solution(dense, cut, kept, difference, UNCHECKED, constant)
    centres = _centres(cut[~is_held], difference[~is_held], constant)
    path = _RidgePath.of(cut[~is_held] - centres[0], difference[~is_held] - centres[1], outgoing)
    # Held-out rows are centred by the fitting rows' means: their own would not be known to the refitted network.
    held = cut[is_held] - centres[0], difference[is_held] - centres[1]
    errors = path.errors(*held, RIDGES)
    # A batch norm behind takes up constants without any refit, so they count only where a bias would have to.
    unfitted = _weighted(difference[is_held] if constant == "bias" else held[1], outgoing)
    if constant == "bias":  # may be corrected alone
        errors.append(_weighted(held[1], outgoing))
    best = min(range(len(errors)), key=errors.__getitem__)
    if not errors[best] < unfitted:
        return None
    ridge = RIDGES[best] if best < len(RIDGES) else torch.inf
    return _solution(dense, cut, kept, difference, ridge, constant, errors[best], unfitted)


def _centres(cut: Tensor, difference: Tensor, constant: Constant) -> tuple[Tensor, Tensor]:
    if constant == "nothing":  # an offset could not be expressed, so the fit goes through the origin
        return cut.new_zeros(cut.shape[1]), cut.new_zeros(difference.shape[1])
    return cut.mean(0), difference.mean(0)


def _weighted(rows: Float[Tensor, "rows units"], outgoing: Float[Tensor, "units units"]) -> float:
    """Mean over rows of what an error of this size in each unit does to the layer's output, squared."""
    return max(0.0, ((rows.T @ rows / len(rows)) * outgoing).sum().item())


def _solution(
    dense: Tensor,
    cut: Tensor,
    kept: Tensor,
    difference: Tensor,
    ridge: float,
    constant: Constant,
    error: float | None = None,
    unfitted: float | None = None,
) -> LayerFit:
    """The fit on all rows at this ridge; an infinite one leaves C_0 and corrects the bias alone."""
    coefficients = dense.new_zeros(len(kept), cut.shape[1])
    coefficients[kept] = torch.eye(cut.shape[1], dtype=dense.dtype)
    centres = _centres(cut, difference, constant)
    if ridge < torch.inf:
        path = _RidgePath.of(cut - centres[0], difference - centres[1], None)
        coefficients += path.coefficients(ridge).T
    offset = dense.mean(0) - coefficients @ cut.mean(0) if constant == "bias" else dense.new_zeros(len(kept))
    return LayerFit(coefficients, offset, error, unfitted)


@dataclass(frozen=True, eq=False)
class _RidgePath:
    """Ridge regressions of `difference` on `cut` for any ridge, by one eigendecomposition of the Gram matrix.

    With Gram matrix V diag(d) V^T and cross products Y, the coefficients are V diag(1 / (d + ridge)) V^T Y.
    """

    values: Float[Tensor, " kept"]
    vectors: Float[Tensor, "kept kept"]
    cross: Float[Tensor, "kept units"]  # V^T Y
    outgoing: Float[Tensor, "units units"] | None

    @classmethod
    def of(cls, cut: Tensor, difference: Tensor, outgoing: Tensor | None) -> _RidgePath:
        values, vectors = torch.linalg.eigh(cut.T @ cut / len(cut))
        # Rounding makes small eigenvalues negative, and with a small ridge the inverse would explode.
        return cls(values.clamp_min(0), vectors, vectors.T @ (cut.T @ difference / len(cut)), outgoing)

    def shrinkage(self, ridge: float) -> Float[Tensor, " kept"]:
        """1 / (d + ridge of the mean d); zero everywhere where nothing moves."""
        mean = self.values.mean()
        if not mean > torch.finfo(mean.dtype).tiny / torch.finfo(mean.dtype).eps:
            return torch.zeros_like(self.values)
        return 1 / (self.values + ridge * mean)

    def coefficients(self, ridge: float) -> Float[Tensor, "kept units"]:
        return self.vectors @ (self.shrinkage(ridge)[:, None] * self.cross)

    def errors(self, cut: Tensor, difference: Tensor, ridges: Sequence[float]) -> list[float]:
        """The error on other rows for each ridge, weighted by the outgoing products.

        With s the shrinkage it is a quadratic form, |difference|^2 - 2 <s, linear> + <s, square s>, so that one pass
        over the rows serves all ridges.
        """
        assert self.outgoing is not None
        rotated = cut @ self.vectors
        gram, crossed = rotated.T @ rotated / len(cut), rotated.T @ difference / len(cut)
        weighted = self.cross @ self.outgoing
        linear, square = (weighted * crossed).sum(1), gram * (weighted @ self.cross.T)
        alone = _weighted(difference, self.outgoing)
        shrinkages = [self.shrinkage(ridge) for ridge in ridges]
        return [max(0.0, (alone - 2 * s @ linear + s @ square @ s).item()) for s in shrinkages]
