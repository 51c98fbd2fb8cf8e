"""Refuses networks with NaN or infinite weights before they are saved or returned."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from splinecut.errors import InputError


def is_finite(tensor: Tensor) -> bool:
    """Whether a tensor holds neither NaN nor infinities; integers never do."""
    return not (tensor.is_floating_point() or tensor.is_complex()) or bool(torch.isfinite(tensor).all())


def check_made(smaller: nn.Module, model: nn.Module, by: str) -> None:
    """Raises InputError where a tensor of `smaller` is not finite though it was in `model`, which it was made of.

    by: what made it, for the message. A network that came with infinities, such as those of an attention mask, may
    keep them.
    """
    sources = dict(model.named_parameters()) | dict(model.named_buffers())
    for name, tensor in [*smaller.named_parameters(), *smaller.named_buffers()]:
        if not is_finite(tensor) and (name not in sources or is_finite(sources[name])):
            raise InputError(
                f"{by} must leave a finite network, got NaN or infinities in {name}; give a probe of training inputs, "
                "normalised as in training, or cut without a refit"
            )


def check_saved(model: nn.Module) -> None:
    """Raises InputError where a network is not worth keeping: NaN anywhere, or a parameter that is infinite.

    Buffers may hold infinities: attention masks do.
    """
    for name, parameter in model.named_parameters():
        if not is_finite(parameter):
            raise InputError(_refusal(name))
    for name, buffer in model.named_buffers():
        if buffer.is_floating_point() and bool(torch.isnan(buffer).any()):
            raise InputError(_refusal(name))


def _refusal(name: str) -> str:
    return (
        f"a network to be saved must be finite, got NaN or infinities in {name}; look where they come from: a training "
        "that diverged, or a refit on a bad probe"
    )
