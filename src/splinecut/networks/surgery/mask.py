"""Masks a network: at full size it computes what the cut network would, until the mask is removed.

A removed unit must count for exactly nothing downstream. Silencing the unit itself would not do: batch norm and bias
come after it, and sigmoid(0) is not 0. So the weights that read it are held at zero, which is exact in eval and in
train mode; its own weights then get no gradient. Layer and group norm are given the statistics of the kept units.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from jaxtyping import Bool, Int64
from torch import Tensor, nn
from torch.nn import functional
from torch.optim.optimizer import register_optimizer_step_post_hook
from torch.utils._pytree import tree_map_only

from splinecut.errors import InputError, unknown
from splinecut.networks.groups.values import BLOCKS, Groups, Keep, Member
from splinecut.networks.model_state import unwrapped


class Mask:
    """Holds weights at zero through training, and gives them back: `remove()`, or leave the `with` block.

    Gradients of held weights are zeroed as they arrive. Momentum gathered earlier could still move a weight, so after
    every step of any optimiser the zeros are set again. The mask needs no reference to live: the network holds it.
    """

    def __init__(self, zeros: list[tuple[Tensor, Bool[Tensor, " *shape"]]], hooks: list[Any]) -> None:
        # Whole copies: picking out the held entries takes far longer than copying all of them.
        self._held = [(tensor, gone, tensor.detach().clone()) for tensor, gone in zeros]
        self._hooks = [*hooks, *(_on_gradient(self, t, gone) for t, gone in zeros if t.requires_grad)]
        this = weakref.ref(self)
        after_step = register_optimizer_step_post_hook(lambda *_: _apply(this))
        self._hooks.append(after_step)
        # The mask lives as long as the network does; with it goes the hook, which is registered with all optimisers.
        weakref.finalize(self, after_step.remove)
        self.apply()

    def apply(self) -> None:
        """Sets the zeros again; needed only where something other than an optimiser wrote to the weights."""
        with torch.no_grad():
            for tensor, gone, _ in self._held:
                tensor.masked_fill_(gone, 0)

    def remove(self) -> None:
        """Takes the mask off: removed weights are what they were; kept ones keep what they learned since."""
        for hook in self._hooks:
            hook.remove()
        with torch.no_grad():
            for tensor, gone, old in reversed(self._held):
                tensor.copy_(torch.where(gone, old, tensor))
        self._hooks, self._held = [], []

    def __enter__(self) -> Mask:
        return self

    def __exit__(self, *_: object) -> None:
        self.remove()


def mask(model: nn.Module, groups: Groups, keep: Keep) -> Mask:
    """Makes `model` compute, in place and reversibly, what `cut` would build from it."""
    model = unwrapped(model)
    groups.check(keep)
    groups.check_model(model)
    tensors = dict(model.named_parameters()) | dict(model.named_buffers())
    zeros: list[tuple[Tensor, Tensor]] = []
    stays: dict[str, np.ndarray] = {}  # weights of norms: several groups may meet in one of them
    for name, kept in keep.items():
        for member in () if name == BLOCKS or np.all(kept) else groups[name].members:
            if member.role == "consumer":
                zeros.append((tensors[member.key], _gone(member, kept, tensors[member.key])))
            if member.role == "follower":
                stays[member.key] = stays.get(member.key, np.True_) & member.stays(kept)
    hooks = [hook for key, positions in stays.items() for hook in _norm_hook(model, key, positions)]
    for branch in groups.dropped(keep):
        hooks += [model.get_submodule(path).register_forward_hook(_ZeroOutput()) for path in branch.modules]
    return Mask(zeros, hooks)


def mask_weights(model: nn.Module, keep: Mapping[str, Bool[np.ndarray, " *shape"]]) -> Mask:
    """Holds single weights at zero, reversibly; keep: parameter name -> which of its entries stay."""
    model = unwrapped(model)
    parameters = dict(model.named_parameters())
    zeros: list[tuple[Tensor, Tensor]] = []
    for key, stays in keep.items():
        if key not in parameters:
            raise unknown("parameter", key, parameters)
        if tuple(parameters[key].shape) != np.shape(stays):
            raise InputError(f"keep of {key} must have shape {tuple(parameters[key].shape)}, got {np.shape(stays)}")
        zeros.append((parameters[key], torch.from_numpy(~np.asarray(stays, bool)).to(parameters[key].device)))
    return Mask(zeros, [])


def _apply(this: weakref.ref[Mask]) -> None:
    mask = this()
    if mask is not None:
        mask.apply()


def _on_gradient(owner: Mask, tensor: Tensor, gone: Bool[Tensor, " *shape"]) -> Any:
    # Naming the owner here keeps the mask alive with the parameter, even when nobody holds on to the mask.
    def zero(gradient: Tensor, owner: Mask = owner) -> Tensor:
        return gradient.masked_fill(gone, 0)

    return tensor.register_hook(zero)


def _gone(member: Member, kept: Bool[np.ndarray, " units"], tensor: Tensor) -> Bool[Tensor, " *shape"]:
    view = [1] * tensor.ndim
    view[member.axis] = -1
    return torch.from_numpy(~member.stays(kept)).to(tensor.device).view(view)


def _norm_hook(model: nn.Module, key: str, positions: Bool[np.ndarray, " positions"]) -> list[Any]:
    """A hook on the layer or group norm whose weight this is: what it would give without the removed units."""
    path, _, name = key.rpartition(".")
    module = model.get_submodule(path)
    norm = next((function for kind, function in _NORMS.items() if isinstance(module, kind)), None)
    if norm is None or name != "weight":
        return []
    stays = torch.from_numpy(np.flatnonzero(positions))
    return [module.register_forward_hook(_NormOfKept(norm, stays))]


_Norm = Callable[[Any, Tensor, Tensor], Tensor]


@dataclass(frozen=True)
class _NormOfKept:
    """Replaces a norm's output by that of the kept units alone, zeros elsewhere."""

    norm: _Norm
    stays: Int64[Tensor, " kept"]

    def __call__(self, module: nn.Module, args: tuple[Any, ...], output: Tensor) -> Tensor:
        axis = 1 if isinstance(module, nn.GroupNorm) else -1
        stays = self.stays.to(output.device)
        kept = args[0].index_select(axis, stays)
        kept = self.norm(module, kept, stays) if len(stays) else kept
        return torch.zeros_like(output).index_copy(axis, stays, kept)


