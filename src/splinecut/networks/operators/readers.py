"""The operations splinecut understands: each is affine, a fold with kinks, or a maximum over windows.

One table per role. A row says how to run the operation at any batch size; everything absent from the tables is
refused with a reason.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import torch
from jaxtyping import Int64
from torch import Tensor

from splinecut.geometry.graph import Role, Step

Shape = tuple[int, ...]


@dataclass(frozen=True)
class Data:
    """Stands in a call for a value that depends on the input: the node of that name."""

    name: str


@dataclass(frozen=True)
class Slot:
    """Stands in a call for a parameter or constant: its key in the graph's parameters."""

    key: str


@dataclass(frozen=True)
class Call:
    """One operation as called; `shape` is that of its value without the batch axis."""

    name: str
    target: Any  # the aten operator
    arguments: Mapping[str, Any]  # by the operator's own argument names
    shape: Shape
    path: str
    node: str

    def inputs(self) -> tuple[str, ...]:
        """Names of the values it reads, each once, in the order of the arguments."""
        return tuple(dict.fromkeys(leaf.name for leaf in _leaves(self.arguments) if isinstance(leaf, Data)))


@dataclass(frozen=True)
class Affine:
    """Affine in all its inputs together."""

    op: str
    apply: Step
    bound: Step
    role: ClassVar[Role] = "affine"


@dataclass(frozen=True)
class Fold:
    """Acts on each unit alone, affine between its kinks."""

    op: str
    apply: Step
    kinks: tuple[float, ...]
    role: ClassVar[Role] = "fold"


@dataclass(frozen=True)
class Max:
    """The largest entry of each window; -1 in a window is padding."""

    op: str
    apply: Step
    windows: Int64[np.ndarray, "windows size"]
    role: ClassVar[Role] = "max"


@dataclass(frozen=True)
class Smooth:
    """Neither affine nor piecewise affine; an activation has a kink where the relu it softens has one."""

    op: str
    apply: Step
    kinks: tuple[float, ...]
    role: ClassVar[Role] = "smooth"


class Unsupported(Exception):
    """Why an operation is refused."""


def read(call: Call, shapes: Mapping[str, Shape]) -> Affine | Fold | Max:
    """What the call is; `shapes` are those of its inputs. Raises `Unsupported` with the reason."""
    name = call.name.rstrip("_")
    if name in _FOLDS:
        kinks = sorted({float(kink) for kink in _FOLDS[name](call.arguments)})
        return Fold(name, _called(call), tuple(kinks))
    if name in _MAXIMA:
        return Max(_MAXIMA[name][0], _called(call, first=True), _MAXIMA[name][1](call, shapes))
    if name in _AFFINE:
        return _AFFINE[name](call)
    if name in _SMOOTH:
        raise Unsupported("it is smooth, so it has no cuts; soft codes (splinecut.geometry.soft_codes) describe it")
    known = {name.replace("1d", "").replace("2d", "").replace("3d", "") for name in (*_AFFINE, *_FOLDS, *_MAXIMA)}
    raise Unsupported(f"supported are {', '.join(sorted(name for name in known if name[0] != '_'))}")


def read_loosely(call: Call, shapes: Mapping[str, Shape]) -> Affine | Fold | Max | Smooth:
    """As `read`, but what it refuses is run as called: enough to see codes, not enough for exact geometry."""
    try:
        return read(call, shapes)
    except Unsupported:
        name = call.name.rstrip("_")
        return Smooth(name, _called(call, first=True), (0.0,) if name in _SOFT_RELUS else ())


