"""Soft codes: for networks with smooth activations, the probability that each unit is on.

A spline activation picks, for its input u, the piece of largest value: relu(u) = max(0, u). If noise of inverse
temperature beta disturbs the choice, each piece is picked with a probability, and the expected output is smooth
(Balestriero & Baraniuk 2018, "From Hard to Soft"). For relu the piece "on" is picked with probability

    logistic noise:   q = 1 / (1 + exp(-beta u)),    q u = SiLU(u)  at beta = 1
    gaussian noise:   q = Phi(beta u),               q u = GELU(u)  at beta = 1

and q is the *soft code* of the unit; beta -> infinity gives back the bit `u > 0` and relu. (The authors write the
temperature as eta in [0, 1); theirs is beta = eta / (1 - eta), so their swish at eta = 1/2 is our beta = 1.)

How hard is hard enough: |q - bit| <= tolerance wherever |u| >= margin once beta >= `beta_for(margin, tolerance)`;
and for all u the smooth activation is within 0.2785 / beta (logistic) or 0.17 / beta (gaussian) of relu.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import log

import torch
from jaxtyping import Float
from torch import Tensor

from splinecut.errors import InputError
from splinecut.geometry.codes import like_parameters, visit
from splinecut.geometry.graph import Graph, first_argmax, is_on

Noise = Callable[[Tensor], Tensor]
"""Distribution function of the noise: the probability that u + noise > 0, as a function of u in units of the noise."""


def logistic(u: Float[Tensor, " *shape"]) -> Float[Tensor, " *shape"]:
    """1 / (1 + exp(-u)): the difference of two Gumbel disturbances, hence softmax over two pieces."""
    return torch.sigmoid(u)


def gaussian(u: Float[Tensor, " *shape"]) -> Float[Tensor, " *shape"]:
    """Phi(u), the distribution function of the standard normal."""
    return torch.special.ndtr(u)


def soft_code(u: Float[Tensor, " *shape"], beta: float = 1.0, noise: Noise = logistic) -> Float[Tensor, " *shape"]:
    """The probability in [0, 1] that a unit with input u is on; at beta = inf the bit itself (`> 0` is on)."""
    _check_beta(beta)
    if beta == torch.inf:
        return is_on(u).to(u.dtype)
    return noise(beta * u)


def soft_activation(
    u: Float[Tensor, " *shape"], beta: float = 1.0, noise: Noise = logistic, slope_off: float = 0.0
) -> Float[Tensor, " *shape"]:
    """The expected output of max(slope_off u, u) when its piece is assigned softly.

    slope_off = 0 is relu (giving SiLU or GELU), alpha < 1 leaky relu, -1 the absolute value. The pieces differ by
    (1 - slope_off) u, and it is this difference that noise disturbs.
    """
    on = soft_code((1 - slope_off) * u, beta, noise)
    return (slope_off + (1 - slope_off) * on) * u


def soft_assignment(values: Float[Tensor, "... pieces"], beta: float = 1.0) -> Float[Tensor, "... pieces"]:
    """Probabilities of the pieces of any max-affine spline (a max-pooling window, say): softmax(beta values).

    It maximises  <q, values> + entropy(q) / beta  over probability vectors q. At beta = inf the first largest
    piece gets everything: ties go to the lower index.
    """
    _check_beta(beta)
    if beta == torch.inf:
        return torch.nn.functional.one_hot(first_argmax(values), values.shape[-1]).to(values.dtype)
    return torch.softmax(beta * values, dim=-1)


@dataclass(frozen=True)
class SoftCodes:
    """For every unit of a network the probability that it is on, layer by layer."""

    layers: tuple[str, ...]
    shares: tuple[Float[Tensor, " samples units"], ...]

    def distance(self, other: SoftCodes) -> float:
        """The expected share of differing bits under common noise, unweighted mean over layers.

        For hard codes it is `geometry.codes.distance`.
        """
        if self.layers != other.layers or [s.shape for s in self.shares] != [s.shape for s in other.shares]:
            raise InputError("soft codes must come from the same layers and samples; use one architecture, one probe")
        shares = [soft_distance(a, b) for a, b in zip(self.shares, other.shares, strict=True)]
        return sum(shares) / max(len(shares), 1)


@torch.no_grad()
def soft_codes(
    graph: Graph, x: Float[Tensor, " samples *input"], beta: float = 1.0, noise: Noise = logistic
) -> SoftCodes:
    """The soft codes of the samples x: SiLU's own at beta = 1, GELU's with gaussian noise, hard ones at beta = inf."""
    layers = tuple(layer.name for layer in graph.layers if layer.bits)
    units = ((layer, inputs[0]) for layer, inputs in visit(graph, like_parameters(graph, x)) if layer.bits)
    return SoftCodes(layers, tuple(soft_code(u - layer.kink, beta, noise).flatten(1) for layer, u in units))


def soft_distance(a: Float[Tensor, " *shape"], b: Float[Tensor, " *shape"]) -> float:
    """The expected share of units that differ between two soft codes when the same noise disturbs both: mean |a - b|.

    With a common disturbance e the bits u_a + e > 0 and u_b + e > 0 differ with probability exactly |q_a - q_b|. It
    is a metric, zero only for equal codes, and for hard codes it is the Hamming share.
    """
    return float((a - b).abs().mean())


def beta_for(margin: float, tolerance: float = 1e-6) -> float:
    """The beta at which logistic soft codes are within `tolerance` of the bit for every |u| >= margin.

        beta = log(1 / tolerance - 1) / margin,   13.8 at margin 1 and tolerance 1e-6

    Gaussian tails are lighter, so the same beta serves both.
    """
    if margin <= 0 or not 0 < tolerance < 0.5:
        raise InputError(
            f"margin must be positive and tolerance in (0, 0.5), got {margin} and {tolerance}; "
            "at u = 0 a soft code is 1/2 for every beta"
        )
    return log(1 / tolerance - 1) / margin


def _check_beta(beta: float) -> None:
    if not beta > 0:
        raise InputError(f"beta must be positive, got {beta}; use math.inf for hard codes")
