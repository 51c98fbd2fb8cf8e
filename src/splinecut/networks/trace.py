"""An `nn.Module` in eval mode as a `Graph`: which operations are affine, which fold space, and what each one was.

The network is traced by torch.export, so `nn.ReLU`, `F.relu` and `x.relu()` are one operation. Parameters are
promoted to float64 copies; the network itself is left as found. What is not piecewise affine is refused by name.
"""

from __future__ import annotations

import operator
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, fx, nn

from splinecut.errors import InputError
from splinecut.geometry.graph import Graph, Node
from splinecut.networks.operators import readers as operations
from splinecut.networks.operators.readers import Affine, Call, Data, Fold, Max, Slot, Smooth

_Reader = Callable[[Call, Mapping[str, tuple[int, ...]]], Affine | Fold | Max | Smooth]
_BATCH = 5  # of the example that is traced: a size that hardly equals a feature count by accident


class TraceError(InputError):
    """The network cannot be read as a piecewise-affine graph; the message names the operation and its layer."""


def trace(model: nn.Module, example: Tensor, dtype: torch.dtype = torch.float64, smooth: bool = False) -> Graph:
    """The graph of `model`, which must be in eval mode, take one tensor and return one.

    example: (batch, *input); only its shape is used. The graph runs on batches of any size.
    smooth:  let pass what is not piecewise affine, for activation codes of networks with GELU and its kin.
    """
    _refuse_training(model)
    batch = _example(model, example)
    program = export(model, (batch,))
    graph = _Builder(program, dtype, operations.read_loosely if smooth else operations.read).build()
    _check(model, graph, batch)
    return graph


def _refuse_training(model: nn.Module) -> None:
    for path, module in model.named_modules():
        if module.training:
            raise TraceError(f"{path or 'the network'} is in train mode; call model.eval() before asking for geometry")


def _example(model: nn.Module, example: Tensor) -> Tensor:
    if example.ndim < 2:
        raise TraceError(f"example must be (batch, *input), got shape {tuple(example.shape)}; add a batch axis")
    like = next((p for p in model.parameters() if p.is_floating_point()), torch.empty(0))
    generator = torch.Generator().manual_seed(0)
    points = torch.rand((_BATCH, *example.shape[1:]), generator=generator, dtype=torch.float64)
    return points.to(like.device, like.dtype)


def export(model: nn.Module, inputs: tuple[Any, ...], any_batch: bool = True) -> torch.export.ExportedProgram:
    """The network as torch.export reads it, without in-place operations; `any_batch` leaves axis 0 free."""
    shapes = tuple({0: torch.export.Dim.AUTO} for _ in inputs) if any_batch else None
    try:
        with warnings.catch_warnings(), torch.no_grad():
            warnings.simplefilter("ignore")
            program = torch.export.export(model, inputs, dynamic_shapes=shapes)
            return program.run_decompositions({}) if _has_mutation(program) else program
    except Exception as error:
        raise TraceError(_why_not_exported(error, tuple(inputs[0].shape[1:]))) from error


def _has_mutation(program: torch.export.ExportedProgram) -> bool:
    return any(operator_name(node).endswith("_") for node in program.graph.nodes if node.op == "call_function")


def _why_not_exported(error: Exception, shape: tuple[int, ...]) -> str:
    text = f"{type(error).__name__} {error}"
    first = next((line.strip() for line in str(error).splitlines() if line.strip()), type(error).__name__)
    if "data-dependent" in text.lower() or "DataDependent" in text:
        return "control flow depends on the data, so there is no one graph; write the branch with torch operations"
    return f"the network does not run on inputs of shape {shape}: {first[:200]}; check the input's shape"


def _check(model: nn.Module, graph: Graph, batch: Tensor) -> None:
    """One forward pass at another batch size: what the trace froze by mistake shows here."""
    points = batch[: _BATCH - 2]
    with torch.no_grad():
        expected = model(points).to("cpu", torch.float64)
        got = graph.run(points.to("cpu", next(iter(graph.parameters.values()), batch).dtype)).double()
    slack = 1e-2 if batch.dtype in (torch.float16, torch.bfloat16) else 1e-4
    if got.shape != expected.shape or not torch.allclose(got, expected, rtol=slack, atol=slack * expected.abs().max()):
        raise TraceError("the trace disagrees with the network at another batch size; do not mix points of a batch")