def piece_bounds(call: Call, length: int) -> tuple[tuple[int, int], ...]:
    """Where split and chunk cut an axis of the given length."""
    arguments = call.arguments
    if call.name == "chunk":
        step = -(-length // arguments["chunks"])
    elif isinstance(sizes := arguments.get("split_size", arguments.get("split_sizes")), int):
        step = sizes
    else:
        ends = np.cumsum(sizes).tolist()
        return tuple(zip([0, *ends[:-1]], ends, strict=True))
    return tuple((start, min(start + step, length)) for start in range(0, length, step))


# Running a call ----------------------------------------------------------------------------------------------------


def _leaves(value: Any) -> Iterator[Any]:
    if isinstance(value, Mapping):
        value = list(value.values())
    if isinstance(value, (list, tuple)):
        for item in value:
            yield from _leaves(item)
    else:
        yield value


def _fill(value: Any, data: Mapping[str, Tensor], parameters: Mapping[str, Tensor]) -> Any:
    if isinstance(value, (list, tuple)):
        return [_fill(item, data, parameters) for item in value]
    if isinstance(value, Data):
        return data[value.name]
    return parameters[value.key] if isinstance(value, Slot) else value


def _called(call: Call, first: bool = False) -> Step:
    """Runs the operator as it was called; `first` takes the first of several results."""
    names = call.inputs()
    schema = call.target._schema.arguments
    positional = [a.name for a in schema if not a.kwarg_only]
    keyword = [a.name for a in schema if a.kwarg_only and call.arguments.get(a.name) is not None]

    def apply(parameters: Mapping[str, Tensor], *inputs: Tensor) -> Tensor:
        data = dict(zip(names, inputs, strict=True))
        args = [_fill(call.arguments[name], data, parameters) for name in positional]
        kwargs = {name: _fill(call.arguments[name], data, parameters) for name in keyword}
        result = call.target(*args, **kwargs)
        return result[0] if first and isinstance(result, (tuple, list)) else result

    return apply


def _one_input(call: Call, op: str) -> None:
    first = next(iter(call.arguments.values()))
    if len(call.inputs()) != 1 or not isinstance(first, Data):
        raise Unsupported(f"{op} is affine only when its first argument alone depends on the input")


def _direct(op: str) -> Callable[[Call], Affine]:
    def make(call: Call) -> Affine:
        _one_input(call, op)
        return Affine(op, _called(call), _called(call))

    return make


def _joint(op: str) -> Callable[[Call], Affine]:
    return lambda call: Affine(op, _called(call), _called(call))


def _reshape(call: Call) -> Affine:
    def apply(_: Mapping[str, Tensor], x: Tensor) -> Tensor:
        return x.reshape(len(x), *call.shape)

    return Affine("reshape", apply, apply)


def _expand(call: Call) -> Affine:
    def apply(_: Mapping[str, Tensor], x: Tensor) -> Tensor:
        return x.expand(len(x), *call.shape)

    return Affine("expand", apply, apply)


def _identity(call: Call) -> Affine:
    if call.arguments.get("train") is True:
        raise Unsupported("dropout is active; pass training=self.training to F.dropout and call model.eval()")

    def apply(_: Mapping[str, Tensor], x: Tensor) -> Tensor:
        return x

    return Affine("identity", apply, apply)


def _fills(value: float | None = None) -> Callable[[Call], Affine]:
    def make(call: Call) -> Affine:
        number = call.arguments["fill_value"] if value is None else value

        def apply(_: Mapping[str, Tensor], x: Tensor) -> Tensor:
            return x.new_full((len(x), *call.shape), number)

        return Affine("constant", apply, lambda parameters, x: apply(parameters, x).abs())

    return make


def _batch_norm(call: Call) -> Affine:
    if call.arguments.get("training") or call.arguments.get("running_mean") is None:
        raise Unsupported("it normalises by the batch; batch norm needs running statistics and eval mode")
    _one_input(call, "batch_norm")

    def coefficients(parameters: Mapping[str, Tensor], ndim: int) -> list[Any]:
        keys = ("running_mean", "running_var", "weight", "bias")
        mean, var, weight, bias = (_fill(call.arguments.get(key), {}, parameters) for key in keys)
        scale = (var + call.arguments["eps"]).rsqrt() * (1.0 if weight is None else weight)
        bias = torch.zeros_like(mean) if bias is None else bias
        return [c.reshape(-1, *[1] * (ndim - 2)) for c in (mean, scale, bias)]

    def apply(parameters: Mapping[str, Tensor], x: Tensor) -> Tensor:
        mean, scale, bias = coefficients(parameters, x.ndim)
        return x * scale + (bias - mean * scale)

    def bound(parameters: Mapping[str, Tensor], x: Tensor) -> Tensor:
        mean, scale, bias = coefficients(parameters, x.ndim)
        return (x + mean) * scale + bias

    return Affine("batch_norm", apply, bound)


def _sum(op: str) -> Callable[[Call], Affine]:
    """add, sub, rsub: every term counts with its absolute value in the bound."""

    def make(call: Call) -> Affine:
        def bound(parameters: Mapping[str, Tensor], *inputs: Tensor) -> Tensor:
            left, right = _two(call, parameters, inputs)
            return left + right * abs(call.arguments.get("alpha") or 1)

        return Affine(op, _called(call), bound)

    return make


def _product(op: str) -> Callable[[Call], Affine]:
    def make(call: Call) -> Affine:
        data = [isinstance(call.arguments[key], Data) for key in ("self", "other")]
        if all(data) or (op == "div" and data[1]):
            raise Unsupported("a product or quotient of two values that both depend on the input is not affine")

        def bound(parameters: Mapping[str, Tensor], *inputs: Tensor) -> Tensor:
            left, right = _two(call, parameters, inputs)
            return left * right if op == "mul" else left / right

        return Affine(op, _called(call), bound)

    return make


def _two(call: Call, parameters: Mapping[str, Tensor], inputs: tuple[Tensor, ...]) -> tuple[Any, Any]:
    data = dict(zip(call.inputs(), inputs, strict=True))
    left, right = (_fill(call.arguments[key], data, parameters) for key in ("self", "other"))
    return abs(left), abs(right)


def _negation(call: Call) -> Affine:
    return Affine("neg", _called(call), lambda _, x: x)


# Windows of maxima -------------------------------------------------------------------------------------------------


def _grid_windows(shape: Shape, axes: list[list[list[int]]]) -> Int64[np.ndarray, "windows size"]:
    """Windows over the last axes of `shape`: axes[a][o] lists the positions along axis a that output o looks at."""
    positions = np.arange(np.prod(shape, dtype=np.int64)).reshape(-1, *shape[-len(axes) :])
    rows = []
    for plane in positions:
        for looks in itertools.product(*axes):
            rows.append(plane[np.ix_(*looks)].ravel())
    width = max(map(len, rows))
    return np.stack([np.pad(row, (0, width - len(row)), constant_values=-1) for row in rows])


def _axis(value: Any, axis: int, default: int) -> int:
    if isinstance(value, int):
        return value
    return value[axis if len(value) > 1 else 0] if value else default


def _pool_windows(call: Call, shapes: Mapping[str, Shape]) -> Int64[np.ndarray, "windows size"]:
    shape, arguments = shapes[call.inputs()[0]], call.arguments
    n_axes = int(call.name.rstrip("_").replace("_with_indices", "")[-2])
    axes = []
    for axis in range(n_axes):
        kernel = _axis(arguments["kernel_size"], axis, 1)
        stride = _axis(arguments["stride"], axis, kernel)
        padding, dilation = _axis(arguments["padding"], axis, 0), _axis(arguments["dilation"], axis, 1)
        length = shape[axis - n_axes]
        starts = [o * stride - padding for o in range(call.shape[axis - n_axes])]
        looks = [[s + k * dilation for k in range(kernel)] for s in starts]
        axes.append([[at for at in look if 0 <= at < length] for look in looks])
    return _grid_windows(shape, axes)


def _adaptive_windows(call: Call, shapes: Mapping[str, Shape]) -> Int64[np.ndarray, "windows size"]:
    shape = shapes[call.inputs()[0]]
    n_axes = int(call.name[-2])
    sizes = [(shape[axis - n_axes], call.shape[axis - n_axes]) for axis in range(n_axes)]
    axes = [[list(range(o * n // out, -(-(o + 1) * n // out))) for o in range(out)] for n, out in sizes]
    return _grid_windows(shape, axes)


def _axis_windows(call: Call, shapes: Mapping[str, Shape]) -> Int64[np.ndarray, "windows size"]:
    shape = shapes[call.inputs()[0]]
    dims = call.arguments["dim"]
    dims = [dims] if isinstance(dims, int) else dims
    if not dims:
        raise Unsupported("a maximum over all axes mixes the points of a batch; name the axes")
    along = [dim % (len(shape) + 1) - 1 for dim in dims]
    positions = np.arange(np.prod(shape, dtype=np.int64)).reshape(shape)
    moved = np.moveaxis(positions, along, range(-len(along), 0))
    return moved.reshape(-1, int(np.prod([shape[a] for a in along])))


def _pair_windows(call: Call, shapes: Mapping[str, Shape]) -> Int64[np.ndarray, "windows size"]:
    first, second = call.arguments["self"], call.arguments["other"]
    if not (isinstance(first, Data) and isinstance(second, Data)):
        raise Unsupported("a maximum with a constant is a clamp; write torch.clamp or a ReLU")
    offset, positions = 0, {}
    for name in call.inputs():
        n = int(np.prod(shapes[name], dtype=np.int64))
        positions[name] = np.broadcast_to(np.arange(offset, offset + n).reshape(shapes[name]), call.shape).ravel()
        offset += n
    return np.stack([positions[first.name], positions[second.name]], axis=1)


# The tables --------------------------------------------------------------------------------------------------------

PIECES = frozenset({"chunk", "split", "split_with_sizes"})
FILLS = frozenset({"zeros", "ones", "full"})

_SMOOTH = frozenset(
    {
        *("celu", "elu", "erf", "exp", "gelu", "glu", "hardswish", "log", "log_sigmoid", "log_softmax", "mish", "pow"),
        *("group_norm", "instance_norm", "layer_norm", "rsqrt", "scaled_dot_product_attention", "selu", "sigmoid"),
        *("silu", "softmax", "softplus", "softsign", "sqrt", "square", "tanh"),
    }
)


_SOFT_RELUS = frozenset({"celu", "elu", "gelu", "hardswish", "mish", "selu", "silu", "softplus", "tanh"})


def _limits(arguments: Mapping[str, Any], low: str, high: str) -> list[float]:
    limits = [arguments.get(low), arguments.get(high)]
    if any(isinstance(limit, (Data, Slot)) for limit in limits):
        raise Unsupported("its limits are tensors; clamp between numbers")
    return [limit for limit in limits if limit is not None]


_FOLDS: dict[str, Callable[[Mapping[str, Any]], list[float]]] = {
    "relu": lambda _: [0.0],
    "leaky_relu": lambda _: [0.0],
    "prelu": lambda _: [0.0],
    "abs": lambda _: [0.0],
    "relu6": lambda _: [0.0, 6.0],
    "hardtanh": lambda a: _limits(a, "min_val", "max_val"),
    "clamp": lambda a: _limits(a, "min", "max"),
    "clamp_min": lambda a: _limits(a, "min", ""),
    "clamp_max": lambda a: _limits(a, "", "max"),
}

_MAXIMA: dict[str, tuple[str, Callable[[Call, Mapping[str, Shape]], np.ndarray]]] = {
    **{f"max_pool{n}d": ("max_pool", _pool_windows) for n in (1, 2, 3)},
    **{f"max_pool{n}d_with_indices": ("max_pool", _pool_windows) for n in (1, 2, 3)},
    **{f"adaptive_max_pool{n}d": ("max_pool", _adaptive_windows) for n in (1, 2, 3)},
    "amax": ("max", _axis_windows),
    "max": ("max", _axis_windows),
    "maximum": ("max", _pair_windows),
}

_AFFINE: dict[str, Callable[[Call], Affine]] = {
    "linear": _direct("linear"),
    "matmul": _direct("matmul"),
    "mm": _direct("matmul"),
    "convolution": _direct("conv"),
    **{f"conv{n}d": _direct("conv") for n in (1, 2, 3)},
    **{f"conv_transpose{n}d": _direct("conv_transpose") for n in (1, 2, 3)},
    "batch_norm": _batch_norm,
    "_native_batch_norm_legit_no_training": _batch_norm,
    **{f"avg_pool{n}d": _direct("avg_pool") for n in (1, 2, 3)},
    **{f"adaptive_avg_pool{n}d": _direct("avg_pool") for n in (1, 2, 3)},
    "mean": _direct("mean"),
    "sum": _direct("sum"),
    **{f"upsample_nearest{n}d": _direct("upsample") for n in (1, 2, 3)},
    "pad": _direct("pad"),
    "constant_pad_nd": _direct("pad"),
    "pixel_shuffle": _direct("pixel_shuffle"),
    "pixel_unshuffle": _direct("pixel_unshuffle"),
    "channel_shuffle": _direct("channel_shuffle"),
    "permute": _direct("permute"),
    "transpose": _direct("transpose"),
    "flip": _direct("flip"),
    "slice": _direct("slice"),
    "select": _direct("select"),
    "index_select": _direct("index_select"),
    "index": _direct("index"),
    "cat": _joint("cat"),
    "concat": _joint("cat"),
    "stack": _joint("stack"),
    "add": _sum("add"),
    "sub": _sum("sub"),
    "rsub": _sum("rsub"),
    "mul": _product("mul"),
    "div": _product("div"),
    "neg": _negation,
    **dict.fromkeys(("view", "reshape", "_unsafe_view", "flatten", "unflatten", "squeeze", "unsqueeze"), _reshape),
    "expand": _expand,
    **dict.fromkeys(("dropout", "feature_dropout", "alpha_dropout", "feature_alpha_dropout"), _identity),
    **dict.fromkeys(("clone", "contiguous", "alias", "detach", "to", "_to_copy", "lift_fresh_copy"), _identity),
    **dict.fromkeys(("zeros", "zeros_like", "new_zeros"), _fills(0.0)),
    **dict.fromkeys(("ones", "ones_like", "new_ones"), _fills(1.0)),
    **dict.fromkeys(("full", "full_like", "new_full"), _fills()),
}
