"""State of a network: unwrapping, eval mode for a block of code, copies and digests of its weights."""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Iterator
from typing import cast

from torch import Tensor, nn


def unwrapped(model: nn.Module) -> nn.Module:
    """The network inside DistributedDataParallel, DataParallel or torch.compile."""
    if isinstance(model, (nn.parallel.DistributedDataParallel, nn.DataParallel)):
        return unwrapped(model.module)
    return unwrapped(cast(nn.Module, model._orig_mod)) if hasattr(model, "_orig_mod") else model


@contextlib.contextmanager
def evaluating(model: nn.Module) -> Iterator[None]:
    """The network in eval mode; afterwards every module is in the mode it was in."""
    modes = [(module, module.training) for module in model.modules()]
    model.eval()
    try:
        yield
    finally:
        for module, mode in modes:
            module.training = mode


def clone_state(model: nn.Module) -> dict[str, Tensor]:
    """A copy of all weights and buffers by name, which training in place does not change."""
    return {name: tensor.detach().clone() for name, tensor in model.state_dict().items()}


def weights_digest(model: nn.Module) -> str:
    """A digest of all weights and buffers: equal only for networks that compute the same, bit for bit."""
    sha = hashlib.sha256()
    for name, tensor in model.state_dict().items():
        sha.update(f"{name} {tuple(tensor.shape)} {tensor.dtype}".encode())
        sha.update(tensor.detach().cpu().contiguous().numpy().tobytes())
    return sha.hexdigest()[:16]
