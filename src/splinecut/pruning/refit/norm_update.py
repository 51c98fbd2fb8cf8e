"""Constants and batch norms after a refit: statistics are corrected by what the cut changed, never replaced.

A trained network's statistics are those of its whole training set. A few hundred inputs know them badly, but both the
dense and the cut network are run on the same ones, and the difference is due to the cut alone. What a norm computes in
eval mode is what the fit asks for; its mean and variance are those of what it now receives, so that training can go on.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from jaxtyping import Float
from torch import Tensor

from splinecut.networks.program import Layer, Norm, Weights
from splinecut.pruning.refit.batch_norms import MOST, SMOOTHING, Statistics


def fold_into_norm(
    layer: Layer,
    weights: dict[str, Tensor],
    dense: Weights,
    offset: Float[Tensor, " outputs"],
    before: Float[Tensor, "mean_and_square outputs"] | None,
    after: Float[Tensor, "mean_and_variance outputs"] | None,
) -> None:
    """Gives the layer the constant `offset`, in its bias or in the batch norm behind it.

    offset: what is to be added to W^T x, behind the norm's scale, so that the mean is right.
    before, after: mean (and square, variance) of what the dense and the fitted layer give, behind the norm's scale and
    without a bias; None leaves the norm's statistics alone.
    """
    norm = layer.norm
    if norm is None:
        if layer.bias is not None:
            weights[layer.bias] = offset.to(dense[layer.bias])
        return
    scale = norm.scale(dense).double().cpu()
    bias = dense[layer.bias].double().cpu() if layer.bias else torch.zeros_like(scale)
    needed = offset - scale * bias  # -scale * mean + shift of the norm must grow by this
    divisor = torch.where(scale.abs() < 1e-12, 1.0, scale)
    if norm.bias is None or norm.weight is None:
        shift = torch.where(scale.abs() < 1e-12, 0.0, -needed / divisor)
        weights[norm.mean] = (dense[norm.mean].double().cpu() + shift).to(dense[norm.mean])
        return
    shift = torch.zeros_like(scale)
    if before is not None and after is not None:
        # The mean moves as far as the layer's output did; the rest (an error of the stream) is the norm's own bias.
        shift = torch.where(scale.abs() < 1e-12, 0.0, (after[0] + scale * bias - before[0]) / divisor)
        _rescale(norm, weights, dense, before[1] - before[0].square(), after[1], scale)
    weights[norm.mean] = (dense[norm.mean].double().cpu() + shift).to(dense[norm.mean])
    weights[norm.bias] = (dense[norm.bias].double().cpu() + needed + scale * shift).to(dense[norm.bias])


def _rescale(
    norm: Norm, weights: dict[str, Tensor], dense: Weights, before: Tensor, after: Tensor, scale: Tensor
) -> None:
    """Changes variance and gain of a norm together, so that in eval mode it multiplies by what it did."""
    assert norm.weight is not None
    old = dense[norm.var].double().cpu() + norm.eps
    floor = SMOOTHING * old * scale.square()
    ratio = torch.where(scale.abs() < 1e-12, 1.0, (after + floor) / (before.clamp_min(0) + floor)).clamp(1 / MOST, MOST)
    ratio = torch.where(torch.isfinite(ratio), ratio, 1.0)
    new = (old * ratio - norm.eps).clamp_min(0)
    weights[norm.var] = new.to(dense[norm.var])
    gain = ((new + norm.eps) / old).sqrt() * dense[norm.weight].double().cpu()
    weights[norm.weight] = gain.to(dense[norm.weight])


def correct_norm(norm: Norm, weights: dict[str, Tensor], pairs: Sequence[tuple[Tensor, Tensor]]) -> None:
    """Changes the statistics of a norm as much as what reaches it on the probe changed: (dense, cut) batch by batch.

    mean = old mean + (mean after - before),   var = old var x (var after / before)
    """
    before, after = Statistics(), Statistics()
    for dense, cut in pairs:
        before.add(dense)
        after.add(cut)
    mean, var = weights[norm.mean], weights[norm.var]
    floor = SMOOTHING * (var.double() + norm.eps)
    ratio = ((after.var.to(var.device) + floor) / (before.var.to(var.device) + floor)).clamp(1 / MOST, MOST)
    shift = torch.as_tensor(after.mean) - torch.as_tensor(before.mean)
    weights[norm.mean] = (mean.double() + shift.to(mean.device)).to(mean)
    weights[norm.var] = (var.double() * ratio).to(var)
