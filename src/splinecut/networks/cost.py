"""What a network costs: parameters, FLOPs of a forward pass, bytes it moves.

Nothing is computed to find out. The network runs on fake tensors, which have a shape but no data, so
counting ResNet-50 takes a second and leaves weights, statistics, mode and random state as they were.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.func import functional_call
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from torch.utils.flop_counter import FlopCounterMode

from splinecut.errors import InputError


@dataclass(frozen=True)
class Cost:
    """What a network holds, and what one forward pass of one input takes.

    `flops` counts 2 per multiply-add of convolutions and matrix products, and nothing else. `bytes` is what
    every operation reads and writes, parameters included, as if no result stayed in a cache.
    """

    parameters: int
    flops: int
    bytes: int

    @property
    def macs(self) -> int:
        """Multiply-adds: half of `flops`."""
        return self.flops // 2


def parameters(model: nn.Module) -> int:
    """How many numbers are trained, frozen ones included; buffers (statistics, selectors) are none."""
    return sum(parameter.numel() for parameter in model.parameters())


def cost(model: nn.Module, example: Tensor | tuple[int, ...], batch: int = 1) -> Cost:
    """The cost of one input of the shape of `example`, a tensor with a batch axis or a shape without one.

    Parameters are read once per batch, so their share of `bytes` falls as `batch` grows; FLOPs do not change.
    """
    traffic, counter = _Traffic(), FlopCounterMode(display=False)
    _pretend(model, example, batch, counter, traffic)
    return Cost(parameters(model), round(counter.get_total_flops() / batch), round(traffic.bytes / batch))


def flops_by_module(model: nn.Module, example: Tensor | tuple[int, ...]) -> dict[str, int]:
    """FLOPs of one input's forward pass in each module that has any, what is inside it included; "" is the whole."""
    counter = FlopCounterMode(display=False)
    _pretend(model, example, 1, counter)
    counted = {path: sum(flops.values()) for path, flops in counter.get_flop_counts().items() if path != "Global"}
    return {path.partition(".")[2]: flops for path, flops in counted.items()}  # they begin with the network's class


def _pretend(model: nn.Module, example: Tensor | tuple[int, ...], batch: int, *watching: Any) -> None:
    """A forward pass on fake tensors, watched by these dispatch modes."""
    shape = tuple(example.shape[1:]) if isinstance(example, Tensor) else tuple(example)
    reference = next(model.parameters(), torch.empty(0))
    with FakeTensorMode(allow_non_fake_inputs=True), _evaluating(model), torch.random.fork_rng(devices=[]):
        tensors = dict(model.named_parameters()) | dict(model.named_buffers())
        # Made anew, not from the weights: whatever layout training chose for those, the count is that of the plain one.
        faked = {name: torch.empty(t.shape, dtype=t.dtype, device=t.device) for name, t in tensors.items()}
        inputs = torch.empty(batch, *shape, dtype=reference.dtype, device=reference.device)
        try:
            with torch.no_grad(), contextlib.ExitStack() as modes:
                for mode in watching:
                    modes.enter_context(mode)
                functional_call(model, faked, (inputs,))
        except (RuntimeError, ValueError, TypeError) as error:
            reason = " ".join(str(error).split())
            raise InputError(f"{type(model).__name__} does not take inputs of shape {shape}: {reason}") from error


def forward_flops(model: nn.Module, example: Tensor | tuple[int, ...]) -> int:
    """FLOPs of a forward pass of one input: two for every multiply-add of convolutions and matrix products."""
    return cost(model, example).flops


def macs(model: nn.Module, example: Tensor | tuple[int, ...]) -> int:
    """Multiply-adds of a forward pass of one input."""
    return cost(model, example).macs


def bytes_moved(model: nn.Module, example: Tensor | tuple[int, ...], batch: int = 1) -> int:
    """Bytes a forward pass reads and writes per input, when `batch` inputs go through together."""
    return cost(model, example, batch).bytes


class _Traffic(TorchDispatchMode):
    """Adds up the bytes of all tensors that operations read and write; a view or a question of shape moves none."""

    def __init__(self) -> None:
        super().__init__()
        self.bytes = 0

    def __torch_dispatch__(self, operation: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = operation(*args, **(kwargs or {}))
        if operation.namespace == "aten" and not operation.is_view:
            self.bytes += sum(_size(leaf) for leaf in tree_leaves((args, kwargs, result)))
        return result


def _size(leaf: object) -> int:
    return leaf.numel() * leaf.element_size() if isinstance(leaf, Tensor) else 0


@contextlib.contextmanager
def _evaluating(model: nn.Module) -> Iterator[None]:
    """The model in evaluation mode; afterwards every module is in the mode it was in."""
    modes = {module: module.training for module in model.modules()}
    model.eval()
    try:
        yield
    finally:
        for module, mode in modes.items():
            module.training = mode
