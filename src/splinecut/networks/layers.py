"""Modules that pruning puts into networks: a list of channels that can shrink, and what stands for a dropped branch."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn


class Select(nn.Module):
    """The channels listed in `index`, in that order; all of them, as they come, until a pruner shortens the list.

    A block's batch norm must see the whole residual stream, its first convolution only the channels kept
    (network slimming, Liu et al. 2017). The index is a buffer: saved with the weights, never trained.
    """

    index: Tensor

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.register_buffer("index", torch.arange(channels))

    def forward(self, x: Tensor) -> Tensor:
        if torch.compiler.is_exporting():
            return x.index_select(1, self.index)  # who traces the network looks for this operation
        if self.training and len(self.index) == x.shape[1]:
            return x  # in training only: the energy estimate was fitted to bytes with the copy counted
        # Selecting along the axis that lies innermost in memory keeps the layout, and its gradient's: batch norm's
        # backward pass takes twice as long when input and gradient are laid out differently.
        if x.is_contiguous(memory_format=torch.channels_last):
            return x.movedim(1, -1).index_select(-1, self.index).movedim(-1, 1)
        return x.index_select(1, self.index)

    def extra_repr(self) -> str:
        return f"{len(self.index)} channels"


class Zero(nn.Module):
    """Takes anything and gives the number zero: stands where a residual branch was."""

    def forward(self, x: Tensor, *_: Any, **__: Any) -> Tensor:
        return x.new_zeros(())