@dataclass(frozen=True)
class _ZeroOutput:
    """Replaces a module's output by zeros."""

    def __call__(self, module: nn.Module, args: tuple[Any, ...], output: Any) -> Any:
        return tree_map_only(Tensor, torch.zeros_like, output)


def without_masks(model: nn.Module) -> None:
    """Takes the hooks of masks off `model`, a copy of a masked network: the mask itself stays with the original."""
    for module in model.modules():
        for key, hook in list(module._forward_hooks.items()):
            if isinstance(hook, _NormOfKept | _ZeroOutput):
                del module._forward_hooks[key]


def _layer_norm(module: nn.LayerNorm, x: Tensor, stays: Tensor) -> Tensor:
    bias = None if module.bias is None else module.bias[stays]
    return functional.layer_norm(x, (len(stays),), module.weight[stays], bias, module.eps)


def _rms_norm(module: nn.RMSNorm, x: Tensor, stays: Tensor) -> Tensor:
    return functional.rms_norm(x, (len(stays),), module.weight[stays], module.eps)


def _group_norm(module: nn.GroupNorm, x: Tensor, stays: Tensor) -> Tensor:
    n_groups = len(stays) if module.num_groups == module.num_channels else module.num_groups
    return functional.group_norm(x, n_groups, module.weight[stays], module.bias[stays], module.eps)


_NORMS: dict[type[nn.Module], _Norm] = {
    nn.LayerNorm: _layer_norm,
    nn.RMSNorm: _rms_norm,
    nn.GroupNorm: _group_norm,
}
