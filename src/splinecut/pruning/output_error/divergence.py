"""How far the outputs of a cut network are from those of the dense one, without labels.

Classifiers are compared by the Kullback-Leibler divergence of their softmax, KL(dense || cut), anything else by the
squared error relative to the dense outputs.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

import torch
from jaxtyping import Float
from torch import Tensor

from splinecut.networks.export import table_name
from splinecut.networks.program import Program

Kind = Literal["kl", "relative"]
TEMPERATURE = 4.0  # of the softmax that allocation compares: at 1 a confident network shows no error until it is wrong
_SCORES = ("linear", "addmm", "flatten", "view", "reshape", "squeeze", "mean", "add", "log_softmax", "_log_softmax")

Divergence = Callable[[Tensor, Tensor], Float[Tensor, " inputs"]]
"""(dense outputs, cut outputs) -> one number an input; zero where they agree."""


def kind_of(program: Program) -> Kind:
    """KL where the output is (inputs, two or more scores) as layers give them, relative error otherwise."""
    value = program.output.meta["val"]
    if value.ndim == 2 and value.shape[1] > 1 and table_name(program.output) in _SCORES:
        return "kl"
    return "relative"


def divergence(kind: Kind, temperature: float = 1.0) -> Divergence:
    """The divergence of that kind; with a temperature, of the softened softmax, scaled back to the same curvature."""
    if kind == "relative":
        return relative
    return lambda dense, cut: temperature**2 * _kl(dense / temperature, cut / temperature)


def _kl(dense: Float[Tensor, "inputs classes"], cut: Float[Tensor, "inputs classes"]) -> Float[Tensor, " inputs"]:
    ours, theirs = dense.double().log_softmax(1), cut.double().log_softmax(1)
    return (ours.exp() * (ours - theirs)).sum(1).clamp_min(0)


def relative(dense: Tensor, cut: Tensor, is_scores: bool = False) -> Float[Tensor, " inputs"]:
    """Squared error of each input's output over the mean square of all dense outputs.

    is_scores: outputs are scores of classes, of which only differences matter.
    """
    dense, cut = dense.double().flatten(1), cut.double().flatten(1)
    if is_scores:
        dense, cut = dense - dense.mean(1, keepdim=True), cut - cut.mean(1, keepdim=True)
    power = dense.square().sum(1).mean().clamp_min(torch.finfo(torch.float64).tiny)
    return (dense - cut).square().sum(1) / power
