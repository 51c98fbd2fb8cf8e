"""Activations by name, handed to models as a function that makes a fresh one for every place."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from torch import Tensor, nn

from splinecut.errors import InputError, unknown

Activation = Callable[[], nn.Module]


class Abs(nn.Module):
    """|x|, the activation for which a spline's two slopes are -1 and +1."""

    def forward(self, x: Tensor) -> Tensor:
        return x.abs()


# PReLU learns one slope per layer, not per channel: channels can then leave without touching the activation.
ACTIVATIONS: dict[str, Activation] = {
    "relu": nn.ReLU,
    "leaky_relu": nn.LeakyReLU,
    "prelu": nn.PReLU,
    "abs": Abs,
    "silu": nn.SiLU,
    "gelu": nn.GELU,
}


def activation_named(name: str, slope: float = 0.01) -> Activation:
    """The maker of activation `name`; `slope` is leaky_relu's slope below zero and used by no other."""
    if name not in ACTIVATIONS:
        raise unknown("activation", name, ACTIVATIONS)
    if not 0 <= slope < 1:
        raise InputError(f"slope must be in [0, 1), got {slope}; leaky_relu's usual slope is 0.01")
    return partial(nn.LeakyReLU, slope) if name == "leaky_relu" else ACTIVATIONS[name]
