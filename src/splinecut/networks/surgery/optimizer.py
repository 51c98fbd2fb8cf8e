"""Moves an optimizer from a network to its cut copy: parameters replaced, state sliced."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import torch
from jaxtyping import Bool
from torch import Tensor

from splinecut.errors import InputError

Axes = Mapping[int, Bool[np.ndarray, " positions"]]
"""axis -> which of its positions stay"""


def sliced(tensor: Tensor, axes: Axes) -> Tensor:
    """A copy of the positions that stay, in the memory format of the original."""
    smaller = tensor
    for axis, stays in axes.items():
        smaller = smaller.index_select(axis, torch.from_numpy(np.flatnonzero(stays)).to(tensor.device))
    smaller = smaller.clone() if smaller is tensor else smaller
    return smaller.contiguous(memory_format=_memory_format(tensor))


def carry_over(
    optimizer: torch.optim.Optimizer,
    old: Iterable[Tensor],
    moved: Mapping[Tensor, Tensor],
    axes: Mapping[Tensor, Axes],
) -> None:
    """Replaces the `old` parameters in `optimizer` by what they `moved` to; those that moved nowhere are dropped.

    State of a parameter's own shape is sliced like the parameter, bit for bit; so is factored state, which has
    length 1 along some axes. Step counts are kept. Nothing is changed when some state fits neither.
    """
    ours = set(old)
    if not any(p in ours for group in optimizer.param_groups for p in group["params"]):
        raise InputError("optimizer holds none of the network's parameters; pass the one that trains this network")
    state = {p: _sliced_state(p, optimizer.state[p], axes.get(p, {})) for p in optimizer.state if p in moved}
    for parameter in [p for p in optimizer.state if p in ours]:
        del optimizer.state[parameter]
    for parameter, values in state.items():
        optimizer.state[moved[parameter]] = values
    for group in optimizer.param_groups:
        group["params"] = [moved.get(p, p) for p in group["params"] if p in moved or p not in ours]


def _sliced_state(parameter: Tensor, state: Mapping[str, Any], axes: Axes) -> dict[str, Any]:
    return {name: _sliced_entry(name, value, parameter, axes) for name, value in state.items()}


def _sliced_entry(name: str, value: Any, parameter: Tensor, axes: Axes) -> Any:
    if not axes or not isinstance(value, Tensor) or (value.numel() == 1 and value.shape != parameter.shape):
        return value
    fits = value.ndim == parameter.ndim and all(
        ours in (1, whole) for ours, whole in zip(value.shape, parameter.shape, strict=True)
    )
    if not fits:
        raise InputError(
            f"optimiser state {name!r} of shape {tuple(value.shape)} does not follow its parameter's "
            f"{tuple(parameter.shape)}; cut without the optimiser and start a new one"
        )
    return sliced(value, {axis: stays for axis, stays in axes.items() if value.shape[axis] == len(stays)})


def _memory_format(tensor: Tensor) -> torch.memory_format:
    for ndim, memory_format in ((4, torch.channels_last), (5, torch.channels_last_3d)):
        if tensor.ndim == ndim and tensor.is_contiguous(memory_format=memory_format) and not tensor.is_contiguous():
            return memory_format
    return torch.contiguous_format
