"""Saves and loads cut networks as safetensors; loading cuts a full-size network to the shapes in the file."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from splinecut.errors import InputError, unknown
from splinecut.files import write_atomically
from splinecut.networks.export import canonical_names
from splinecut.networks.layers import Zero
from splinecut.networks.model_state import unwrapped
from splinecut.networks.surgery.finite import check_saved
from splinecut.networks.surgery.module_sizes import resize

SCHEMA = 1
_HEADER = "splinecut"


def save(model: nn.Module, path: str | Path) -> Path:
    """Writes parameters and buffers of `model`, cut or not, as safetensors; a file that cannot run code.

    Tied parameters are written once. Read it with `load`, giving the network as it was built, before any cut.
    A network that holds NaN, or infinite parameters, is refused.
    """
    from safetensors.torch import save as to_bytes

    model = unwrapped(model)
    check_saved(model)
    names = canonical_names(model)
    tensors = {name: tensor for name, tensor in _tensors(model).items() if names[name] == name}
    dropped = [name for name, module in model.named_modules() if isinstance(module, Zero)]
    header = {"schema": SCHEMA, "kind": "model", "names": names, "dropped": dropped}
    for name, tensor in tensors.items():
        if tensor.dtype == torch.complex128:
            raise InputError(f"{name} is complex128, which safetensors cannot hold; use complex64")
    data = to_bytes(
        {name: tensor.detach().cpu().contiguous().clone() for name, tensor in tensors.items()},
        metadata={_HEADER: json.dumps(header)},
    )
    return write_atomically(path, lambda file: file.write_bytes(data))


def load(path: str | Path, model: nn.Module) -> nn.Module:
    """A copy of `model`, which has full size, cut to the shapes in the file and filled with its values.

    Precision and device are those of `model`; so are mode, hooks and requires_grad.
    """
    header, stored = _read(Path(path))
    model = unwrapped(model)
    _check_names(path, model, header)
    memo: dict[int, Any] = {}
    for name, tensor in _tensors(model).items():
        if name in header["names"] and id(tensor) not in memo:
            memo[id(tensor)] = _filled(path, name, tensor, stored[header["names"][name]])
    smaller = copy.deepcopy(model, memo)
    for name in header["dropped"]:
        parent, _, last = name.rpartition(".")
        setattr(smaller.get_submodule(parent), last, Zero())
    for module in smaller.modules():
        resize(module)
    return smaller


def _read(path: Path) -> tuple[dict[str, Any], dict[str, Tensor]]:
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(path, "pt") as file:
            header = json.loads((file.metadata() or {}).get(_HEADER, "{}"))
            stored = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118  (not a dict)
    except (OSError, SafetensorError, ValueError) as error:
        raise InputError(f"{path} cannot be read as a saved network ({error}); write it with sc.save") from error
    if header.get("kind") != "model" or header.get("schema") != SCHEMA:
        raise InputError(f"{path} is no network saved by this version (schema {SCHEMA}); write it with sc.save")
    return header, stored


def _check_names(path: str | Path, model: nn.Module, header: dict[str, Any]) -> None:
    has = _tensors(model)
    for name in header["names"]:
        if name not in has:
            raise unknown("tensor of this network", name, has, remedy=f"{path} holds another architecture")
    for name in has:
        if name not in header["names"] and not any(name.startswith(f"{gone}.") for gone in header["dropped"]):
            raise InputError(f"{path} has no entry {name!r}; it holds another architecture")


def _filled(path: str | Path, name: str, old: Tensor, value: Tensor) -> Tensor:
    fits = value.ndim == old.ndim and all(n <= full for n, full in zip(value.shape, old.shape, strict=True))
    if not fits:
        raise InputError(
            f"{name} has shape {tuple(value.shape)} in {path}, which is no part of the network's {tuple(old.shape)}; "
            "give the network as it was built, before any cut"
        )
    value = value.to(old.device, old.dtype)
    return nn.Parameter(value, old.requires_grad) if isinstance(old, nn.Parameter) else value


def _tensors(model: nn.Module) -> dict[str, Tensor]:
    parameters = dict(model.named_parameters(remove_duplicate=False))
    return parameters | dict(model.named_buffers(remove_duplicate=False))
