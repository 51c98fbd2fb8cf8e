"""Slow, obvious statements about single weights that several tests compare with."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import torch
from torch import Tensor, nn


def chain(widths: list[int], bias: bool = False, seed: int = 0, scale: float = 1.0) -> nn.Sequential:
    """Linear layers with ReLU between them, float64."""
    torch.manual_seed(seed)
    layers: list[nn.Module] = []
    for n_in, n_out in pairwise(widths):
        layers += [nn.Linear(n_in, n_out, bias=bias), nn.ReLU()]
    net = nn.Sequential(*layers[:-1]).double()
    with torch.no_grad():
        for parameter in net.parameters():
            parameter.mul_(scale)
    return net


def flow_by_paths(weights: list[Tensor]) -> list[np.ndarray]:
    """SynFlow of a chain without biases: for each weight the sum, over all paths through it, of the product of |w|."""
    sizes = [weight.abs().double() for weight in weights]
    scores = []
    for layer, weight in enumerate(sizes):
        before = torch.ones(sizes[0].shape[1], dtype=torch.float64)
        for earlier in sizes[:layer]:
            before = earlier @ before
        after = torch.ones(sizes[-1].shape[0], dtype=torch.float64)
        for later in reversed(sizes[layer + 1 :]):
            after = later.T @ after
        scores.append((after[:, None] * weight * before[None, :]).numpy())
    return scores


def per_layer(keep: dict[str, np.ndarray]) -> list[int]:
    return [int(stays.sum()) for stays in keep.values()]
