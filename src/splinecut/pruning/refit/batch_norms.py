"""Statistics of what reaches batch norms, and norms that take those of a probe for their own.

`norm_update` corrects the statistics of a trained network instead, by what a cut changes.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import cast

import torch
from jaxtyping import Float
from torch import Tensor, nn

from splinecut.errors import InputError
from splinecut.networks.inputs import Arguments, as_arguments, check_finite, to_model
from splinecut.networks.model_state import evaluating
from splinecut.networks.surgery.finite import is_finite
from splinecut.pruning.activations import input_hooks
from splinecut.pruning.unit_parameters import BatchNorm

SMOOTHING = 1e-3  # of the variance divided by: a channel that hardly moves on the probe keeps its variance
MOST = 100.0  # times which a variance may change; more is an accident of a small probe


@dataclass
class Statistics:
    """Mean and variance of what reached a norm, channel by channel; float64."""

    n_rows: int = 0
    mean: Float[Tensor, " channels"] | float = 0.0
    squares: Float[Tensor, " channels"] | float = 0.0  # sum of squared differences from the mean

    def add(self, x: Tensor) -> None:
        """Takes in another batch (Chan et al. 1983, pairwise variances)."""
        var, mean = _var_mean(x.float() if x.dtype.itemsize < 4 else x)
        n = x.numel() // x.shape[1]
        beyond, total = mean - self.mean, self.n_rows + n
        self.mean = self.mean + beyond * (n / total)
        self.squares = self.squares + var * n + beyond.square() * (self.n_rows * n / total)
        self.n_rows = total

    @property
    def is_finite(self) -> bool:
        return bool(torch.isfinite(torch.as_tensor(self.mean)).all() and torch.isfinite(self.var).all())

    @property
    def var(self) -> Float[Tensor, " channels"]:
        return torch.as_tensor(self.squares / max(1, self.n_rows))


def _var_mean(x: Tensor) -> tuple[Float[Tensor, " channels"], Float[Tensor, " channels"]]:
    """Variance and mean of each channel, float64: as mean square less squared mean, 40 times as fast as `var_mean`.

    Where nearly all of the mean square is the squared mean, too little precision would be left; there it is used.
    """
    axes = [axis for axis in range(x.dim()) if axis != 1]
    mean = x.mean(axes).double()
    squares = torch.linalg.vector_norm(x.flatten(2), dim=-1) if x.dim() > 2 else x.abs()
    var = squares.double().square().sum(0) / (x.numel() // x.shape[1]) - mean.square()
    if (var < 1e-3 * mean.square()).any():
        var, mean = (value.double() for value in torch.var_mean(x, axes, correction=0))
    return var, mean


def tracking(model: nn.Module) -> dict[str, nn.BatchNorm2d]:
    """The batch norms of a network that normalise by running statistics, by path."""
    norms = {path: module for path, module in model.named_modules() if isinstance(module, BatchNorm)}
    return {path: cast(nn.BatchNorm2d, norm) for path, norm in norms.items() if norm.running_mean is not None}


@torch.no_grad()
def recalibrate(model: nn.Module, probe: Float[Tensor, "samples *input"] | Arguments) -> None:
    """Gives every batch norm the mean and variance of what the probe sends it, in one pass, in order.

    For networks whose statistics are no longer of use. Those of a trained network know more than a small probe does;
    `least_squares` corrects them instead. Where the probe's are not finite, the network is left as it was.
    """
    arguments = as_arguments(probe)
    check_finite(arguments)
    norms = tracking(model)
    old = [(buffer, buffer.clone()) for norm in norms.values() for buffer in _running(norm)]

    def take(path: str, x: Tensor) -> None:
        replace(norms[path], x)
        if not all(is_finite(buffer) for buffer in _running(norms[path])):
            raise not_finite(path)

    # Just before each norm runs: what reaches the next one already depends on the new statistics of this one.
    with evaluating(model), input_hooks(model, {path: partial(take, path) for path in norms}, once=True):
        try:
            model(*to_model(arguments, model))
        except InputError:
            for buffer, values in old:
                buffer.copy_(values)
            raise


def replace(norm: nn.BatchNorm2d, x: Tensor) -> None:
    """Gives `norm` the statistics of `x`; the variance stays where there is only one value a channel."""
    assert norm.running_mean is not None and norm.running_var is not None
    statistics = Statistics()
    statistics.add(x)
    norm.running_mean.copy_(torch.as_tensor(statistics.mean))
    if statistics.n_rows > 1:  # torch keeps the unbiased variance
        norm.running_var.copy_(statistics.var * (statistics.n_rows / (statistics.n_rows - 1)))


def _running(norm: nn.BatchNorm2d) -> list[Tensor]:
    return [buffer for name, buffer in norm.named_buffers() if name.startswith("running_")]


def not_finite(path: str) -> InputError:
    """What is raised where a layer's input on the probe has no finite mean square."""
    return InputError(
        f"what the network sends to {path} on the probe must be finite, and its squares too, got NaN or "
        "infinities; give inputs normalised as in training, and check the network itself on them"
    )