def operator_name(node: fx.Node) -> str:
    """ "relu" for aten.relu.default; in-place forms end in an underscore."""
    schema = getattr(node.target, "_schema", None)
    return schema.name.split("::")[-1] if schema else getattr(node.target, "__name__", str(node.target))


@dataclass(frozen=True)
class _Pieces:
    """A value that is a tuple of slices of another one, as `chunk` gives it."""

    source: str
    bounds: tuple[tuple[int, int], ...]
    dim: int


_SYMBOL = object()  # a value that is a size, not a tensor: never part of the graph


class _Builder:
    """Walks the exported program once; `known` maps its nodes to ours, to constants, or to parameter keys."""

    def __init__(self, program: torch.export.ExportedProgram, dtype: torch.dtype, read: _Reader) -> None:
        self.program = program
        self.dtype = dtype
        self.read = read
        self.parameters: dict[str, Tensor] = {}
        self.nodes: list[Node] = []
        self.known: dict[fx.Node, Any] = {}
        self.batch: Any = None

    def build(self) -> Graph:
        signature = self.program.graph_signature
        keys = {**signature.inputs_to_parameters, **signature.inputs_to_buffers}
        keys |= {name: f"constant:{key}" for name, key in signature.inputs_to_lifted_tensor_constants.items()}
        for node in self.program.graph.nodes:
            if node.op == "placeholder":
                self._placeholder(node, keys.get(node.name))
            elif node.op == "call_function":
                self.known[node] = self._call(node)
        output = self._output(signature.user_outputs)
        used = {key for node in self.nodes for key in node.parameters.values()}
        return Graph(tuple(self.nodes), output, {k: self._finite(k) for k in self.parameters if k in used})

    def _placeholder(self, node: fx.Node, key: str | None) -> None:
        if key is not None:
            self.parameters[key] = self._promote(self._tensor(key))
            self.known[node] = Slot(key)
            return
        self.batch = node.meta["val"].shape[0]
        shape = tuple(int(size) for size in node.meta["val"].shape[1:])
        self.nodes.append(Node(node.name, "input", "input", (), shape, _unused))
        self.known[node] = Data(node.name)

    def _tensor(self, key: str) -> Tensor:
        stores = (self.program.state_dict, self.program.constants)
        name = key.removeprefix("constant:")
        return next(store[name] for store in stores if name in store)

    def _promote(self, tensor: Tensor) -> Tensor:
        tensor = tensor.detach().to("cpu", copy=True)
        return tensor.to(self.dtype) if tensor.is_floating_point() else tensor

    def _finite(self, key: str) -> Tensor:
        tensor = self.parameters[key]
        if not bool(torch.isfinite(tensor).all()):
            bad = "NaN" if bool(torch.isnan(tensor).any()) else "infinite"
            raise TraceError(f"{key} holds {bad} values; a network with finite weights is needed")
        return tensor

    def _output(self, names: Any) -> str:
        results = [self.known[node] for node in self.known if node.name in names]
        if len(names) != 1 or len(results) != 1 or not isinstance(results[0], Data):
            raise TraceError(f"the network must return one tensor computed from its input, got {len(names)} values")
        return results[0].name

    def _call(self, node: fx.Node) -> Any:
        if not isinstance(node.meta.get("val"), (Tensor, tuple, list)):
            return _SYMBOL
        name = operator_name(node)
        if node.target is operator.getitem:
            return self._piece(node)
        data = [known for known in map(self.known.get, node.all_input_nodes) if isinstance(known, (Data, _Pieces))]
        if not data:
            return self._constant(node, name)
        call = self._read(node, name)
        if name in operations.PIECES:
            return self._pieces(call)
        return self._append(node, call)

    def _constant(self, node: fx.Node, name: str) -> Any:
        """A tensor that does not depend on the input: computed now, kept as a parameter of its own."""
        value = node.meta["val"]
        if name in operations.FILLS and value.ndim and self._is_batch(value.shape[0]):
            return self._append(node, self._read(node, name), inputs=(self.nodes[0].name,))
        args, kwargs = fx.node.map_arg((node.args, node.kwargs), lambda n: self._value(n))
        keys = [self.known[n].key for n in node.all_input_nodes]
        key = f"{'constant' if all(k.startswith('constant:') for k in keys) else 'derived'}:{node.name}"
        self.parameters[key] = self._promote(node.target(*args, **kwargs))  # type: ignore[operator]
        return Slot(key)

    def _value(self, node: fx.Node) -> Any:
        known = self.known[node]
        if known is _SYMBOL:
            raise TraceError(f"{node.name} depends on the batch size; write it for any number of points")
        return self.parameters[known.key]

    def _is_batch(self, size: Any) -> bool:
        return str(size) == str(self.batch)

    def _read(self, node: fx.Node, name: str) -> Call:
        """The call with its arguments named by the operator's schema: values, slots for parameters, sizes dropped."""
        schema = node.target._schema  # type: ignore[union-attr]
        given = dict(zip((a.name for a in schema.arguments), node.args, strict=False)) | dict(node.kwargs)
        arguments = {a.name: given.get(a.name, a.default_value) for a in schema.arguments}
        resolve = lambda n: self.known[n] if self.known[n] is not _SYMBOL else None  # noqa: E731
        arguments = {key: fx.node.map_arg(value, resolve) for key, value in arguments.items()}
        return Call(name, node.target, arguments, self._shape(node), module_path(node), node.name)

    def _shape(self, node: fx.Node) -> tuple[int, ...]:
        value = node.meta["val"]
        value = value if isinstance(value, Tensor) else value[0]
        if value.ndim == 0 or not self._is_batch(value.shape[0]):
            raise TraceError(f"{self._place(node)} moves or mixes the batch axis; keep one row per point")
        return tuple(int(size) for size in value.shape[1:])

    def _place(self, node: fx.Node) -> str:
        return f"{operator_name(node)} in layer {module_path(node) or '(network)'}"

    def _append(self, node: fx.Node, call: Call, inputs: tuple[str, ...] | None = None) -> Data:
        inputs = call.inputs() if inputs is None else inputs
        shapes = {name: next(n.shape for n in self.nodes if n.name == name) for name in inputs}
        try:
            made = self.read(call, shapes)
        except operations.Unsupported as reason:
            raise TraceError(f"{self._place(node)} is not supported: {reason}") from None
        self.nodes.append(_node(call, made, inputs))
        return Data(call.node)

    def _pieces(self, call: Call) -> _Pieces:
        source = call.inputs()[0]
        shape = next(n.shape for n in self.nodes if n.name == source)
        dim = call.arguments["dim"] % (len(shape) + 1)
        return _Pieces(source, operations.piece_bounds(call, shape[dim - 1]), dim)

    def _piece(self, node: fx.Node) -> Any:
        source, index = self.known[node.args[0]], node.args[1]  # type: ignore[index]
        if isinstance(source, Data):  # batch norm gives (value, unused, unused); a max with indices likewise
            return source
        start, stop = source.bounds[index]
        arguments = {"self": Data(source.source), "dim": source.dim, "start": start, "end": stop, "step": 1}
        call = Call("slice", torch.ops.aten.slice.Tensor, arguments, self._shape(node), module_path(node), node.name)
        return self._append(node, call)


