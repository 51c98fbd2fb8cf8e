"""A layer as a linear map of rows: what it multiplies at each position, one column for each channel and kernel tap.

For every layer of a `Program`, y = W^T x with x a row of channels x taps, (channel, tap) in this order, and one such
problem for each group of a grouped convolution. A depthwise convolution is as many small problems as it has channels.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from math import prod
from typing import Any

import torch
from jaxtyping import Float, Int64
from torch import Tensor
from torch.nn import functional

from splinecut.networks.program import Layer, Weights

Positions = Int64[Tensor, "axes positions"]


@dataclass(frozen=True, eq=False)
class LayerRows:
    """How rows are taken from the input and output of a layer.

    shape: of its weight as a convolution has it, (outputs, channels of a group, *kernel), whatever the layer.
    """

    layer: Layer
    shape: tuple[int, ...]

    @classmethod
    def of(cls, layer: Layer, weights: Weights) -> LayerRows:
        return cls(layer, tuple(_as_convolution(layer, weights[layer.key]).shape))

    @property
    def n_groups(self) -> int:
        return self.layer.groups

    @property
    def n_taps(self) -> int:
        return prod(self.shape[2:])

    @property
    def n_channels(self) -> int:
        """Channels that each group reads."""
        return self.shape[1]

    @property
    def n_columns(self) -> int:
        return self.n_channels * self.n_taps

    @property
    def n_outputs(self) -> int:
        return self.shape[0]

    def matrix(self, weight: Tensor) -> Float[Tensor, "groups columns outputs"]:
        """The weight as matrices, float64 on the CPU."""
        full = _as_convolution(self.layer, weight.detach().double().cpu())
        return full.reshape(self.n_groups, -1, self.n_columns).transpose(1, 2)

    def weight(self, matrix: Float[Tensor, "groups columns outputs"], like: Tensor) -> Tensor:
        """The weight that `matrix` stands for, in the form and type of `like`."""
        full = matrix.transpose(1, 2).reshape(self.shape)
        if self.layer.is_transposed:
            axes = tuple(range(2, full.ndim))
            full = full.flip(axes).reshape(self.n_groups, -1, *full.shape[1:]).transpose(1, 2).flatten(0, 1)
        return full.reshape(like.shape).to(like).contiguous()

    @cached_property
    def _spatial(self) -> tuple[list[int], list[tuple[int, int]], list[int]]:
        """(stride, padding on both sides, dilation) of the convolution that runs on the stuffed input."""
        a, kernel = self.layer.arguments, self.shape[2:]
        dilation, stride = (_each(a[name], len(kernel)) for name in ("dilation", "stride"))
        reach = [d * (k - 1) for d, k in zip(dilation, kernel, strict=True)]
        padding = a["padding"]
        if padding == "same":
            return stride, [(r // 2, r - r // 2) for r in reach], dilation
        sides = [0] * len(kernel) if padding == "valid" else _each(padding, len(kernel))
        if not self.layer.is_transposed:
            return stride, [(p, p) for p in sides], dilation
        extra = _each(a["output_padding"], len(kernel))
        return [1] * len(kernel), [(r - p, r - p + e) for r, p, e in zip(reach, sides, extra, strict=True)], dilation

    def positions(self, output: Sequence[int], most: int, generator: torch.Generator) -> Positions | None:
        """At most `most` positions of an output of this shape, drawn at random; None where it has but one."""
        sides = tuple(output[1:-1] if self.layer.is_linear else output[len(output) - len(self.shape) + 2 :])
        if not sides or prod(sides) == 0:
            return None
        drawn = torch.randperm(prod(sides), generator=generator)[:most]
        return torch.stack(torch.unravel_index(drawn, sides))

    def inputs(self, x: Tensor, at: Positions | None) -> Float[Tensor, "groups rows columns"]:
        """The layer's input at these positions, one row a sample and position, samples first."""
        if self.layer.is_linear:
            return _tokens(x, at)[None]
        assert at is not None
        stride, padding, dilation = self._spatial
        x = self._stuffed(x) if self.layer.is_transposed else x
        n_axes = len(stride)
        if x.ndim == n_axes + 1:
            x = x[None]
        # Channels last, so that each tap of a position is one contiguous run; negative padding crops.
        flat = [side for pair in reversed(padding) for side in pair]
        x = functional.pad(x, flat) if any(flat) else x
        sides = x.shape[2:]
        x = x.movedim(1, -1).reshape(len(x), -1, x.shape[1])
        places = torch.zeros(at.shape[1], 1, dtype=torch.int64)
        for axis in range(n_axes):
            taps = torch.arange(self.shape[2 + axis]) * dilation[axis]
            here = at[axis][:, None] * stride[axis] + taps
            places = (places[:, :, None] * sides[axis] + here[:, None, :]).flatten(1)
        rows = x.index_select(1, places.flatten().to(x.device)).view(-1, self.n_taps, self.n_groups, self.n_channels)
        return rows.permute(2, 0, 3, 1).reshape(self.n_groups, -1, self.n_columns)

    def outputs(self, y: Tensor, at: Positions | None) -> Float[Tensor, "rows outputs"]:
        """A value of the shape of the layer's output at these positions, rows as in `inputs`."""
        if self.layer.is_linear:
            return _tokens(y, at)
        assert at is not None
        y = y[None] if y.ndim == len(at) + 1 else y
        places = torch.zeros(at.shape[1], dtype=torch.int64)
        for axis, side in enumerate(y.shape[2:]):
            places = places * side + at[axis]
        return y.flatten(2).index_select(2, places.to(y.device)).transpose(1, 2).flatten(0, 1)

    def _stuffed(self, x: Tensor) -> Tensor:
        """The input of a transposed convolution with zeros between its entries: then it is an ordinary one."""
        stride = _each(self.layer.arguments["stride"], len(self.shape) - 2)
        if all(step == 1 for step in stride):
            return x
        lead = x.shape[: x.ndim - len(stride)]
        sides = [(n - 1) * step + 1 for n, step in zip(x.shape[-len(stride) :], stride, strict=True)]
        wide = x.new_zeros(*lead, *sides)
        every: tuple[Any, ...] = (..., *(slice(None, None, step) for step in stride))
        wide[every] = x
        return wide


def _tokens(x: Float[Tensor, "samples *positions features"], at: Positions | None) -> Float[Tensor, "rows features"]:
    if at is None:
        return x.reshape(-1, x.shape[-1])
    places = torch.zeros(at.shape[1], dtype=torch.int64)
    for axis, side in enumerate(x.shape[1:-1]):
        places = places * side + at[axis]
    return x.flatten(1, -2).index_select(1, places.to(x.device)).flatten(0, 1)


def _as_convolution(layer: Layer, weight: Tensor) -> Tensor:
    """The weight as (outputs, channels of a group, *kernel) of an ordinary convolution."""
    if not layer.is_transposed:
        return weight
    # (inputs, outputs of a group, *kernel), and the kernel runs backwards.
    parts = weight.reshape(layer.groups, -1, *weight.shape[1:]).transpose(1, 2)
    return parts.flatten(0, 1).flip(tuple(range(2, weight.ndim)))


def _each(value: int | Sequence[int], n: int) -> list[int]:
    values = [value] if isinstance(value, int) else list(value)
    return values * n if len(values) == 1 else values
