"""First and second moments of what a layer reads and what it should give, added up batch by batch in float64.

All that a least-squares fit, the choice of its ridge and the elimination of units need of the probe.
"""

from __future__ import annotations

from dataclasses import dataclass, fields

import torch
from jaxtyping import Float, Int64
from torch import Tensor

from splinecut.errors import InputError


@dataclass(eq=False)
class Moments:
    """Sums over rows x (groups, columns) and their targets y (groups, outputs), each about a fixed origin."""

    n_rows: int
    origin: Float[Tensor, "groups columns"]
    target_origin: Float[Tensor, "groups outputs"]
    x: Float[Tensor, "groups columns"]
    y: Float[Tensor, "groups outputs"]
    xx: Float[Tensor, "groups columns columns"]
    xy: Float[Tensor, "groups columns outputs"]
    yy: Float[Tensor, "groups outputs"]

    @classmethod
    def zero(cls, n_groups: int, n_columns: int, n_outputs: int) -> Moments:
        x, y = torch.zeros(n_groups, n_columns).double(), torch.zeros(n_groups, n_outputs).double()
        xx, xy = (torch.zeros(n_groups, n_columns, n).double() for n in (n_columns, n_outputs))
        return cls(0, x.clone(), y.clone(), x, y, xx, xy, y.clone())

    def add(self, x: Float[Tensor, "groups rows columns"], y: Float[Tensor, "groups rows outputs"]) -> None:
        """Takes in rows; products in float32 at least, by torch on the threads that the network runs on."""
        if not x.shape[1]:
            return
        x, y = (value.float() if value.dtype.itemsize < 4 else value for value in (x, y))
        if not self.n_rows:
            # Rounded to the rows' own precision, so that subtracting it is exact.
            self.origin, self.target_origin = (value.mean(1).double().cpu() for value in (x, y))
        # About the first rows' means: units that hardly move would lose their variance to rounding otherwise.
        x, y = x - self.origin.to(x)[:, None], y - self.target_origin.to(y)[:, None]
        self.n_rows += x.shape[1]
        self.x += x.sum(1, dtype=torch.float64).cpu()
        self.y += y.sum(1, dtype=torch.float64).cpu()
        self.xx += (x.mT @ x).cpu()
        self.xy += (x.mT @ y).cpu()
        self.yy += y.square().sum(1, dtype=torch.float64).cpu()

    def merged(self, other: Moments) -> Moments:
        """The moments of both sets of rows; those of `other` are moved to this one's origin."""
        if not other.n_rows or not self.n_rows:
            return self if self.n_rows else other
        n, dx, dy = other.n_rows, other.origin - self.origin, other.target_origin - self.target_origin
        crossed = dx[:, :, None] * other.x[:, None, :]
        xx = other.xx + crossed + crossed.mT + n * dx[:, :, None] * dx[:, None, :]
        xy = other.xy + dx[:, :, None] * (other.y + n * dy)[:, None, :] + other.x[:, :, None] * dy[:, None, :]
        return Moments(
            self.n_rows + n,
            self.origin,
            self.target_origin,
            self.x + other.x + n * dx,
            self.y + other.y + n * dy,
            self.xx + xx,
            self.xy + xy,
            self.yy + other.yy + 2 * dy * other.y + n * dy.square(),
        )

    def centred(self, about: Moments | None = None, has_constant: bool = True) -> Centred:
        """Mean products about the means of `about` (its own, if None); about zero where nothing takes up a constant."""
        about = about or self
        n = max(1, self.n_rows)
        x, y = self.x / n, self.y / n
        mean_x, mean_y = (
            about.origin + about.x / max(1, about.n_rows),
            about.target_origin + about.y / max(1, about.n_rows),
        )
        if not has_constant:
            mean_x, mean_y = torch.zeros_like(mean_x), torch.zeros_like(mean_y)
        dx, dy = self.origin + x - mean_x, self.target_origin + y - mean_y
        xx = self.xx / n + dx[:, :, None] * dx[:, None, :] - x[:, :, None] * x[:, None, :]
        xy = self.xy / n + dx[:, :, None] * dy[:, None, :] - x[:, :, None] * y[:, None, :]
        return Centred(xx, xy, self.yy / n - y.square() + dy.square(), mean_x, mean_y)

    def check(self, where: str) -> None:
        """Raises InputError where a sum is not finite."""
        sums = (getattr(self, field.name) for field in fields(self) if field.name != "n_rows")
        if not all(torch.isfinite(value).all() for value in sums):
            raise InputError(
                f"what reaches {where} on the probe must be finite and its squares too, got NaN or infinities; "
                "give inputs normalised as in training, and check that the network itself is finite on them"
            )


@dataclass(frozen=True, eq=False)
class Centred:
    """Mean products of rows and targets about given means."""

    xx: Float[Tensor, "groups columns columns"]
    xy: Float[Tensor, "groups columns outputs"]
    yy: Float[Tensor, "groups outputs"]
    mean_x: Float[Tensor, "groups columns"]
    mean_y: Float[Tensor, "groups outputs"]

    def restricted(self, columns: Int64[Tensor, " kept"]) -> Centred:
        """The same without the other columns."""
        if len(columns) == self.xx.shape[1]:
            return self
        xx = self.xx[:, columns][:, :, columns]
        return Centred(xx, self.xy[:, columns], self.yy, self.mean_x[:, columns], self.mean_y)

    def error(self, weight: Float[Tensor, "groups columns outputs"]) -> Float[Tensor, "groups outputs"]:
        """E (y - W^T x)^2 of each output."""
        return (self.yy - (weight * (2 * self.xy - self.xx @ weight)).sum(1)).clamp_min(0)
