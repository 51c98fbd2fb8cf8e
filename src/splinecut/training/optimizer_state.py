"""The state of an optimiser, out to a checkpoint and back, bit for bit."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor


def optimizer_state(optimizer: torch.optim.Optimizer) -> dict[str, Any]:
    """The optimiser's state with string keys, ready for a checkpoint."""
    state = optimizer.state_dict()
    return {"state": {str(i): s for i, s in state["state"].items()}, "param_groups": state["param_groups"]}


def restore_optimizer(optimizer: torch.optim.Optimizer, saved: dict[str, Any]) -> None:
    """Takes back what `optimizer_state` gave.

    Buffers regain the memory layout of their parameter: elementwise kernels may round differently on another layout.
    """
    parameters = [p for group in optimizer.param_groups for p in group["params"]]
    state = {}
    for i, buffers in saved["state"].items():
        like = parameters[int(i)]
        state[int(i)] = {
            name: torch.empty_like(like, dtype=value.dtype).copy_(value)
            if isinstance(value, Tensor) and value.shape == like.shape and value.dim() > 0
            else value
            for name, value in buffers.items()
        }
    groups = [
        {**group, "betas": tuple(group["betas"])} if "betas" in group else group for group in saved["param_groups"]
    ]
    optimizer.load_state_dict({"state": state, "param_groups": groups})
