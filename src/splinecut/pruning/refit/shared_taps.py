"""The fit of layers with too many columns: one coefficient for each pair of channels, shared by all taps.

With tens of thousands of columns (a linear layer behind a flattened map) their products do not fit in memory. Then the
layer's input is regressed channel by channel, x_u ~ sum_k c_uk x'_k, taps and positions being further rows, and the
weights become W C. Errors are weighed by what they do to the output: y = L x with L^2 = W^T W.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch
from jaxtyping import Bool, Float, Int64
from torch import Tensor

from splinecut.networks.program import Layer, Weights
from splinecut.pruning.refit.layer_rows import LayerRows
from splinecut.pruning.refit.ridge import Fit

if TYPE_CHECKING:
    from splinecut.pruning.refit.propagation import Removal


@dataclass(frozen=True, eq=False)
class SharedTaps:
    """The regression of channels on channels for one layer.

    columns: (units, taps) of the layer's columns.
    outgoing: (units, taps, outputs) its weights.
    weight:  (1, units, units) L, which is to be predicted from the units; `stays` says which of them are left.
    """

    columns: Int64[Tensor, "units taps"]
    outgoing: Float[Tensor, "units taps outputs"]
    weight: Float[Tensor, "1 units units"]
    stays: Bool[Tensor, " units"]

    @property
    def n_units(self) -> int:
        return len(self.columns)

    def rows(self, x: Float[Tensor, "1 rows columns"]) -> Float[Tensor, "1 more_rows units"]:
        """Rows of all columns as rows of units, one for each tap; rows of one sample stay together."""
        return x[0][:, self.columns.to(x.device)].transpose(1, 2).reshape(1, -1, self.n_units)

    def targets(self, x: Float[Tensor, "1 rows columns"]) -> Float[Tensor, "1 more_rows units"]:
        """What the dense network's input is worth to the layer."""
        rows = self.rows(x)
        return rows @ self.weight.to(rows)

    def unfolded(self, fitted: Fit, kept: Int64[Tensor, " kept"]) -> tuple[Tensor, Tensor]:
        """(the layer's matrix, the constant it is to add) that the fit amounts to."""
        back = torch.linalg.inv(self.weight[0])
        coefficients = fitted.weight[0] @ back  # kept x units
        new = torch.einsum("ku,uto->kto", coefficients, self.outgoing)
        matrix = self.outgoing.new_zeros(1, self.columns.numel(), self.outgoing.shape[2])
        matrix[0, self.columns[kept].flatten()] = new.flatten(0, 1)
        return matrix, torch.einsum("u,uto->o", fitted.offset[0] @ back, self.outgoing)


def shared_taps(layer: Layer, rows: LayerRows, removal: Removal, weights: Weights) -> SharedTaps | None:
    """The regression for a layer that reads one group and nothing else; None for others."""
    if rows.n_groups > 1 or layer.is_transposed:
        return None
    for group in removal.groups:
        member = next((m for m in group.role("consumer") if (m.key, m.axis) == (layer.key, 1)), None)
        if member is None or (member.units < 0).any() or group.name not in removal.keep:
            continue
        # Stable, so that the positions of a unit keep their order and match those of the others one by one.
        channels = torch.from_numpy(np.argsort(member.units, kind="stable").reshape(group.size, -1))
        taps = torch.arange(rows.n_taps)
        columns = (channels[:, :, None] * rows.n_taps + taps).flatten(1)
        outgoing = rows.matrix(weights[layer.key])[0][columns]
        flat = outgoing.flatten(1)
        values, vectors = torch.linalg.eigh(flat @ flat.T)
        floor = 1e-6 * values.mean().clamp_min(torch.finfo(torch.float64).tiny)
        root = (vectors * (values.clamp_min(0) + floor).sqrt()) @ vectors.T
        stays = torch.from_numpy(np.array(removal.keep[group.name], bool))
        return SharedTaps(columns, outgoing, root[None], stays)
    return None
