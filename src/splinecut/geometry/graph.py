"""A network as geometry sees it: a list of steps, each affine or folding, run on a batch of points.

`networks.trace` builds a `Graph` from an `nn.Module`; geometry only reads it. Every step keeps what it was in the
network (operation, module path, parameter names, attributes). On which side of a cut a point lies is decided here too,
once: above the kink is on, on the kink and below is off (`is_on`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Literal

import numpy as np
import torch
from jaxtyping import Bool, Float, Int64
from torch import Tensor

from splinecut.errors import InputError

Role = Literal["input", "affine", "fold", "max", "smooth"]
Parameters = Mapping[str, Tensor]
Step = Callable[..., Tensor]


@dataclass(frozen=True)
class Node:
    """One step of a network; axis 0 of its inputs and its value is the batch of points.

    role "affine": `apply` is affine in its inputs taken together.
    role "fold":   `apply` acts on each unit alone and is affine between its `kinks`.
    role "max":    each row of `windows` lists positions in the flattened inputs (C order, inputs one after the
                   other, -1 = padding); unit w of the value is the largest of them.
    role "smooth": anything else, run as it is. A smooth activation has the kink of the relu it softens, so that
                   codes can be read; exact geometry refuses such a graph.
    """

    name: str
    op: str  # "linear", "conv", "batch_norm", "add", "cat", "reshape", "relu", "max_pool", ...
    role: Role
    inputs: tuple[str, ...]
    shape: tuple[int, ...]  # of the value, without the batch axis
    apply: Step  # (parameters, *inputs) -> value
    bound: Step | None = None  # affine: (|parameters|, *|inputs|) -> sum of the absolute values of all its terms
    path: str = ""  # of the module that ran it; "" is the network itself
    parameters: Mapping[str, str] = field(default_factory=dict)  # argument ("weight") -> key of Graph.parameters
    attributes: Mapping[str, Any] = field(default_factory=dict)  # stride, padding, groups, dim, ... as called
    kinks: tuple[float, ...] = ()
    windows: Int64[np.ndarray, "windows size"] | None = None

    @property
    def size(self) -> int:
        """Number of units: entries of the value at one point."""
        return int(np.prod(self.shape, dtype=np.int64))


@dataclass(frozen=True)
class Layer:
    """The units of one folding step at one kink; `bits` of them enter the activation code.

    A unit of a fold is on where its input exceeds the kink. A unit of a max is one window; it cuts where the
    largest entry changes, and has no bit. A clamp has two kinks and so makes two layers.
    """

    name: str
    node: str
    kink: float
    shape: tuple[int, ...]
    bits: int

    @property
    def size(self) -> int:
        return int(np.prod(self.shape, dtype=np.int64))


@dataclass(frozen=True)
class Graph:
    """A traced network: `nodes` in the order they run, the first is the input."""

    nodes: tuple[Node, ...]
    output: str
    parameters: Parameters

    @property
    def input_shape(self) -> tuple[int, ...]:
        """Shape of one input, without the batch axis."""
        return self.nodes[0].shape

    @cached_property
    def layers(self) -> tuple[Layer, ...]:
        """Every folding layer, in the order they run: what edges are labelled by and codes are made of."""
        return tuple(_layers(self.nodes))

    @property
    def n_bits(self) -> int:
        """Length of an activation code: the units of all folds, layer by layer, in C order within a layer."""
        return sum(layer.bits for layer in self.layers)

    def __getitem__(self, name: str) -> Node:
        return self._by_name[name]

    @cached_property
    def _by_name(self) -> dict[str, Node]:
        return {node.name: node for node in self.nodes}

    @cached_property
    def last_use(self) -> dict[str, int]:
        """Position of the last node that reads each value; the output is read at the very end."""
        last = {name: place for place, node in enumerate(self.nodes) for name in node.inputs}
        # Also where an inner node reads it: the output must outlive its last reader.
        last[self.output] = len(self.nodes)
        return last

    def run(self, x: Float[Tensor, "points ..."]) -> Float[Tensor, "points ..."]:
        """The network's value at each point."""
        return self.trail(x, [self.output])[self.output]

    def trail(self, x: Float[Tensor, "points ..."], names: Iterable[str]) -> dict[str, Tensor]:
        """Values of the named nodes at each point; nothing else is kept longer than it is needed."""
        wanted = set(names)
        values = {self.nodes[0].name: x}
        for place, node in enumerate(self.nodes[1:], start=1):
            values[node.name] = self.step(node, values)
            for name in {*node.inputs, node.name}:
                if name not in wanted and self.last_use.get(name, -1) <= place:
                    del values[name]
        return values

    def step(self, node: Node, values: Mapping[str, Tensor]) -> Tensor:
        """The value of `node`, given the values of its inputs."""
        return node.apply(self.parameters, *(values[name] for name in node.inputs))

    def to(self, dtype: torch.dtype, device: str | torch.device = "cpu") -> Graph:
        """The same network with parameters of another precision or on another device."""
        move = {
            key: value.to(device, dtype if value.is_floating_point() else None)
            for key, value in self.parameters.items()
        }
        return replace(self, parameters=move)

    def with_state(self, state: Mapping[str, Tensor]) -> Graph:
        """The same graph with newer weights, e.g. `model.state_dict()` an epoch later; spares a second trace."""
        # They were computed from the old weights while tracing, and would silently stay old.
        derived = [key for key in self.parameters if key.startswith("derived:")]
        if derived:
            raise InputError(f"weights computed from parameters cannot be exchanged ({derived[0]}); trace again")
        missing = [key for key in self.parameters if key not in state and not key.startswith("constant:")]
        if missing:
            raise InputError(f"state has no entry {missing[0]!r}; pass the state_dict of the network that was traced")
        fresh = {
            key: state[key].detach().to(old.device, old.dtype) if key in state else old
            for key, old in self.parameters.items()
        }
        return replace(self, parameters=fresh)


def _layers(nodes: Iterable[Node]) -> Iterable[Layer]:
    taken: dict[str, int] = {}
    for node in nodes:
        kinks = (0.0,) if node.role == "max" else node.kinks
        for kink in kinks:
            name = node.path or node.name
            name = f"{name}>{kink:g}" if len(kinks) > 1 else name
            taken[name] = taken.get(name, 0) + 1
            name = name if taken[name] == 1 else f"{name}#{taken[name]}"
            yield Layer(name, node.name, kink, node.shape, 0 if node.role == "max" else node.size)


def is_on(values: Float[Tensor, "points ..."], kink: float = 0.0) -> Bool[Tensor, "points ..."]:
    """True where a unit's input is above its kink; the only place where `>` is chosen over `>=`."""
    return values > kink


def first_argmax(values: Float[Tensor, "... pieces"]) -> Tensor:
    """The lowest index among the largest entries of the last axis (torch leaves the choice among ties open)."""
    is_largest = values == values.amax(dim=-1, keepdim=True)
    return is_largest.to(torch.uint8).cumsum(dim=-1).eq(0).sum(dim=-1)


def refuse_smooth(graph: Graph) -> None:
    """Raises InputError where exact geometry is asked of a graph that was traced with `smooth=True`."""
    smooth = next((node for node in graph.nodes if node.role == "smooth"), None)
    if smooth is not None:
        raise InputError(
            f"{smooth.op} in layer {smooth.path or '(network)'} is smooth, so the network has no exact pieces; "
            "soft codes (splinecut.geometry.soft_codes) describe it"
        )
