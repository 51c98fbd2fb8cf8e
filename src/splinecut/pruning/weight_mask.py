"""Masks of single weights: which are prunable, and a hook that holds removed ones at exactly zero in training."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from jaxtyping import Bool
from torch import Tensor, nn

from splinecut.networks.cost import flops_by_module
from splinecut.training.hooks import Hook
from splinecut.training.ledger import TRAIN

if TYPE_CHECKING:
    from splinecut.training.hooks import TrainState


def prunable_weights(model: nn.Module) -> dict[str, nn.Parameter]:
    """The weights that single-weight methods may remove: of linear and convolutional layers, in the order they stand.

    Biases and norms are never removed; a weight that two layers share is named once.
    """
    kinds = (nn.Linear, nn.Conv1d, nn.Conv2d, nn.Conv3d)
    # By the module, not by the name or the shape: an embedding's weight is a matrix too.
    owners = {path for path, module in model.named_modules() if isinstance(module, kinds)}
    return {
        name: parameter
        for name, parameter in model.named_parameters()
        if name.rpartition(".")[2] == "weight" and name.rpartition(".")[0] in owners
    }


def apply_weight_mask(model: nn.Module, keep: Mapping[str, Bool[np.ndarray, " *shape"]]) -> None:
    """Sets the removed weights to zero, in place."""
    with torch.no_grad():
        for name, stays in keep.items():
            parameter = model.get_parameter(name)
            parameter.masked_fill_(torch.from_numpy(~np.asarray(stays, bool)).to(parameter.device), 0)


def nonzeros(model: nn.Module) -> tuple[int, int]:
    """How many of the prunable weights are not zero, and how many there are."""
    weights = prunable_weights(model).values()
    return sum(int(weight.count_nonzero()) for weight in weights), sum(weight.numel() for weight in weights)


def masked_flops(model: nn.Module, keep: Mapping[str, Bool[np.ndarray, " *shape"]], shape: tuple[int, ...]) -> int:
    """FLOPs of one input's forward pass that multiply by removed weights; `shape` is the input's.

    A layer spends the same on each of its weights, so it is the share of them that is gone.
    """
    spent = flops_by_module(model, shape)
    per_layer = {name: spent.get(name.rpartition(".")[0], 0) for name in keep}
    return sum(per_layer[name] * int((~stays).sum()) // stays.size for name, stays in keep.items())


class WeightMaskHook(Hook):
    """Zeroes the gradients of removed weights as they arrive, and the weights again after each step.

    Without gradient their momentum stays zero too: training starts with a fresh optimiser. `keep` maps a parameter's
    name to which of its entries stay; methods that move the mask during training change it with `move`. What an ideal
    sparse machine would spare is noted at every step.
    """

    name = "mask"

    def __init__(self, keep: Mapping[str, Bool[np.ndarray, " *shape"]]) -> None:
        self.keep = {name: np.asarray(stays, bool) for name, stays in keep.items()}
        self._gone: dict[str, Bool[Tensor, " *shape"]] = {}
        self._idle: int | None = None

    def move(self, model: nn.Module, keep: Mapping[str, Bool[np.ndarray, " *shape"]]) -> None:
        """Puts another mask in force: what is removed is zero from now on."""
        self._idle = None
        self.keep = {name: np.asarray(stays, bool) for name, stays in keep.items()}
        self._gone = {
            name: torch.from_numpy(~stays).to(model.get_parameter(name).device) for name, stays in self.keep.items()
        }
        self._fill(model)

    def start(self, state: TrainState) -> None:
        self.move(state.model, self.keep)

    def after_backward(self, state: TrainState) -> bool | None:
        state.spared_flops = TRAIN * self.masked_flops(state)
        # Before the optimizer sees it, so that removed weights gather no momentum.
        for name, gone in self._gone.items():
            gradient = state.model.get_parameter(name).grad
            if gradient is not None:
                gradient.masked_fill_(gone, 0)
        return None

    def masked_flops(self, state: TrainState) -> int:
        """FLOPs that one input's forward pass spends on removed weights."""
        if self._idle is None:
            assert state.batch is not None
            self._idle = masked_flops(state.model, self.keep, tuple(state.batch[0].shape[1:]))
        return self._idle

    def after_step(self, state: TrainState) -> None:
        # Again after the step: a hook behind this one may have added to the gradient, and what left when the mask moved
        # may still have momentum.
        self._fill(state.model)

    def _fill(self, model: nn.Module) -> None:
        with torch.no_grad():
            for name, gone in self._gone.items():
                model.get_parameter(name).masked_fill_(gone, 0)

    def state(self) -> dict[str, Any]:
        return {name: torch.from_numpy(stays) for name, stays in self.keep.items()}

    def restore(self, state: dict[str, Any]) -> None:
        self.keep = {name: stays.cpu().numpy().astype(bool) for name, stays in state.items()}
