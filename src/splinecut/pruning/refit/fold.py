"""A refit without data: removed units give their outgoing weights to kept units that draw the same cut.

If the removed unit r draws the same cut as a kept unit k, from the same side, its activation is a multiple of k's,
relu(a z) = a relu(z), and k takes over a times r's outgoing weights: exact. Otherwise r goes to the kept unit it is
most similar to, a being the projection of r's (w, c) on k's. A unit similar to no kept unit is dropped without
compensation.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from jaxtyping import Bool, Float, Int64
from torch import Tensor, nn

from splinecut.geometry.cuts import Cuts
from splinecut.networks.groups.values import Groups, Keep, UnitGroup
from splinecut.pruning.activations import ConsumerLayer, consumer_layers
from splinecut.pruning.unit_parameters import unit_cuts


def fold(model: nn.Module, smaller: nn.Module, groups: Groups, keep: Keep) -> None:
    """Adds to `smaller`, cut from `model`, the outgoing weights that removed units give to kept ones. Needs no data."""
    weights = _LayerWeights(model, smaller, groups, keep)
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


@dataclass(frozen=True)
class _LayerWeights:
    """Reads consumers' weights of the dense `model` and writes them into `smaller`, cut from it by `keep`."""

    model: nn.Module
    smaller: nn.Module
    groups: Groups
    keep: Keep

    @cached_property
    def _slices(self) -> dict[str, dict[int, np.ndarray]]:
        return self.groups.slices(self.keep)  # once: a DenseNet has hundreds of consumers, each of many groups

    def stays(self, key: str, axis: int = 0) -> Tensor | None:
        """Which positions of a tensor's axis stay; None where all do."""
        stays = self._slices.get(key, {}).get(axis)
        return None if stays is None else torch.from_numpy(stays)

    def columns(self, consumer: ConsumerLayer) -> Int64[np.ndarray, "units positions"]:
        """The consumer's columns, counted in the cut network; meaningless for units that left."""
        return (np.cumsum(self._slices[consumer.key][1]) - 1)[consumer.columns]

    def outgoing(self, consumer: ConsumerLayer) -> Float[Tensor, "outputs units positions taps"]:
        """The dense network's weights from every unit to the outputs that stay; float64, on the CPU."""
        weight = self.model.get_parameter(consumer.key).detach().double().cpu()
        outputs = self.stays(consumer.key)
        weight = weight if outputs is None else weight[outputs]
        picked = weight[:, torch.from_numpy(consumer.columns)]
        return picked.flatten(3) if weight.dim() > 2 else picked.unsqueeze(3)

    def write(
        self, consumer: ConsumerLayer, kept: Bool[np.ndarray, " units"], coefficients: Float[Tensor, "units kept"]
    ) -> None:
        """Sets the cut layer's weights to W C: a kept unit carries its own and those of units it stands in for."""
        weight = self.smaller.get_parameter(consumer.key)
        columns = torch.from_numpy(self.columns(consumer)[kept])
        outgoing = torch.einsum("onpt,nk->okpt", self.outgoing(consumer), coefficients)
        with torch.no_grad():
            weight[:, columns] = outgoing.reshape(len(weight), *columns.shape, *weight.shape[2:]).to(weight)
