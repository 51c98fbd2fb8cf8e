"""Cuts a network: the same module classes with fewer units."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from splinecut.networks.groups.values import BLOCKS, Groups, Keep, keep_at_least_one
from splinecut.networks.layers import Zero
from splinecut.networks.model_state import unwrapped
from splinecut.networks.surgery.mask import without_masks
from splinecut.networks.surgery.module_sizes import resize
from splinecut.networks.surgery.optimizer import Axes, carry_over, sliced

Nothing = Zero  # its name in networks that 0.1 pickled whole


class RewrapWarning(UserWarning):
    """A wrapper was taken off; the message says how to put it on again."""


def cut(model: nn.Module, groups: Groups, keep: Keep, optimizer: torch.optim.Optimizer | None = None) -> nn.Module:
    """A copy of `model` without the units that do not stay; `model` itself is not touched.

    Kept weights, gradients, statistics and hooks are carried over, and so are mode, precision, device, memory format,
    requires_grad and tied parameters. `optimizer` is moved to the new parameters in place, its state sliced alike.
    A group of which nothing stays keeps one unit that is read with weight zero: no layer is ever empty.
    A masked network may be cut by the keep map of its mask, or by one that keeps less.
    Hooks on single tensors (`Tensor.register_hook`) are not carried over; they know the old size.
    """
    bare = unwrapped(model)
    groups.check(keep)
    groups.check_model(bare)
    tensors = dict(bare.named_parameters()) | dict(bare.named_buffers())
    slices = {key: axes for key, axes in groups.slices(keep).items() if not all(s.all() for s in axes.values())}
    # deepcopy takes from its memo what is there already, wherever in the network it occurs: tied stays tied.
    memo: dict[int, Any] = {id(tensors[key]): _smaller(tensors[key], axes) for key, axes in slices.items()}
    memo |= {id(tensors[key]): value for key, value in _renumbered(groups, keep, tensors).items()}
    smaller = copy.deepcopy(bare, memo)
    without_masks(smaller)
    for path in {key.rpartition(".")[0] for key in slices}:
        resize(smaller.get_submodule(path))
    _drop(smaller, groups, keep)
    _silence(smaller, groups, keep)
    _copy_gradients(tensors, memo, slices)
    if optimizer is not None:
        left = {id(parameter) for parameter in smaller.parameters()}
        moved: dict[Tensor, Tensor] = {
            p: memo[id(p)] for p in bare.parameters() if id(p) in memo and id(memo[id(p)]) in left
        }
        carry_over(optimizer, list(bare.parameters()), moved, {tensors[key]: axes for key, axes in slices.items()})
    if bare is not model:
        name = type(model).__name__
        warnings.warn(f"cut took off {name}; wrap the result again: {name}(smaller, ...)", RewrapWarning, stacklevel=2)
    return smaller


def _smaller(tensor: Tensor, axes: Axes) -> Tensor:
    smaller = sliced(tensor.detach(), axes)
    return nn.Parameter(smaller, tensor.requires_grad) if isinstance(tensor, nn.Parameter) else smaller


def _renumbered(groups: Groups, keep: Keep, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Lists of channels that point into axes that shrink: what is left of them, counted anew."""
    stays: dict[str, tuple[np.ndarray, np.ndarray]] = {}
    for group in groups:
        for member in group.role("pointer") if group.name in keep else ():
            kept = keep_at_least_one(keep[group.name])
            assert member.source is not None
            source = np.where(member.source < 0, True, kept[member.source])
            entries, sources = stays.get(member.key, (np.True_, np.True_))
            stays[member.key] = (entries & member.stays(kept), sources & source)
    result = {}
    for key, (entries, sources) in stays.items():
        old = tensors[key].cpu().numpy()
        # New position of a channel that stays: how many before it stay.
        result[key] = torch.from_numpy((np.cumsum(sources) - 1)[old[entries]]).to(tensors[key])
    return result


def _drop(smaller: nn.Module, groups: Groups, keep: Keep) -> None:
    for branch in groups.dropped(keep):
        for path in branch.modules:
            parent, _, name = path.rpartition(".")
            setattr(smaller.get_submodule(parent), name, Zero())


def _silence(smaller: nn.Module, groups: Groups, keep: Keep) -> None:
    """Zero weights for what reads the stand-in of a group of which nothing stays."""
    tensors, slices = dict(smaller.named_parameters()), groups.slices(keep)
    for name in [name for name, kept in keep.items() if name != BLOCKS and not np.any(kept)]:
        for member in groups[name].role("consumer"):
            if member.key in tensors:
                units = member.units[slices[member.key][member.axis]]
                places = torch.from_numpy(np.flatnonzero(units >= 0)).to(tensors[member.key].device)
                with torch.no_grad():
                    tensors[member.key].index_fill_(member.axis, places, 0)


def _copy_gradients(tensors: Mapping[str, Tensor], memo: Mapping[int, Any], slices: Mapping[str, Axes]) -> None:
    for key, tensor in tensors.items():
        if tensor.grad is not None and id(tensor) in memo:
            memo[id(tensor)].grad = sliced(tensor.grad, slices.get(key, {}))
