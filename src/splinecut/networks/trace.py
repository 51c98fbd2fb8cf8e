"""Traces an `nn.Module` in eval mode into a `Graph` of affine, folding and max steps.

The network is traced by torch.export, so `nn.ReLU`, `F.relu` and `x.relu()` are one operation. Parameters are
promoted to float64 copies; the network itself is left as found. What is not piecewise affine is refused by name.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor, fx, nn

from splinecut.geometry.graph import Graph, Node
from splinecut.networks.export import TraceError as TraceError
from splinecut.networks.export import export, module_path, named_arguments, place, table_name
from splinecut.networks.operators import table
from splinecut.networks.operators.calls import (
    Affine,
    Fold,
    Max,
    OpCall,
    ParameterRef,
    Pieces,
    Shape,
    Smooth,
    Unsupported,
    ValueRef,
)

_Reader = Callable[[OpCall, Mapping[str, Shape]], Affine | Fold | Max | Pieces | Smooth]
_BATCH = 5  # of the example that is traced: a size that hardly equals a feature count by accident


def trace(model: nn.Module, example: Tensor, dtype: torch.dtype = torch.float64, smooth: bool = False) -> Graph:
    """The graph of `model`, which must be in eval mode, take one tensor and return one.

    example: (batch, *input); only its shape is used. The graph runs on batches of any size.
    smooth:  let pass what is not piecewise affine, for activation codes of networks with GELU and its kin.
    """
    _refuse_training(model)
    batch = _example(model, example)
    program = export(model, (batch,))
    graph = _Builder(program, dtype, table.read_with_smooth if smooth else table.read).build()
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


def _check(model: nn.Module, graph: Graph, batch: Tensor) -> None:
    """One forward pass at another batch size: what the trace froze by mistake shows here."""
    # Another size than the example: a program that recorded it gives a wrong shape or value here.
    points = batch[: _BATCH - 2]
    with torch.no_grad():
        expected = model(points).to("cpu", torch.float64)
        got = graph.run(points.to("cpu", next(iter(graph.parameters.values()), batch).dtype)).double()
    slack = 1e-2 if batch.dtype in (torch.float16, torch.bfloat16) else 1e-4
    if got.shape != expected.shape or not torch.allclose(got, expected, rtol=slack, atol=slack * expected.abs().max()):
        raise TraceError("the trace disagrees with the network at another batch size; do not mix points of a batch")


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
            self.known[node] = ParameterRef(key)
            return
        self.batch = node.meta["val"].shape[0]
        shape = tuple(int(size) for size in node.meta["val"].shape[1:])
        self.nodes.append(Node(node.name, "input", "input", (), shape, _unused))
        self.known[node] = ValueRef(node.name)

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
        if len(names) != 1 or len(results) != 1 or not isinstance(results[0], ValueRef):
            raise TraceError(f"the network must return one tensor computed from its input, got {len(names)} values")
        return results[0].name

    def _call(self, node: fx.Node) -> Any:
        if not isinstance(node.meta.get("val"), (Tensor, tuple, list)):
            return _SYMBOL
        if node.target is operator.getitem:
            return self._piece(node)
        if not any(isinstance(self.known.get(source), (ValueRef, Pieces)) for source in node.all_input_nodes):
            return self._constant(node)
        return self._append(node, self._op_call(node))

    def _constant(self, node: fx.Node) -> Any:
        """A tensor that does not depend on the input: computed now, kept as a parameter of its own."""
        value = node.meta["val"]
        is_fill = table.op_of(table_name(node)) == "constant" and "self" not in named_arguments(node)
        if is_fill and value.ndim and self._is_batch(value.shape[0]):
            # One row per point: it needs the batch at hand, so it is a step that reads the input.
            return self._append(node, self._op_call(node), inputs=(self.nodes[0].name,))
        args, kwargs = fx.node.map_arg((node.args, node.kwargs), lambda n: self._value(n))
        keys = [self.known[n].key for n in node.all_input_nodes]
        # "derived" depends on parameters and goes stale when they are exchanged (`Graph.with_state`).
        key = f"{'constant' if all(k.startswith('constant:') for k in keys) else 'derived'}:{node.name}"
        self.parameters[key] = self._promote(node.target(*args, **kwargs))  # type: ignore[operator]
        return ParameterRef(key)

    def _value(self, node: fx.Node) -> Any:
        ref = self.known[node]
        if ref is _SYMBOL:
            raise TraceError(f"{node.name} depends on the batch size; write it for any number of points")
        return self.parameters[ref.key]

    def _is_batch(self, size: Any) -> bool:
        # As text: `==` on symbolic sizes asks the shape solver, which may settle on the example's own batch size.
        return str(size) == str(self.batch)

    def _op_call(self, node: fx.Node) -> OpCall:
        """The call with references for values and parameters in its arguments; sizes are dropped."""
        resolve = lambda n: self.known[n] if self.known[n] is not _SYMBOL else None  # noqa: E731
        arguments = {key: fx.node.map_arg(value, resolve) for key, value in named_arguments(node).items()}
        return OpCall(table_name(node), node.target, arguments, self._shape(node), module_path(node), node.name)

    def _shape(self, node: fx.Node) -> Shape:
        value = node.meta["val"]
        value = value if isinstance(value, Tensor) else value[0]
        if value.ndim == 0 or not self._is_batch(value.shape[0]):
            raise TraceError(f"{place(node)} moves or mixes the batch axis; keep one row per point")
        return tuple(int(size) for size in value.shape[1:])

    def _append(self, node: fx.Node, call: OpCall, inputs: tuple[str, ...] | None = None) -> ValueRef | Pieces:
        inputs = call.inputs() if inputs is None else inputs
        shapes = {name: next(n.shape for n in self.nodes if n.name == name) for name in inputs}
        try:
            step = self.read(call, shapes)
        except Unsupported as reason:
            raise TraceError(f"{place(node)} is not supported: {reason}") from None
        if isinstance(step, Pieces):
            return step
        self.nodes.append(_node(call, step, inputs))
        return ValueRef(call.node)

    def _piece(self, node: fx.Node) -> Any:
        source, index = self.known[node.args[0]], node.args[1]  # type: ignore[index]
        if isinstance(source, ValueRef):  # batch norm gives (value, unused, unused); a max with indices likewise
            return source
        start, stop = source.bounds[index]
        arguments = {"self": ValueRef(source.source), "dim": source.dim, "start": start, "end": stop, "step": 1}
        target = torch.ops.aten.slice.Tensor
        return self._append(node, OpCall("slice", target, arguments, self._shape(node), module_path(node), node.name))


def _unused(*_: Any) -> Tensor:
    raise AssertionError("the input is given, not computed")


def _node(call: OpCall, step: Affine | Fold | Max | Smooth, inputs: tuple[str, ...]) -> Node:
    lists = {key: value for key, value in call.arguments.items() if isinstance(value, (list, tuple))}
    leaves = [(f"{key}.{i}", item) for key, items in lists.items() for i, item in enumerate(items)]
    leaves += call.arguments.items()
    holds_tensor = {key.split(".")[0] for key, value in leaves if isinstance(value, (ValueRef, ParameterRef))}
    return Node(
        name=call.node,
        op=table.op_of(call.name),
        role=step.role,
        inputs=inputs,
        shape=call.shape,
        apply=step.apply,
        bound=step.bound if isinstance(step, Affine) else None,
        path=call.path,
        parameters={key: value.key for key, value in leaves if isinstance(value, ParameterRef)},
        attributes={key: value for key, value in call.arguments.items() if key not in holds_tensor},
        kinks=step.kinks if isinstance(step, (Fold, Smooth)) else (),
        windows=step.windows if isinstance(step, Max) else None,
    )
