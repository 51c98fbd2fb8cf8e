"""The network itself: without what wraps it, and in eval mode for as long as one looks at it."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import cast

from torch import nn


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
