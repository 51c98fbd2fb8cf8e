"""One pass over the exported program that ties labels of channels, operator by operator.

Operators that only move entries are run on the labels themselves. Layers that read or make units tie the labels of
their weights to those of their values. `operators.table` names the rule of each operator; what has none is frozen.
"""

from __future__ import annotations

import operator
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Int64
from torch import Tensor, fx, nn

from splinecut.networks.export import (
    TraceError,
    canonical_names,
    module_path,
    named_arguments,
    place,
    table_name,
)
from splinecut.networks.groups.labels import CONSTANT, INPUT, Labels, Ties, constant
from splinecut.networks.groups.values import Role
from splinecut.networks.layers import Select
from splinecut.networks.operators.table import BY_NAME

_STRENGTH: tuple[Role, ...] = ("follower", "producer", "selector", "pointer", "consumer")


@dataclass(frozen=True)
class Maker:
    """A layer (or a selector) that makes units, and the tensor axis whose labels they carry."""

    path: str
    key: str
    axis: int
    bias: str | None = None
    is_selector: bool = False


class LabelPass:
    """One pass over an exported program; afterwards `ties` knows which positions of which parameters go together."""

    def __init__(self, program: torch.export.ExportedProgram, model: nn.Module, residual: str, batch: int = 1) -> None:
        self.program, self.model, self.residual = program, model, residual
        self.batch = batch  # how many inputs the program was exported with
        self.stream_stays = f"it belongs to a residual stream, which residual={residual!r} leaves whole"
        if residual == "select" and not any(isinstance(module, Select) for module in model.modules()):
            self.stream_stays += " (the network has no Select modules)"
        self.parameters = {name for name, _ in model.named_parameters()}
        self.ties = Ties()
        self.values: dict[fx.Node, Any] = {}
        self.keys: dict[fx.Node, str] = {}
        self.depends: set[fx.Node] = set()  # nodes whose value depends on the network's input
        self.as_value: dict[str, Labels] = {}  # parameters that are added, multiplied, concatenated
        self.roles: dict[tuple[str, int], Role] = {}
        self.makers: list[Maker] = []
        self.produced_by: dict[fx.Node, str] = {}  # node -> key of the weight that made it
        self.norm_of: dict[fx.Node, str] = {}  # node -> path of the batch norm it comes out of
        self.norm_after: dict[str, str] = {}  # weight -> batch norm that reads what it makes; index -> the one it reads
        self.points_at: dict[str, Int64[Tensor, " channels"]] = {}  # index -> labels of the axis it points into
        self.whole: dict[str, str] = {}  # layers whose parameters no rule could read, and why
        self.uses: dict[str, int] = {}
        self.is_priced = True  # whether `uses` is all there is to FLOPs: nothing without a rule was met

    def run(self) -> LabelPass:
        names = canonical_names(self.model)
        signature = self.program.graph_signature
        keys = {**signature.inputs_to_parameters, **signature.inputs_to_buffers}
        for node in self.program.graph.nodes:
            _refuse_data_dependent(node)
            if node.op == "placeholder":
                self._placeholder(node, names.get(keys.get(node.name, "")))
            elif node.op == "call_function":
                self.depends |= {node} if self.depends.intersection(node.all_input_nodes) else set()
                self.values[node] = self._call(node)
        for node in self.values:
            if node.name in signature.user_outputs:
                for labels in _each(self.values[node]):
                    self.ties.freeze(labels, "it is the network's output")
        return self

    def _placeholder(self, node: fx.Node, key: str | None) -> None:
        value = node.meta.get("val")
        if key is not None:
            self.keys[node] = key
        elif isinstance(value, Tensor):
            is_input = node.name in self.program.graph_signature.user_inputs
            self.values[node] = constant(INPUT if is_input else CONSTANT, value.shape)
            if is_input:
                self.depends.add(node)

    def _call(self, node: fx.Node) -> Any:
        if node.target is operator.getitem:
            source: Any = node.args[0]
            index: Any = node.args[1]
            self.norm_of |= {node: self.norm_of[source]} if source in self.norm_of else {}
            value = self.values[source]
            return value[index] if isinstance(value, (tuple, list)) else value
        if node.meta.get("val") is None or not any(isinstance(v, Tensor) for v in _each(node.meta["val"])):
            return None
        # Constants alone (masks, ranges): nothing in them can leave, and no rule need be known.
        if not any(n in self.keys or n in self.depends for n in self._sources(node)):
            return _like(node.meta["val"], CONSTANT)
        row = BY_NAME.get(table_name(node))
        return row.couple(self, node, named_arguments(node)) if row and row.couple else self.freeze_all(node)

    def _sources(self, node: fx.Node) -> Iterable[fx.Node]:
        """The nodes this one reads, and the parameters behind those that depend on parameters alone."""
        seen, queue = set(), list(node.all_input_nodes)
        while queue:
            source = queue.pop()
            if source not in seen:
                seen.add(source)
                queue += [] if source in self.depends else source.all_input_nodes
        return seen

    def labels(self, node: fx.Node) -> Labels:
        """The labels of a value; a parameter that is used as one gets a label for every entry."""
        if node not in self.keys:
            return self.values[node]
        key = self.keys[node]
        if key not in self.as_value:
            shape = node.meta["val"].shape
            self.as_value[key] = self.ties.fresh(shape.numel()).view(shape)
        return self.as_value[key]

    def key(self, node: Any) -> str | None:
        """The name of the parameter or buffer that `node` is; None for anything computed."""
        return self.keys.get(node) if isinstance(node, fx.Node) else None

    def weight(self, node: Any) -> str | None:
        """The name of the parameter that `node` is; None for anything else, buffers included."""
        key = self.key(node)
        return key if key in self.parameters else None

    def axis_labels(self, node: Any, axis: int, role: Role) -> Int64[Tensor, " length"]:
        """The labels of one axis of the parameter that `node` is, and the part it plays."""
        key = self.keys[node]
        old = self.roles.get((key, axis), role)
        # A tied weight may play several roles; reading units is what masking must know of.
        self.roles[key, axis] = max(old, role, key=_STRENGTH.index)
        return self.ties.axis_labels(key, axis, node.meta["val"].shape[axis])

    def module(self, node: fx.Node) -> nn.Module:
        """The innermost module that ran the node."""
        return self.model.get_submodule(module_path(node))

    def makes(self, node: fx.Node, weight: fx.Node, axis: int, bias: Any) -> None:
        """Notes that the units of `node` are those of an axis of `weight`."""
        key = self.keys[weight]
        self.produced_by[node] = key
        # A layer that runs twice makes the same units twice.
        if not any(maker.key == key for maker in self.makers):
            self.makers.append(Maker(key.rpartition(".")[0] or key, key, axis, self.key(bias)))

    def selects(self, source: fx.Node, index: fx.Node, channels: Int64[Tensor, " channels"]) -> None:
        """Notes that the entries of `index` are units; `channels` has the label that picks each channel, or -1."""
        key = self.keys[index]
        self.points_at[key] = channels
        self.norm_after |= {key: self.norm_of[source]} if source in self.norm_of else {}
        self.makers.append(Maker(key.rpartition(".")[0] or key, key, 0, is_selector=True))

    def charge(self, weight: fx.Node, value: fx.Node, channels: int) -> None:
        """Counts how often one input's forward pass multiplies by `weight`: once per position of `value`."""
        # Rounded up: what is computed once for the whole batch counts as once for each input.
        positions = -(-value.meta["val"].numel() // max(1, channels * self.batch))
        self.uses[self.keys[weight]] = self.uses.get(self.keys[weight], 0) + positions

    def freeze_all(self, node: fx.Node, reason: str | None = None) -> Any:
        """For operators without a rule: nothing they read or give can be removed."""
        self.is_priced = False
        is_random = torch.Tag.nondeterministic_seeded in getattr(node.target, "tags", ())
        reason = reason or f"{place(node)} {'draws random numbers for' if is_random else 'mixes'} its units"
        if any(source in self.keys for source in self._sources(node)):
            self.whole.setdefault(module_path(node) or node.name, reason)
        for source in node.all_input_nodes:
            if source not in self.keys and source not in self.values:
                continue  # the body of a higher-order operator, such as a block under autocast
            for labels in _each(self.labels(source)):
                self.ties.freeze(labels, reason)
        # A label of its own for all it gives: what reads it is frozen for this reason, not tied to other frozen values.
        fresh = self.ties.fresh(1)
        self.ties.freeze(fresh, reason)
        return _like(node.meta["val"], int(fresh))


def _refuse_data_dependent(node: fx.Node) -> None:
    value = node.meta.get("val")
    for tensor in [value] if isinstance(value, Tensor) else value if isinstance(value, (tuple, list)) else ():
        if isinstance(tensor, Tensor) and not all(isinstance(length, int) for length in tensor.shape):
            raise TraceError(
                f"{place(node)} gives a shape that depends on the data, so there is no one graph; "
                "give the part of the network before it"
            )


def _each(value: Any) -> Iterable[Any]:
    if isinstance(value, (tuple, list)):
        return [item for item in value if isinstance(item, Tensor)]
    return [value] if isinstance(value, Tensor) else []


def _like(value: Any, label: int) -> Any:
    if isinstance(value, (tuple, list)):
        return tuple(_like(item, label) for item in value)
    return constant(label, value.shape) if isinstance(value, Tensor) else None
