"""Soft masks on channels and residual branches, and FISTA, which drives them to exact zeros.

A channel's mask multiplies the weights that read it, a branch's mask the last affine layer in it. For a channel that
passes batch norm, ReLU and pooling on its way to the next layers this is the same as a mask behind its batch norm,
since masks are not negative. Where a norm stands between the units and the layers that read them (a pre-activation
stream) it is still right: mask 0 is the network without the channel, exactly, with no batch-norm shift that leaks
through.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.func import functional_call

from splinecut.networks.groups.values import BLOCKS, Branch, Groups

Masks = dict[str, Float[Tensor, " units"]]
"""group -> one number for each unit; BLOCKS -> one for each residual branch"""


class SoftMasked(nn.Module):
    """`net` under soft masks, all 1 at first. Masks are buffers: an optimiser of its parameters leaves them alone.

    After a backward pass `gradients()` has the gradient of each mask.
    """

    def __init__(self, net: nn.Module, groups: Groups, on_channels: bool = True, on_blocks: bool = True) -> None:
        super().__init__()
        self.net = net
        like = next(net.parameters())
        sizes = {group.name: group.size for group in groups} if on_channels else {}
        sizes |= {BLOCKS: len(groups.branches)} if on_blocks and groups.branches else {}
        self._places = {name: f"mask_{number}" for number, name in enumerate(sizes)}
        for name, place in self._places.items():
            self.register_buffer(place, torch.ones(sizes[name], device=like.device, dtype=like.dtype))
        self._scaled = _scaled_parameters(net, groups, sizes)
        self._leaves: Masks = {}

    @property
    def masks(self) -> Masks:
        """The masks in force."""
        return {name: getattr(self, place) for name, place in self._places.items()}

    def put(self, masks: Masks) -> None:
        """Puts other masks in force."""
        for name, place in self._places.items():
            getattr(self, place).copy_(masks[name])

    def forward(self, x: Float[Tensor, "batch *input"]) -> Float[Tensor, "batch outputs"]:
        self._leaves = {
            # Fresh leaves for every pass: buffers have no gradient, and an old graph must not hang on them.
            name: mask.detach().requires_grad_(torch.is_grad_enabled())
            for name, mask in self.masks.items()
        }
        return functional_call(self.net, self._under(self._leaves), (x,))

    def gradients(self) -> Masks:
        """Of the loss with respect to each mask, after a backward pass."""
        return {n: torch.zeros_like(leaf) if leaf.grad is None else leaf.grad for n, leaf in self._leaves.items()}

    @torch.no_grad()
    def fold(self) -> nn.Module:
        """The network with the masks multiplied into its weights: it computes the same without them."""
        for key, value in self._under(self.masks).items():
            self.net.get_parameter(key).copy_(value)
        # Masks go back to 1, or the next call would multiply them in a second time.
        self.put({name: torch.ones_like(mask) for name, mask in self.masks.items()})
        return self.net

    def _under(self, masks: Masks) -> dict[str, Tensor]:
        scaled: dict[str, Tensor] = {}
        for scale in self._scaled:
            weight = scaled[scale.key] if scale.key in scaled else _tensor(self.net, scale.key)
            scaled[scale.key] = weight * scale.factor(masks[scale.mask], weight)
        return scaled


@dataclass(frozen=True, eq=False)
class _Scaled:
    """A parameter that a mask multiplies along `axis`; entry i by unit `units[i]`, by nothing where that is -1."""

    key: str
    mask: str
    axis: int
    units: Tensor

    def factor(self, mask: Float[Tensor, " units"], weight: Tensor) -> Tensor:
        units = self.units.to(mask.device)
        factor = torch.cat([mask, mask.new_ones(1)])[units]
        view = [1] * weight.dim()
        view[self.axis] = -1
        return factor.view(view)


def _scaled_parameters(net: nn.Module, groups: Groups, masks: dict[str, Any]) -> list[_Scaled]:
    scaled = []
    for group in groups if masks.keys() - {BLOCKS} else ():
        for member in group.role("consumer"):
            scaled.append(_Scaled(member.key, group.name, member.axis, torch.from_numpy(member.units)))
    for number, branch in enumerate(groups.branches if BLOCKS in masks else ()):
        for key in _last_affine(net, branch):
            size = net.get_parameter(key).shape[0]
            scaled.append(_Scaled(key, BLOCKS, 0, torch.full((size,), number)))
    return scaled


def _tensor(net: nn.Module, key: str) -> Tensor:
    """What stands in a parameter's place, be it one or a tensor put there for a call."""
    path, _, name = key.rpartition(".")
    tensor: Tensor = getattr(net.get_submodule(path), name)
    return tensor


def _last_affine(net: nn.Module, branch: Branch) -> list[str]:
    """The parameters of the last layer of a branch that has any: what follows it (activations) takes 0 to 0."""
    owners = {key.rpartition(".")[0] for key in branch.keys}
    running = [
        f"{path}.{inner}" if inner else path
        for path in branch.modules
        for inner, _ in net.get_submodule(path).named_modules()
    ]
    last = [path for path in running if path in owners][-1]
    return [key for key in branch.keys if key.rpartition(".")[0] == last]


@dataclass(frozen=True)
class Fista:
    """Where the accelerated proximal method (Beck & Teboulle 2009) stands: x_k, the look-ahead point y_k, and t_k.

    Gradients are to be taken at `ahead`.
    """

    value: Masks
    ahead: Masks
    t: float = 1.0

    @classmethod
    def of(cls, masks: Masks) -> Fista:
        """Before the first step."""
        return cls({n: m.clone() for n, m in masks.items()}, {n: m.clone() for n, m in masks.items()})

    def step(self, gradient: Masks, rate: float, strength: float) -> Fista:
        """x' = max(0, y - rate (gradient + strength)), the proximal step for strength |x|_1 over x >= 0; then

        t' = (1 + sqrt(1 + 4 t^2)) / 2,  y' = x' + (t - 1) / t' (x' - x).
        """
        # Clamping is the proximal step of L1 over x >= 0: masks reach exactly zero, which a gradient step never does.
        value = {n: (y - rate * (gradient[n] + strength)).clamp_min(0) for n, y in self.ahead.items()}
        t = (1 + math.sqrt(1 + 4 * self.t**2)) / 2
        ahead = {n: x + (self.t - 1) / t * (x - self.value[n]) for n, x in value.items()}
        return Fista(value, ahead, t)

    def restarted(self) -> Fista:
        """The same place without momentum."""
        return Fista.of(self.value)

    def on_the_sphere(self) -> Fista:
        """The same place with the masks of every group scaled to a mean square of 1; all zeros stay."""
        scale = {n: float(x.square().mean().sqrt()) or 1.0 for n, x in self.value.items()}
        value, ahead = ({n: x / scale[n] for n, x in part.items()} for part in (self.value, self.ahead))
        return Fista(value, ahead, self.t)
