"""A module as the program torch.export reads it, and what nodes of that program say about themselves.

`trace` (geometry) and `groups.label_pass` (channel groups) both walk such a program: operator names, arguments, module
paths and tensor names are read here, once for both.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch import fx, nn

from splinecut.errors import InputError


class TraceError(InputError):
    """The network cannot be read as one graph; the message names the operation and its layer."""


def export(model: nn.Module, inputs: tuple[Any, ...], any_batch: bool = True) -> torch.export.ExportedProgram:
    """The network as torch.export reads it, without in-place operations; `any_batch` leaves axis 0 free."""
    shapes = tuple({0: torch.export.Dim.AUTO} for _ in inputs) if any_batch else None
    try:
        with warnings.catch_warnings(), torch.no_grad():
            warnings.simplefilter("ignore")
            program = torch.export.export(model, inputs, dynamic_shapes=shapes)
            # Only where something is written in place: decomposing also renames other operators (batch_norm, flatten).
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


def operator_name(node: fx.Node) -> str:
    """ "relu" for aten.relu.default; in-place forms end in an underscore."""
    schema = getattr(node.target, "_schema", None)
    return schema.name.split("::")[-1] if schema else getattr(node.target, "__name__", str(node.target))


def table_name(node: fx.Node) -> str:
    """The name under which the operator table lists the node: in-place forms are listed with their plain form."""
    return operator_name(node).rstrip("_")


def spatial_axes(name: str) -> int:
    """2 for "max_pool2d_with_indices": how many axes a pooling, padding or upsampling operator works along."""
    match = re.search(r"([123])d", name)
    assert match is not None, name
    return int(match[1])


def module_path(node: fx.Node) -> str:
    """Path of the innermost module that ran the node; empty for the network itself."""
    stack = list((node.meta.get("nn_module_stack") or {}).values())
    return str(stack[-1][0]) if stack else ""


def place(node: fx.Node) -> str:
    """The operation and the layer it runs in, for messages."""
    return f"{operator_name(node)} in layer {module_path(node) or '(network)'}"


def named_arguments(node: fx.Node) -> dict[str, Any]:
    """What the node was called with, by the operator's own argument names, defaults included."""
    schema = node.target._schema.arguments  # type: ignore[union-attr]
    given = dict(zip((a.name for a in schema), node.args, strict=False)) | dict(node.kwargs)
    return {a.name: given.get(a.name, a.default_value) for a in schema}


def canonical_names(model: nn.Module) -> dict[str, str]:
    """Every name of every parameter and buffer -> the first name of the same tensor (tied ones have several)."""
    first: dict[int, str] = {}
    tensors = [*model.named_parameters(remove_duplicate=False), *model.named_buffers(remove_duplicate=False)]
    return {name: first.setdefault(id(tensor), name) for name, tensor in tensors}


def piece_bounds(name: str, arguments: Mapping[str, Any], length: int) -> tuple[tuple[int, int], ...]:
    """Where `chunk` or `split` with these arguments cuts an axis of the given length: (start, stop) of each piece."""
    if name == "chunk":
        step = -(-length // arguments["chunks"])
    elif isinstance(sizes := arguments.get("split_size", arguments.get("split_sizes")), int):
        step = sizes
    else:
        ends = np.cumsum(sizes).tolist()
        return tuple(zip([0, *ends[:-1]], ends, strict=True))
    return tuple((start, min(start + step, length)) for start in range(0, length, step))
