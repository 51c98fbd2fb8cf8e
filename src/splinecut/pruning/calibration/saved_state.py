"""What an interrupted calibration leaves in a folder, and whether it belongs to the call that finds it there."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from splinecut.errors import InputError
from splinecut.networks.inputs import Arguments
from splinecut.training import checkpoint


def call_identity(small: nn.Module, dense: nn.Module, probe: Arguments, settings: Mapping[str, Any]) -> dict[str, Any]:
    """All that decides the result of a call: its settings, and digests of the networks and of the probe."""
    inputs = ((str(place), value) for place, value in enumerate(probe))
    return {
        "small": _digest(small.state_dict().items()),
        "dense": _digest(dense.state_dict().items()),
        "probe": _digest(inputs),
        **settings,
    }


def load_state(folder: Path, call: Mapping[str, Any]) -> dict[str, Any] | None:
    """The newest state in `folder`, None where there is none; refuses one that another call has written."""
    state = checkpoint.load_newest(folder)
    if state is None:
        return None
    before = state.get("call")
    if not isinstance(before, Mapping):
        raise InputError(
            f"checkpoint={str(folder)!r} must be a folder of calibrate, got one of a training; name another"
        )
    for key in {**call, **before}:
        if before.get(key) != call.get(key):
            is_digest = key in ("small", "dense", "probe")
            what = f"another {key}" if is_digest else f"{key}={before.get(key)!r}, now {call.get(key)!r}"
            raise InputError(
                f"the checkpoint in {folder} is of another call of calibrate: it has {what}; "
                "repeat that call, or name another folder"
            )
    return state


def _digest(tensors: Iterable[tuple[str, Any]]) -> str:
    sha = hashlib.sha256()
    for name, value in tensors:
        if isinstance(value, Tensor):
            sha.update(f"{name} {tuple(value.shape)} {value.dtype}".encode())
            # As bytes: NumPy has no bfloat16.
            sha.update(value.detach().cpu().contiguous().flatten().view(torch.uint8).numpy().tobytes())
        else:
            sha.update(f"{name} {value!r}".encode())
    return sha.hexdigest()[:16]
