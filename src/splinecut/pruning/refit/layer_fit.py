"""One layer fitted to its target: from moments of the probe to the layer's weights and the constant it is to add."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int64
from torch import Tensor

from splinecut.networks.program import Layer, Weights
from splinecut.pruning.refit.layer_rows import LayerRows
from splinecut.pruning.refit.moments import Moments
from splinecut.pruning.refit.ridge import Fit, fit
from splinecut.pruning.refit.shared_taps import SharedTaps

SILENT = 1e-12  # a batch norm's scale below which nothing of the layer reaches its output


@dataclass(frozen=True, eq=False)
class LayerFit:
    """weight: in the form of the layer's own, removed inputs read with weight zero.

    offset:  (outputs,) what is to be added to W^T x behind the norm's scale, as `fold_into_norm` takes it.
    columns: which columns were fitted; None where taps share their coefficients.
    """

    fitted: Fit
    weight: Tensor
    offset: Float[Tensor, " outputs"]
    columns: Int64[Tensor, " kept"] | None


def has_constant(layer: Layer) -> bool:
    """Whether a bias or a batch norm can take up a constant."""
    return layer.bias is not None or layer.norm is not None


def scaled_matrix(layer: Layer, rows: LayerRows, dense: Weights) -> Float[Tensor, "groups columns outputs"]:
    """The dense layer's weights as matrices, times the scale of the batch norm behind it."""
    matrix = rows.matrix(dense[layer.key])
    return matrix if layer.norm is None else matrix * _scale(layer, dense).view(rows.n_groups, 1, -1)


def fit_layer(
    layer: Layer,
    rows: LayerRows,
    dense: Weights,
    moments: tuple[Moments, Moments],
    stays: Bool[Tensor, " channels"],
    folded: SharedTaps | None = None,
    counts: Float[Tensor, "groups outputs"] | None = None,
    on_all: bool = False,
) -> LayerFit:
    """The layer fitted on (fitting, held-out) moments, reading only the channels (or units, if `folded`) that stay."""
    if folded is not None:
        units = torch.nonzero(stays)[:, 0]
        fitted = fit(*moments, units, folded.weight, has_constant(layer), on_all=on_all)
        matrix, offset = folded.unfolded(fitted, units)
        if layer.bias is not None:
            offset = offset + dense[layer.bias].double().cpu()
        offset = offset if layer.norm is None else offset * _scale(layer, dense)
        return LayerFit(fitted, rows.weight(matrix, dense[layer.key]), offset, None)
    kept = stays.repeat_interleave(rows.n_taps)
    columns = torch.nonzero(kept)[:, 0]
    old = scaled_matrix(layer, rows, dense)
    fitted = fit(*moments, columns, old, has_constant(layer), counts, on_all)
    matrix = torch.zeros_like(old)
    matrix[:, columns] = fitted.weight
    if layer.norm is not None:
        scale = _scale(layer, dense).view(rows.n_groups, 1, -1)
        is_silent = scale.abs() < SILENT
        matrix = torch.where(is_silent, rows.matrix(dense[layer.key]), matrix / torch.where(is_silent, 1.0, scale))
        matrix[:, ~kept] = 0.0
    return LayerFit(fitted, rows.weight(matrix, dense[layer.key]), fitted.offset.flatten(), columns)


def _scale(layer: Layer, dense: Weights) -> Float[Tensor, " outputs"]:
    assert layer.norm is not None
    return layer.norm.scale(dense).double().cpu()
