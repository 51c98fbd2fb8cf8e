"""Copies of a network with random weights in float64, and random inputs, on which its code is compared.

What a program computes with its units can be hidden by its numbers: a branch scaled by zero, a head that starts at
zero, an example of zeros, half precision. Code that is compared on random numbers in float64 hides nothing.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields, is_dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _NormBase
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map_only

from splinecut.networks.inputs import Arguments
from splinecut.networks.model_state import evaluating
from splinecut.networks.surgery.mask import without_masks


@dataclass(frozen=True)
class Slack:
    """How far two ways of computing the same may differ.

    of_change: relative to the largest change that removing units makes: a wrong cut is off by about as much.
    of_value:  relative to each value: rounding, since sums are taken in another order.
    """

    of_change: float
    of_value: float


_SLACK = {torch.float64: Slack(1e-6, 1e-12), torch.float32: Slack(1e-3, 1e-5)}
_COARSE = Slack(1e-2, 5e-3)  # half precision


@dataclass(frozen=True)
class RandomizedCopy:
    """A copy of a network and inputs on which its code can be compared.

    outputs:   what the copy gives in eval mode.
    slack:     how far two ways of computing the same may differ: that of the lowest precision in which the network
               computes anything.
    is_stable: two runs give the same; not so where it draws random numbers or keeps a state.
    """

    model: nn.Module
    inputs: Arguments
    outputs: list[Tensor]
    slack: Slack
    is_stable: bool


def randomized_copy(model: nn.Module, inputs: Arguments) -> RandomizedCopy:
    """The copy with the most telling numbers on which the network still runs and gives finite values.

    Random weights, inputs and float64 come first. A network that insists on its own precision, weights or inputs gets
    them back one after the other.
    """
    for dtype, has_random_inputs, has_random_weights in (
        (torch.float64, True, True),
        (torch.float64, False, True),
        (torch.float32, True, True),
        (torch.float32, False, False),
    ):
        candidate = _candidate(model, inputs, dtype, has_random_inputs, has_random_weights)
        if candidate is not None:
            return candidate
    candidate = _candidate(model, inputs, None, False, False, is_strict=False)
    assert candidate is not None
    return candidate


def _candidate(
    model: nn.Module,
    inputs: Arguments,
    dtype: torch.dtype | None,
    has_random_inputs: bool,
    has_random_weights: bool,
    is_strict: bool = True,
) -> RandomizedCopy | None:
    spare = copied(model)
    generator = torch.Generator().manual_seed(0)
    precision = _Precision()
    try:
        if dtype is not None:
            spare, inputs = spare.to(dtype), tree_map_only(Tensor, lambda t: _cast(t, dtype), inputs)
        inputs = tree_map_only(Tensor, lambda t: _random_like(t, generator), inputs) if has_random_inputs else inputs
        if has_random_weights:
            _randomize(spare, generator)
        with precision:
            outputs = run(spare, inputs)
        again = run(spare, inputs, seed=1)
    except Exception:  # the network is a stranger's code: whatever it raises, these numbers are not for it
        if not is_strict:
            raise
        return None
    if is_strict and not all(bool(torch.isfinite(value).all()) for value in floating(outputs)):
        return None
    is_stable = len(outputs) == len(again) and all(map(_equal, outputs, again))
    return RandomizedCopy(spare, inputs, outputs, precision.slack, is_stable)


def copied(model: nn.Module) -> nn.Module:
    """A deep copy of `model` without the hooks of masks."""
    spare = copy.deepcopy(model)
    without_masks(spare)
    return spare


def run(model: nn.Module, inputs: Arguments, seed: int = 0) -> list[Tensor]:
    """All tensors that `model` gives in eval mode; what it draws at random is decided by `seed`."""
    with evaluating(model):
        return run_as_it_is(model, inputs, seed)


def run_as_it_is(model: nn.Module, inputs: Arguments, seed: int = 0) -> list[Tensor]:
    """All tensors that `model` gives in the mode it is in."""
    with torch.no_grad(), torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return tensors(model(*inputs))


def tensors(output: Any) -> list[Tensor]:
    """The tensors of an output: nested in tuples, lists, dicts and dataclasses."""
    return list(_tensors(output))


def _tensors(output: Any) -> Iterator[Tensor]:
    for leaf in [output] if isinstance(output, Tensor) else tree_leaves(output):
        if isinstance(leaf, Tensor):
            # Inside torch.vmap a module gives wrappers that must not be kept beyond it.
            yield from () if torch._C._functorch.is_functorch_wrapped_tensor(leaf) else (leaf,)
        elif isinstance(leaf, Mapping):
            yield from _tensors(dict(leaf))
        elif is_dataclass(leaf) and not isinstance(leaf, type):
            yield from _tensors([getattr(leaf, field.name) for field in fields(leaf)])


def floating(values: list[Tensor]) -> list[Tensor]:
    """Those of floating point: whole numbers, such as classes, may agree by accident."""
    return [value for value in values if value.is_floating_point() or value.is_complex()]


def change(before: Tensor, after: Tensor) -> float:
    """The largest finite difference between two values of equal shape; 0 for whole numbers."""
    if before.shape != after.shape or not floating([before]) or not before.numel():
        return 0.0
    difference = (before - after).abs()
    return float(difference[torch.isfinite(difference)].max()) if bool(torch.isfinite(difference).any()) else 0.0


def close(a: Tensor, b: Tensor, slack: Slack, change: float) -> bool:
    """Whether a and b are the same value, computed in two ways; `change` is what the removal of units does to it.

    Not relative to the largest value: a mask of -1e308 among the scores, or a large constant, would hide all else.
    """
    if a.shape != b.shape or not floating([a]):
        return _equal(a, b)
    return torch.allclose(b, a, rtol=slack.of_value, atol=slack.of_change * change, equal_nan=True)


def _equal(a: Tensor, b: Tensor) -> bool:
    if a.shape == b.shape and floating([a, b]):
        return torch.allclose(a, b, rtol=0.0, atol=0.0, equal_nan=True)
    return torch.equal(a, b)


def _cast(value: Tensor, dtype: torch.dtype) -> Tensor:
    return value.to(dtype) if value.is_floating_point() else value


def _random_like(value: Tensor, generator: torch.Generator) -> Tensor:
    """Random numbers of the same type within the range of `value`; flags and masks (no number but 0 and 1) stay."""
    if not value.numel() or value.is_complex():
        return value
    if value.is_floating_point():
        original = value.double()
        noise = torch.randn(value.shape, generator=generator, dtype=torch.float64).to(value.device)
        if bool(torch.isfinite(original).all()) and float(original.min()) < float(original.max()):
            noise = (original.mean() + original.std(correction=0) * noise).clamp(original.min(), original.max())
        return noise.to(value.dtype)
    low, high = int(value.min()), int(value.max())
    if value.dtype == torch.bool or (low >= 0 and high <= 1):
        return value
    return torch.randint(low, high + 1, value.shape, generator=generator).to(value)


@torch.no_grad()
def _randomize(model: nn.Module, generator: torch.Generator) -> None:
    """Random parameters and norm statistics of a size that neither dies out nor explodes; other buffers stay."""
    for parameter in model.parameters():
        if parameter.is_floating_point():
            parameter.copy_(_weights(parameter, generator))
    for module in model.modules():
        if isinstance(module, _NormBase):
            for statistic in (module.running_mean, module.running_var):
                if statistic is not None:
                    statistic.copy_(_positive(statistic, generator))


def _weights(parameter: Tensor, generator: torch.Generator) -> Tensor:
    if parameter.ndim < 2:
        return _positive(parameter, generator)
    inputs = max(1, parameter.numel() // max(1, len(parameter)))
    return torch.randn(parameter.shape, generator=generator, dtype=torch.float64) / inputs**0.5


def _positive(like: Tensor, generator: torch.Generator) -> Tensor:
    """Between 0.5 and 1.5: gains, scales and variances may pass a root or a logarithm."""
    return 0.5 + torch.rand(like.shape, generator=generator, dtype=torch.float64)


class _Precision(TorchDispatchMode):
    """Notes the lowest precision of all that is computed, as the slack that it leaves."""

    def __init__(self) -> None:
        super().__init__()
        self.slack = _SLACK[torch.float64]

    def __torch_dispatch__(self, operation: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = operation(*args, **(kwargs or {}))
        for value in tree_leaves(result):
            if isinstance(value, Tensor) and value.is_floating_point():
                self.slack = max(self.slack, _SLACK.get(value.dtype, _COARSE), key=lambda slack: slack.of_value)
        return result
