"""Where the weights of consumer layers stand in the dense network, and where they go in the network cut from it."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from jaxtyping import Bool, Float, Int64
from torch import Tensor, nn

from splinecut.networks.groups.values import Groups, Keep
from splinecut.pruning.activations import ConsumerLayer


@dataclass(frozen=True)
class LayerWeights:
    """Reads weights of the dense network `model` and writes into `smaller`, which was cut from it by `keep`."""

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


def weight_products(outgoing: Float[Tensor, "outputs units positions taps"]) -> Float[Tensor, "units units"]:
    """B = W^T W: how much an error that two units share matters to the layer's output, over all positions and taps."""
    flat = outgoing.transpose(0, 1).flatten(1)
    return flat @ flat.T
