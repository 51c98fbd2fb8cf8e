"""Cost of a network: parameters, FLOPs and bytes moved of a forward pass.

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
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from torch.utils.flop_counter import FlopCounterMode

from splinecut.errors import InputError
from splinecut.networks.inputs import Arguments, as_arguments
from splinecut.networks.model_state import evaluating

Example = Tensor | tuple[int, ...] | Arguments
"""A batch of inputs, the shape of one, or a tuple of the network's arguments."""


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


def cost(model: nn.Module, example: Example, batch: int = 1) -> Cost:
    """The cost of one input of the shape of `example`: a tensor with a batch axis, a shape without one, or a tuple of
    the network's arguments. Whole numbers, such as token ids, stay whole numbers.

    Parameters are read once per batch, so their share of `bytes` falls as `batch` grows; FLOPs do not change.
    """
    traffic, counter = _Traffic(), FlopCounterMode(display=False)
    _pretend(model, example, batch, counter, traffic)
    return Cost(parameters(model), round(counter.get_total_flops() / batch), round(traffic.bytes / batch))


def flops_by_module(model: nn.Module, example: Example) -> dict[str, int]:
    """FLOPs of one input's forward pass in each module that has any, what is inside it included; "" is the whole."""
    counter = FlopCounterMode(display=False)
    _pretend(model, example, 1, counter)
    counted = {path: sum(flops.values()) for path, flops in counter.get_flop_counts().items() if path != "Global"}
    return {path.partition(".")[2]: flops for path, flops in counted.items()}  # they begin with the network's class


def count_flops(model: nn.Module, inputs: tuple[Any, ...]) -> int:
    """FLOPs of one forward pass of these very inputs, all of them together."""
    counter = FlopCounterMode(display=False)
    # Detached: the counter follows modules by their gradients, and stumbles over views of parameters.
    detached = {name: parameter.detach() for name, parameter in model.named_parameters()}
    with torch.no_grad(), _unfused(), counter:
        functional_call(model, detached, inputs)
    return counter.get_total_flops()


@contextlib.contextmanager
def _unfused() -> Iterator[None]:
    """Attention and recurrent layers as the products they are made of: a fused kernel is one operation to a counter."""
    onednn: Any = torch.backends.mkldnn
    before = torch.backends.mha.get_fastpath_enabled(), onednn.enabled
    torch.backends.mha.set_fastpath_enabled(False)
    onednn.enabled = False
    try:
        with sdpa_kernel(SDPBackend.MATH):
            yield
    finally:
        torch.backends.mha.set_fastpath_enabled(before[0])
        onednn.enabled = before[1]


def _pretend(model: nn.Module, example: Example, batch: int, *watching: Any) -> None:
    """A forward pass on fake tensors, watched by these dispatch modes."""
    reference = next(model.parameters(), torch.empty(0))
    with FakeTensorMode(allow_non_fake_inputs=True), evaluating(model), torch.random.fork_rng(devices=[]):
        tensors = dict(model.named_parameters()) | dict(model.named_buffers())
        # Made anew, not from the weights: whatever layout training chose for those, the count is that of the plain one.
        faked = {name: torch.empty(t.shape, dtype=t.dtype, device=t.device) for name, t in tensors.items()}
        inputs = tuple(_fake(value, batch, reference) for value in _arguments(example))
        try:
            with torch.no_grad(), _unfused(), contextlib.ExitStack() as modes:
                for mode in watching:
                    modes.enter_context(mode)
                functional_call(model, faked, inputs)
        except (RuntimeError, ValueError, TypeError, IndexError) as error:
            shapes = ", ".join(str(tuple(value.shape[1:])) for value in inputs if isinstance(value, Tensor))
            reason = " ".join(str(error).split())
            raise InputError(f"{type(model).__name__} does not take inputs of shape {shapes}: {reason}") from error


def _arguments(example: Example) -> Arguments:
    is_shape = isinstance(example, tuple) and all(isinstance(length, int) for length in example)
    return (torch.empty(1, *example),) if is_shape else as_arguments(example)


def _fake(value: Any, batch: int, reference: Tensor) -> Any:
    """`batch` inputs of the shape of this argument: in the network's precision, or of its own type if it counts."""
    if not isinstance(value, Tensor) or not value.ndim:
        return value
    dtype = reference.dtype if value.is_floating_point() else value.dtype
    return torch.empty(batch, *value.shape[1:], dtype=dtype, device=reference.device)


def forward_flops(model: nn.Module, example: Example) -> int:
    """FLOPs of a forward pass of one input: two for every multiply-add of convolutions and matrix products."""
    return cost(model, example).flops


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
