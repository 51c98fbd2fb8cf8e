"""One operator call of an exported program, how it is run, and what a reader may find it to be."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from jaxtyping import Int64
from torch import Tensor

from splinecut.geometry.graph import Role, Step

Shape = tuple[int, ...]


@dataclass(frozen=True)
class ValueRef:
    """Stands in a call for a value that depends on the input: the node of that name."""

    name: str


@dataclass(frozen=True)
class ParameterRef:
    """Stands in a call for a parameter or constant: its key in the graph's parameters."""

    key: str


@dataclass(frozen=True)
class OpCall:
    """One operator as called; `shape` is that of its value without the batch axis."""

    name: str  # without the underscore of in-place forms
    target: Any  # the aten operator
    arguments: Mapping[str, Any]  # by the operator's own argument names
    shape: Shape
    path: str  # of the module that runs it
    node: str  # name of the program's node

    def inputs(self) -> tuple[str, ...]:
        """Names of the values it reads, each once, in the order of the arguments."""
        return tuple(dict.fromkeys(leaf.name for leaf in _leaves(self.arguments) if isinstance(leaf, ValueRef)))


@dataclass(frozen=True)
class Affine:
    """Affine in all its inputs together."""

    apply: Step
    bound: Step
    role: ClassVar[Role] = "affine"


@dataclass(frozen=True)
class Fold:
    """Acts on each unit alone, affine between its kinks."""

    apply: Step
    kinks: tuple[float, ...]
    role: ClassVar[Role] = "fold"


@dataclass(frozen=True)
class Max:
    """The largest entry of each window; -1 in a window is padding."""

    apply: Step
    windows: Int64[np.ndarray, "windows size"]
    role: ClassVar[Role] = "max"


@dataclass(frozen=True)
class Smooth:
    """Neither affine nor piecewise affine; an activation has a kink where the relu it softens has one."""

    apply: Step
    kinks: tuple[float, ...]
    role: ClassVar[Role] = "smooth"


@dataclass(frozen=True)
class Pieces:
    """A tuple of slices of another value along one axis (the batch axis counts), as `chunk` gives it."""

    source: str
    bounds: tuple[tuple[int, int], ...]
    dim: int


class Unsupported(Exception):
    """Why an operation is refused."""


def fill(value: Any, data: Mapping[str, Tensor], parameters: Mapping[str, Tensor]) -> Any:
    """An argument with tensors in place of references."""
    if isinstance(value, (list, tuple)):
        return [fill(item, data, parameters) for item in value]
    if isinstance(value, ValueRef):
        return data[value.name]
    return parameters[value.key] if isinstance(value, ParameterRef) else value


def as_called(call: OpCall, first: bool = False) -> Step:
    """Runs the operator as it was called; `first` takes the first of several results."""
    names = call.inputs()
    schema = call.target._schema.arguments
    positional = [a.name for a in schema if not a.kwarg_only]
    keyword = [a.name for a in schema if a.kwarg_only and call.arguments.get(a.name) is not None]

    def apply(parameters: Mapping[str, Tensor], *inputs: Tensor) -> Tensor:
        data = dict(zip(names, inputs, strict=True))
        args = [fill(call.arguments[name], data, parameters) for name in positional]
        kwargs = {name: fill(call.arguments[name], data, parameters) for name in keyword}
        result = call.target(*args, **kwargs)
        return result[0] if first and isinstance(result, (tuple, list)) else result

    return apply


def _leaves(value: Any) -> Iterator[Any]:
    if isinstance(value, Mapping):
        value = list(value.values())
    if isinstance(value, (list, tuple)):
        for item in value:
            yield from _leaves(item)
    else:
        yield value
