"""Readers of operators that are affine or fold: what a call is to geometry, and how it runs at any batch size.

A reader takes a call and the shapes of its inputs, and raises `Unsupported` with the reason where the call is not
piecewise affine. `bound` of an affine step adds up the absolute values of all its terms: it scales tolerances.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor

from splinecut.networks.export import piece_bounds
from splinecut.networks.operators.calls import (
    Affine,
    Fold,
    Max,
    OpCall,
    ParameterRef,
    Pieces,
    Shape,
    Unsupported,
    ValueRef,
    as_called,
    fill,
)

Shapes = Mapping[str, Shape]
Reader = Callable[[OpCall, Shapes], Affine | Fold | Max | Pieces]


def one_input(call: OpCall, shapes: Shapes) -> Affine:
    """Linear in its first argument and with nothing else that depends on the input; on |x|, |W| it is its own bound."""
    _refuse_more_inputs(call)
    return Affine(as_called(call), as_called(call))


def joined(call: OpCall, shapes: Shapes) -> Affine:
    """Lays its inputs side by side: affine in all of them."""
    return Affine(as_called(call), as_called(call))


def _refuse_more_inputs(call: OpCall) -> None:
    first = next(iter(call.arguments.values()))
    if len(call.inputs()) != 1 or not isinstance(first, ValueRef):
        raise Unsupported(f"{call.name} is affine only when its first argument alone depends on the input")


def reshape(call: OpCall, shapes: Shapes) -> Affine:
    # Not as called: the sizes in the call include that of the batch, which is not known here.
    def apply(_: Mapping[str, Tensor], x: Tensor) -> Tensor:
        return x.reshape(len(x), *call.shape)

    return Affine(apply, apply)


def expand(call: OpCall, shapes: Shapes) -> Affine:
    def apply(_: Mapping[str, Tensor], x: Tensor) -> Tensor:
        return x.expand(len(x), *call.shape)

    return Affine(apply, apply)


def identity(call: OpCall, shapes: Shapes) -> Affine:
    """Copies, casts and dropout that is off; a cast of precision is none here, since all runs in float64."""
    if call.arguments.get("train") is True:
        raise Unsupported("dropout is active; pass training=self.training to F.dropout and call model.eval()")

    def apply(_: Mapping[str, Tensor], x: Tensor) -> Tensor:
        return x

    return Affine(apply, apply)


def constant(value: float | None = None) -> Reader:
    """A fill with one number, `value` or the call's own; it reads an input only for the number of points."""

    def read(call: OpCall, shapes: Shapes) -> Affine:
        number = call.arguments["fill_value"] if value is None else value

        def apply(_: Mapping[str, Tensor], x: Tensor) -> Tensor:
            return x.new_full((len(x), *call.shape), number)

        return Affine(apply, lambda parameters, x: apply(parameters, x).abs())

    return read


def batch_norm(call: OpCall, shapes: Shapes) -> Affine:
    if call.arguments.get("training") or call.arguments.get("running_mean") is None:
        raise Unsupported("it normalises by the batch; batch norm needs running statistics and eval mode")
    _refuse_more_inputs(call)

    def coefficients(parameters: Mapping[str, Tensor], ndim: int) -> list[Any]:
        keys = ("running_mean", "running_var", "weight", "bias")
        mean, var, weight, bias = (fill(call.arguments.get(key), {}, parameters) for key in keys)
        scale = (var + call.arguments["eps"]).rsqrt() * (1.0 if weight is None else weight)
        bias = torch.zeros_like(mean) if bias is None else bias
        return [c.reshape(-1, *[1] * (ndim - 2)) for c in (mean, scale, bias)]

    def apply(parameters: Mapping[str, Tensor], x: Tensor) -> Tensor:
        mean, scale, bias = coefficients(parameters, x.ndim)
        return x * scale + (bias - mean * scale)

    # Its own bound would subtract |mean|, and a tolerance scaled by a difference would be too small.
    def bound(parameters: Mapping[str, Tensor], x: Tensor) -> Tensor:
        mean, scale, bias = coefficients(parameters, x.ndim)
        return (x + mean) * scale + bias

    return Affine(apply, bound)


def sum_of_two(call: OpCall, shapes: Shapes) -> Affine:
    """add, sub, rsub: every term counts with its absolute value in the bound."""

    def bound(parameters: Mapping[str, Tensor], *inputs: Tensor) -> Tensor:
        left, right = _two(call, parameters, inputs)
        return left + right * abs(call.arguments.get("alpha") or 1)

    return Affine(as_called(call), bound)


def product(call: OpCall, shapes: Shapes) -> Affine:
    """mul and div by what does not depend on the input."""
    is_data = [isinstance(call.arguments[key], ValueRef) for key in ("self", "other")]
    if all(is_data) or (call.name == "div" and is_data[1]):
        raise Unsupported("a product or quotient of two values that both depend on the input is not affine")

    def bound(parameters: Mapping[str, Tensor], *inputs: Tensor) -> Tensor:
        left, right = _two(call, parameters, inputs)
        return left * right if call.name == "mul" else left / right

    return Affine(as_called(call), bound)


def _two(call: OpCall, parameters: Mapping[str, Tensor], inputs: tuple[Tensor, ...]) -> tuple[Any, Any]:
    data = dict(zip(call.inputs(), inputs, strict=True))
    left, right = (fill(call.arguments[key], data, parameters) for key in ("self", "other"))
    return abs(left), abs(right)


def negation(call: OpCall, shapes: Shapes) -> Affine:
    return Affine(as_called(call), lambda _, x: x)


def pieces(call: OpCall, shapes: Shapes) -> Pieces:
    """chunk and split: a tuple, of which the program takes entries by their index."""
    source = call.inputs()[0]
    dim = call.arguments["dim"] % (len(shapes[source]) + 1)
    return Pieces(source, piece_bounds(call.name, call.arguments, shapes[source][dim - 1]), dim)


def fold(*kinks: float) -> Reader:
    """An activation that is affine between fixed kinks."""
    return lambda call, shapes: Fold(as_called(call), kinks)


def clamp(low: str, high: str) -> Reader:
    """An activation with a kink at each limit it was given; `low` and `high` name the arguments."""

    def read(call: OpCall, shapes: Shapes) -> Fold:
        limits = [call.arguments.get(name) for name in (low, high)]
        if any(isinstance(limit, (ValueRef, ParameterRef)) for limit in limits):
            raise Unsupported("its limits are tensors; clamp between numbers")
        # Each kink once: clamp(x, 1, 1) has one.
        return Fold(as_called(call), tuple(sorted({float(limit) for limit in limits if limit is not None})))

    return read
