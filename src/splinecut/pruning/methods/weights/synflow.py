"""Single weights ranked before training, without data, by the flow through them (SynFlow)."""

from __future__ import annotations

import copy
from dataclasses import dataclass, replace
from typing import ClassVar, Literal

import numpy as np
import torch
from torch import nn

from splinecut.errors import InputError
from splinecut.pruning.budget import Budget, Keep, select
from splinecut.pruning.evidence import Evidence
from splinecut.pruning.method import Method, Scores
from splinecut.pruning.options import Count
from splinecut.pruning.weight_mask import apply_weight_mask, prunable_weights
from splinecut.training.ledger import TRAIN


@dataclass(frozen=True)
class Synflow(Method):
    """|w| dR/d|w|, where R sums the outputs of the network of absolute weights on an input of ones.

    Tanaka et al. 2020, "Pruning neural networks without any data by iteratively conserving synaptic flow".

    The t-th of `n_rounds` rounds leaves keep^(t / n_rounds) and the flow is measured anew: that is what keeps a layer
    from going empty. The rounds are inside the score. What it returns ranks as they do: the flow of what is left
    before the last round, and below it, negative, the round in which each other weight went.

    It runs in float64: R is a product over layers. Biases and norms are taken as absolute values too and carry flow.
    Batch norms run on the statistics they were initialised with, since others would break its conservation.
    """

    units: ClassVar[Literal["channels", "weights"]] = "weights"
    state: ClassVar[str] = "at initialisation"
    trains_first: ClassVar[bool] = False
    reference: ClassVar[str] = "Tanaka et al. 2020"

    n_rounds: Count = 100

    def score(self, evidence: Evidence, budget: Budget) -> Scores:
        net = absolute_copy(evidence.model)
        ones = torch.ones(1, *evidence.images.shape[1:], dtype=torch.float64)
        scores = flow(net, ones)
        keep: Keep = {name: np.ones(values.shape, bool) for name, values in scores.items()}
        rank = {name: np.zeros(values.shape) for name, values in scores.items()}
        for t in range(1, self.n_rounds):
            share = budget.keep ** (t / self.n_rounds)
            now = select(scores, replace(budget, keep=share))
            for name, stays in now.items():
                rank[name][keep[name] & ~stays] = t - self.n_rounds
            keep = now
            apply_weight_mask(net, keep)
            alive = flow(net, ones)
            # Weights that left rank below all others, the first to leave lowest: the next round cannot bring them back.
            scores = {name: np.where(keep[name], alive[name], rank[name]) for name in alive}
        return scores

    def flops(self, evidence: Evidence, forward_flops: int) -> int:
        """A forward and backward of one input in each round."""
        return TRAIN * forward_flops * self.n_rounds


def absolute_copy(model: nn.Module) -> nn.Module:
    """The network with every parameter's absolute value, in float64, its batch norms as initialised, in eval mode."""
    net = copy.deepcopy(model).cpu().double().eval().requires_grad_(False)
    for module in net.modules():
        if isinstance(module, nn.modules.batchnorm._BatchNorm):
            module.reset_running_stats()
    for parameter in net.parameters():  # R is then a sum of positive products, one for each path
        parameter.abs_()
    for weight in prunable_weights(net).values():
        weight.requires_grad_(True)
    return net


def flow(net: nn.Module, ones: torch.Tensor) -> Scores:
    """w dR/dw of every prunable weight of a network of absolute weights, R the sum of its outputs on `ones`."""
    weights = prunable_weights(net)
    total = net(ones).sum()
    if not torch.isfinite(total):
        raise InputError("the flow through this network exceeds float64; scale its weights down before scoring")
    gradients = torch.autograd.grad(total, list(weights.values()), materialize_grads=True)
    pairs = zip(weights.items(), gradients, strict=True)
    return {name: (weight * gradient).detach().numpy() for (name, weight), gradient in pairs}
