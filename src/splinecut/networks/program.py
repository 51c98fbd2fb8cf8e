"""A network as a list of steps that can be run one by one, from any step, with other weights.

The steps are those of the exported program, in an order in which a residual stream is known before the last layer of
the branch that is added to it. All weights stay at full size: a unit that is removed is one that is read with weight
zero, so that one program serves the dense network and every network cut from it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from torch import Tensor, fx, nn
from torch.utils._pytree import tree_leaves

from splinecut.errors import InputError
from splinecut.networks.export import canonical_names, export, named_arguments, table_name
from splinecut.networks.inputs import Arguments, batches, count, to_model
from splinecut.networks.model_state import evaluating

Values = dict[fx.Node, Any]
Weights = Mapping[str, Tensor]
_CONVOLUTIONS = (
    "conv1d",
    "conv2d",
    "conv3d",
    "conv_transpose1d",
    "conv_transpose2d",
    "conv_transpose3d",
    "convolution",
)
_NORMS = ("batch_norm", "_native_batch_norm_legit_no_training")


@dataclass(frozen=True, eq=False)
class Norm:
    """A batch norm in eval mode: the step, and the names of its tensors (None where it has none)."""

    node: fx.Node
    weight: str | None
    bias: str | None
    mean: str
    var: str
    eps: float

    def scale(self, weights: Weights) -> Tensor:
        """(channels,) what it multiplies by."""
        spread = torch.rsqrt(weights[self.var] + self.eps)
        return spread * weights[self.weight] if self.weight else spread


@dataclass(frozen=True, eq=False)
class Layer:
    """A linear layer or convolution that multiplies a value by a parameter.

    norm:   the batch norm that alone reads it.
    stream: what its output (behind the norm) is added to, if that does not depend on the layer itself.
    """

    key: str
    node: fx.Node
    arguments: Mapping[str, Any]
    bias: str | None
    norm: Norm | None
    stream: fx.Node | None

    @property
    def source(self) -> fx.Node:
        return self.arguments["input"]

    @property
    def is_linear(self) -> bool:
        return table_name(self.node) == "linear"

    @property
    def is_transposed(self) -> bool:
        return bool(self.arguments.get("transposed")) or table_name(self.node).startswith("conv_transpose")

    @property
    def groups(self) -> int:
        return int(self.arguments.get("groups", 1))


class Program:
    """The exported network: `steps` in order, `layers` by weight name, `norms` that no layer owns."""

    def __init__(self, model: nn.Module, arguments: Arguments, batch: int) -> None:
        """Reads `model` on `batch` rows of the arguments; it then runs on exactly so many at a time."""
        self.model, self.batch = model, min(batch, count(arguments))
        with evaluating(model), torch.random.fork_rng(devices=[]):
            first = to_model(next(batches(arguments, self.batch)), model)
            program = export(model, first, any_batch=False)
        signature, names = program.graph_signature, canonical_names(model)
        tensors = {**signature.inputs_to_parameters, **signature.inputs_to_buffers}
        constants = signature.inputs_to_lifted_tensor_constants
        nodes = list(program.graph.nodes)
        self.keys = {n: names.get(tensors[n.name], tensors[n.name]) for n in nodes if n.name in tensors}
        self._constants = {n: program.constants[constants[n.name]] for n in nodes if n.name in constants}
        given = [n for n in nodes if n.op == "placeholder" and n not in self.keys and n not in self._constants]
        self.inputs = given
        self.output = _output(nodes[-1], self.batch)
        # Buffers that are no part of the state_dict stand among the constants of the program.
        own = {**dict(model.named_parameters()), **dict(model.named_buffers())}
        self.weights: dict[str, Tensor] = {key: own[key].detach() for key in self.keys.values() if key in own}
        self.weights |= {key: program.constants[key] for key in self.keys.values() if key not in own}
        steps = [n for n in nodes if n.op in ("call_function", "get_attr")]
        self._owner = program.graph_module
        self.layers = self._layers(steps)
        self.steps = self._ordered(steps)
        self.place = {node: place for place, node in enumerate(self.steps)}
        owned = {layer.norm.node for layer in self.layers.values() if layer.norm}
        self.norms = [norm for n in self.steps if n not in owned and (norm := self._norm(n)) is not None]
        self._last = {source: place for place, n in enumerate(self.steps) for source in n.all_input_nodes}
        self._last[self.output] = len(self.steps)

    def _layers(self, steps: list[fx.Node]) -> dict[str, Layer]:
        """Layers by the name of their weight; of a weight that is used twice the first use."""
        layers: dict[str, Layer] = {}
        before: frozenset[fx.Node] = frozenset()  # layers that run earlier
        for node in steps:
            if node.op != "call_function" or table_name(node) not in ("linear", *_CONVOLUTIONS):
                continue
            arguments = named_arguments(node)
            key = self.keys.get(arguments["weight"])
            if key is None or key in layers:
                continue
            bias = self.keys.get(arguments["bias"]) if isinstance(arguments["bias"], fx.Node) else None
            norm, end = self._norm_behind(node)
            layers[key] = Layer(key, node, arguments, bias, norm, _stream(node, end, before))
            before |= {node}
        return layers

    def _norm(self, node: fx.Node) -> Norm | None:
        if node.op != "call_function" or table_name(node) not in _NORMS:
            return None
        a = named_arguments(node)
        mean, var = self.keys.get(a["running_mean"]), self.keys.get(a["running_var"])
        if mean is None or var is None:
            return None  # normalises by the batch
        weight, bias = (self.keys.get(a[n]) if isinstance(a[n], fx.Node) else None for n in ("weight", "bias"))
        return Norm(node, weight, bias, mean, var, float(a["eps"]))

    def _norm_behind(self, node: fx.Node) -> tuple[Norm | None, fx.Node]:
        """The batch norm that alone reads `node`, and the node that holds its result."""
        users = list(node.users)
        norm = self._norm(users[0]) if len(users) == 1 and users[0].args[0] is node else None
        if norm is None:
            return None, node
        results = list(norm.node.users)
        if table_name(norm.node) == "batch_norm":
            return norm, norm.node
        return norm, next((n for n in results if n.args[1] == 0), norm.node)  # a tuple: getitem takes the value

    def _ordered(self, steps: list[fx.Node]) -> list[fx.Node]:
        """The steps in an order in which a layer's stream comes before it."""
        streams = {layer.node: layer.stream for layer in self.layers.values() if layer.stream is not None}
        order: dict[fx.Node, None] = {}
        for last in steps:
            waiting = [last]
            while waiting:  # depth first without recursion: a ResNet-110 is deeper than Python's stack
                node = waiting[-1]
                needed = [*node.all_input_nodes, *([streams[node]] if node in streams else [])]
                missing = [n for n in needed if n not in order and n.op in ("call_function", "get_attr")]
                if node in order or not missing:
                    order.setdefault(node)
                    waiting.pop()
                else:
                    waiting.append(missing[-1])
        return list(order)

    def chunks(self, arguments: Arguments) -> Iterator[tuple[int, Values]]:
        """(rows that count, values of the inputs) for each batch; the last batch is filled up with its last row."""
        total = count(arguments)
        # As `batches` splits: what is passed on whole is not filled up, whatever its length.
        is_split = [isinstance(v, Tensor) and v.ndim > 0 and len(v) == total for v in arguments]
        for part in batches(arguments, self.batch):
            moved, n_missing = to_model(part, self.model), self.batch - count(part)
            full = [_filled(v, n_missing) if split else v for v, split in zip(moved, is_split, strict=True)]
            yield count(part), dict(zip(self.inputs, tree_leaves(full), strict=False))

    def run(self, values: Values, start: int, stop: int, weights: Weights) -> Values:
        """Runs steps `start` to `stop` on `values`, in place; what no later step reads is dropped."""
        for place in range(start, stop):
            node = self.steps[place]
            if node.op == "get_attr":
                values[node] = getattr(self._owner, str(node.target))
                continue
            args, kwargs = fx.node.map_arg((node.args, node.kwargs), lambda n: self._value(n, values, weights))
            values[node] = node.target(*args, **kwargs)  # type: ignore[operator]
            for source in node.all_input_nodes:
                if self._last.get(source) == place:
                    values.pop(source, None)
        return values

    def _value(self, node: fx.Node, values: Values, weights: Weights) -> Any:
        if node in values:
            return values[node]
        return weights[self.keys[node]] if node in self.keys else self._constants[node]

    def outputs(self, values: Values, start: int, weights: Weights) -> Tensor:
        """The network's output from step `start` on."""
        return self.run(values, start, len(self.steps), weights)[self.output]

    @cached_property
    def bytes_per_input(self) -> int:
        """The most that must be kept of one input where the program is stopped at a layer or a batch norm."""
        live, most = 0, 0
        stops = {layer.node for layer in self.layers.values()} | {norm.node for norm in self.norms}
        for place, node in enumerate(self.steps):
            most = max(most, live) if node in stops else most
            live += _bytes(node)
            live -= sum(_bytes(source) for source in set(node.all_input_nodes) if self._last.get(source) == place)
        return max(1, most // self.batch)


def _output(node: fx.Node, batch: int) -> fx.Node:
    """The first floating-point output with one row for each input."""
    for result in node.args[0]:  # type: ignore[union-attr]
        value = result.meta.get("val") if isinstance(result, fx.Node) else None
        if isinstance(value, Tensor) and value.is_floating_point() and value.ndim and value.shape[0] % batch == 0:
            assert isinstance(result, fx.Node)
            return result
    raise InputError("the network must have a floating-point output with one row for each input, got none")


def _stream(node: fx.Node, end: fx.Node, before: frozenset[fx.Node]) -> fx.Node | None:
    """What `end`, the result of layer `node`, is added to; None where it is not, or where that cannot be known before.

    Of two layers that are added, the later one has the earlier for a stream: the other way round each would wait for
    the other. A shortcut without layers may be computed after the branch; it is moved before it.
    """
    users = list(end.users)
    if len(users) != 1 or table_name(users[0]) != "add" or users[0].kwargs.get("alpha", 1) != 1:
        return None
    added = [other for other in users[0].args[:2] if other is not end]
    if len(added) != 1 or not isinstance(added[0], fx.Node):
        return None
    value, own = added[0].meta.get("val"), end.meta.get("val")
    if not isinstance(value, Tensor) or not isinstance(own, Tensor) or value.shape != own.shape:
        return None
    seen, waiting = set[fx.Node](), [added[0]]
    while waiting:
        one = waiting.pop()
        is_layer = one.op == "call_function" and table_name(one) in ("linear", *_CONVOLUTIONS)
        if one is node or (is_layer and one not in before):
            return None
        if one not in seen:
            seen.add(one)
            waiting += one.all_input_nodes
    return added[0]


def _filled(value: Tensor, n_missing: int) -> Tensor:
    return torch.cat([value, value[-1:].expand(n_missing, *value.shape[1:])]) if n_missing else value


def _bytes(node: fx.Node) -> int:
    value = node.meta.get("val")
    parts = value if isinstance(value, tuple | list) else [value]
    is_owned = node.op == "call_function" and not getattr(node.target, "is_view", False)
    return sum(p.numel() * p.element_size() for p in parts if isinstance(p, Tensor)) if is_owned else 0
