"""A sparse network whose mask moves while it trains: small weights leave, large gradients come in (RigL)."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, ClassVar, Literal

import numpy as np
import torch
from jaxtyping import Bool, Float
from pydantic import Field
from torch import Tensor, nn

from splinecut.pruning.budget import Keep, best
from splinecut.pruning.methods.weights.random_masks import DENSITIES, RandomWeights, Shapes
from splinecut.pruning.options import Count, Share
from splinecut.pruning.weight_mask import WeightMaskHook

if TYPE_CHECKING:
    from splinecut.training.hooks import TrainState


@dataclass(frozen=True)
class Rigl(RandomWeights):
    """Starts from a random mask and moves it every `every` steps over the first `until` of the plan (Evci et al. 2020).

    densities: "erk" or "uniform", of the layers; they never change.
    drop:      the share of each layer's weights that the first move replaces; it falls to zero along half a cosine.
    """

    state: ClassVar[str] = "during training"
    reference: ClassVar[str] = "Evci et al. 2020"

    densities: Literal["erk", "uniform"] = "erk"
    every: Count = 100  # steps, Evci et al. 2020
    until: Share = 0.75
    drop: Annotated[float, Field(ge=0, le=1)] = 0.3

    def allocation(self) -> Callable[[Shapes, int], dict[str, float]]:
        return DENSITIES[self.densities]

    def mask_hook(self, keep: Keep) -> WeightMaskHook:
        return MoveMask(keep, self.every, self.until, self.drop)


def drop_share(step: int, end: float, drop: float) -> float:
    """The share of active weights a move at `step` replaces: drop / 2 (1 + cos(pi step / end)), and 0 from `end` on."""
    return drop / 2 * (1 + math.cos(math.pi * step / end)) if step < end else 0.0


def moved(
    stays: Bool[np.ndarray, " *shape"],
    weight: Float[np.ndarray, " *shape"],
    gradient: Float[np.ndarray, " *shape"],
    n: int,
) -> Bool[np.ndarray, " *shape"]:
    """The mask after its `n` smallest |weight| left and the `n` largest |gradient| outside the rest came in.

    As in the authors' code a weight that just left may come back by its gradient; it is then not touched.
    """
    active, size = stays.reshape(-1), np.abs(weight).reshape(-1)
    # Ranked, not compared with a threshold: the count of a layer must not drift from move to move.
    kept = best(np.where(active, size, -np.inf), int(active.sum()) - n)
    pull = np.where(kept, -np.inf, np.abs(gradient).reshape(-1))
    return (kept | best(pull, n)).reshape(stays.shape)


class MoveMask(WeightMaskHook):
    """Holds removed weights at zero and moves the mask at every `every`-th step, in place of the optimiser's step.

    Weights that come in start at zero. They and those that leave have no momentum.
    """

    def __init__(self, keep: Keep, every: int, until: float, drop: float) -> None:
        super().__init__(keep)
        self.every, self.until, self.drop = every, until, drop

    def after_backward(self, state: TrainState) -> bool | None:
        share = drop_share(state.step, self.until * state.total_steps, self.drop)
        if share == 0 or state.step == 0 or state.step % self.every:
            return super().after_backward(state)
        # The weights' gradient is dense in this step; the forward pass and the inputs' gradient are sparse.
        state.spared_flops = 2 * self.masked_flops(state)
        keep = {name: self._moved(state.model, name, share) for name in self.keep}
        for name in keep:
            # A weight that comes in must not start with the momentum it had when it left.
            _forget(state.optimizer, state.model.get_parameter(name), ~(keep[name] & self.keep[name]))
        self.move(state.model, keep)
        return True

    def _moved(self, model: nn.Module, name: str, share: float) -> Bool[np.ndarray, " *shape"]:
        stays, parameter = self.keep[name], model.get_parameter(name)
        if parameter.grad is None:
            return stays
        n = int(share * stays.sum())
        return moved(stays, _numbers(parameter), _numbers(parameter.grad), n)


def _numbers(tensor: Tensor) -> Float[np.ndarray, " *shape"]:
    return tensor.detach().float().cpu().numpy()


def _forget(optimizer: torch.optim.Optimizer, parameter: nn.Parameter, where: Bool[np.ndarray, " *shape"]) -> None:
    """Zeroes what the optimiser remembers of these entries."""
    there = torch.from_numpy(where).to(parameter.device)
    for buffer in optimizer.state.get(parameter, {}).values():
        if isinstance(buffer, Tensor) and buffer.shape == parameter.shape:
            buffer.masked_fill_(there, 0)
