"""A refit without data: removed units give their outgoing weights to kept units that draw the same cut.

If the removed unit r draws the same cut as a kept unit k, from the same side, its activation is a multiple of k's,
relu(a z) = a relu(z), and k takes over a times r's outgoing weights: exact. Otherwise r goes to the kept unit it is
most similar to, a being the projection of r's (w, c) on k's. A unit similar to no kept unit is dropped without
compensation.
"""

from __future__ import annotations

import numpy as np
import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from splinecut.geometry.cuts import Cuts
from splinecut.networks.groups.values import Groups, Keep, UnitGroup
from splinecut.pruning.activations import consumer_layers
from splinecut.pruning.refit.layer_weights import LayerWeights
from splinecut.pruning.unit_parameters import unit_cuts


def fold(model: nn.Module, smaller: nn.Module, groups: Groups, keep: Keep) -> None:
    """Adds to `smaller`, cut from `model`, the outgoing weights that removed units give to kept ones. Needs no data."""
    weights = LayerWeights(model, smaller, groups, keep)
    for group in groups:
        kept = np.asarray(keep[group.name], bool)
        if group.kind == "selector" or kept.all() or not kept.any():
            continue
        coefficients = torch.from_numpy(_coefficients(model, group, kept)[:, kept])
        for consumer in consumer_layers(model, group):
            weights.write(consumer, kept, coefficients)


def _coefficients(
    model: nn.Module, group: UnitGroup, kept: Bool[np.ndarray, " units"]
) -> Float[np.ndarray, "units units"]:
    """Row n says how unit n is made of kept units: itself if it is kept, else a multiple of the most similar one."""
    cuts = [unit_cuts(model, group, producer) for producer in group.producers if producer.weight]
    vectors = torch.cat([_with_offset(each) for each in cuts], dim=1)
    products = (vectors @ vectors.T).numpy()
    squares = products.diagonal().copy()
    coefficients = np.diag(kept.astype(float))
    cosine = products / np.sqrt(np.outer(squares, squares)).clip(min=np.finfo(float).tiny)
    cosine[:, ~kept] = -np.inf
    for unit in np.flatnonzero(~kept):
        nearest = int(cosine[unit].argmax())
        # Only a positive multiple: relu(a z) is no multiple of relu(z) where a < 0.
        if cosine[unit, nearest] > 0:
            coefficients[unit, nearest] = products[unit, nearest] / squares[nearest]
    return coefficients


def _with_offset(cuts: Cuts) -> Float[Tensor, "units inputs_and_one"]:
    """(w, c) of each unit, as they stand in the network."""
    return torch.cat([cuts.normal * cuts.norm[:, None], (cuts.offset * cuts.norm)[:, None]], dim=1)