def module_path(node: fx.Node) -> str:
    """Path of the innermost module that ran the node; empty for the network itself."""
    stack = list((node.meta.get("nn_module_stack") or {}).values())
    return str(stack[-1][0]) if stack else ""


def _unused(*_: Any) -> Tensor:
    raise AssertionError("the input is given, not computed")


def _node(call: Call, made: Affine | Fold | Max | Smooth, inputs: tuple[str, ...]) -> Node:
    lists = {key: value for key, value in call.arguments.items() if isinstance(value, (list, tuple))}
    leaves = [(f"{key}.{i}", item) for key, items in lists.items() for i, item in enumerate(items)]
    leaves += call.arguments.items()
    holds_tensor = {key.split(".")[0] for key, value in leaves if isinstance(value, (Data, Slot))}
    return Node(
        name=call.node,
        op=made.op,
        role=made.role,
        inputs=inputs,
        shape=call.shape,
        apply=made.apply,
        bound=made.bound if isinstance(made, Affine) else None,
        path=call.path,
        parameters={key: value.key for key, value in leaves if isinstance(value, Slot)},
        attributes={key: value for key, value in call.arguments.items() if key not in holds_tensor},
        kinks=made.kinks if isinstance(made, (Fold, Smooth)) else (),
        windows=made.windows if isinstance(made, Max) else None,
    )
