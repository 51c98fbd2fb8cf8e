"""Checkpoints that survive a kill: safetensors for the numbers, JSON for the rest, both written by rename.

A checkpoint is two files, `<step>.safetensors` and `<step>.json`. The JSON is written last and holds the SHA-256 of the
tensors and, with 64 zeros in the place of that number, its own: without it, or when a hash differs, the checkpoint does
not count and the one before it does. Checkpoints of 0.1.0 have no hash of the JSON; they are read as they are.
Nothing here can run code from a file.
"""

from __future__ import annotations

import hashlib
import json
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from splinecut.errors import SplinecutError
from splinecut.files import json_text, write_atomically, write_text

if TYPE_CHECKING:
    from torch import Tensor

SCHEMA = 1
KEPT = 2  # the newest may be hit by a failing disk; the one before it is the way back
_TENSOR = "__tensor__"
_KEYS = {"schema", "sha256", "state"}
_BLANK = "0" * 64  # stands for the hash of the JSON while it is taken


class CheckpointDamaged(SplinecutError):
    """A checkpoint cannot be read whole."""


class CheckpointWarning(UserWarning):
    """A damaged checkpoint was passed over."""


def save(folder: str | Path, position: int, state: dict[str, Any]) -> Path:
    """Writes `state` as the checkpoint of `position` (a step count) and removes all but the newest two.

    state: nested dicts (string keys), lists, numbers, strings, None and tensors.
    """
    from safetensors.torch import save as to_bytes

    folder = Path(folder)
    tensors: dict[str, Tensor] = {}
    body = pack(state, tensors)
    stem = folder / f"{position:012d}"
    data = to_bytes(tensors)
    write_atomically(stem.with_suffix(".safetensors"), lambda file: file.write_bytes(data))
    digest = hashlib.sha256(data).hexdigest()
    text = json_text({"schema": SCHEMA, "sha256": digest, "sha256_json": _BLANK, "state": body})
    own = hashlib.sha256(text.encode()).hexdigest()
    # The first occurrence only, which is the header's: the state may hold the same zeros.
    written = write_text(stem.with_suffix(".json"), text.replace(_BLANK, own, 1))
    for old in _positions(folder)[KEPT:]:
        _remove(folder, old)
    return written


def load_newest(folder: str | Path, say: Callable[[str], None] | None = None) -> dict[str, Any] | None:
    """The state of the newest readable checkpoint in `folder`, None where there is none; says which were damaged.

    The caller must be the only one at work in `folder`: what a killed process left half written is removed.
    """
    folder = Path(folder)
    for leftover in folder.glob(".*.partial*"):
        leftover.unlink(missing_ok=True)
    for position in _positions(folder):
        try:
            return load(folder / f"{position:012d}")
        except CheckpointDamaged as error:
            (say or _warn)(f"{error}; going back to the one before it")
            _remove(folder, position)
    return None


def load(stem: str | Path) -> dict[str, Any]:
    """The state in the checkpoint `<stem>.json` + `<stem>.safetensors`."""
    from safetensors.torch import load as from_bytes

    stem = Path(stem)
    try:
        text = stem.with_suffix(".json").read_text(encoding="utf-8")
        header = json.loads(text)
        data = stem.with_suffix(".safetensors").read_bytes()
        schema, digest, body = header["schema"], header["sha256"], header["state"]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise CheckpointDamaged(f"checkpoint {stem.name} cannot be read ({type(error).__name__})") from error
    if hashlib.sha256(data).hexdigest() != digest or not _is_as_written(text, header):
        raise CheckpointDamaged(f"checkpoint {stem.name} is truncated or altered")
    if schema != SCHEMA:
        raise SplinecutError(
            f"checkpoint {stem.name} has schema {schema}, expected {SCHEMA}; "
            "finish this run with the version of splinecut that began it"
        )
    if header.keys() - {"sha256_json"} != _KEYS:  # perhaps the key of the hash itself was hit
        raise CheckpointDamaged(f"checkpoint {stem.name} is altered: it has the keys {', '.join(header)}")
    try:
        state: dict[str, Any] = unpack(body, from_bytes(data))
    except (KeyError, TypeError) as error:  # only where there is no hash of the JSON
        raise CheckpointDamaged(f"checkpoint {stem.name} is altered: it has no tensor {error}") from error
    return state


def _is_as_written(text: str, header: dict[str, Any]) -> bool:
    """Whether the JSON has the hash that it holds; one of 0.1.0 holds none."""
    if "sha256_json" not in header:
        return True
    own = str(header["sha256_json"])
    return hashlib.sha256(text.replace(own, _BLANK, 1).encode()).hexdigest() == own


def clear(folder: str | Path) -> None:
    """Removes every checkpoint in `folder`: a finished run does not need them."""
    for position in _positions(Path(folder)):
        _remove(Path(folder), position)


def pack(value: Any, tensors: dict[str, Tensor], path: str = "") -> Any:
    """`value` with each tensor moved into `tensors` and a reference left in its place."""
    import torch

    if isinstance(value, torch.Tensor):
        # A copy of its own: safetensors refuses memory shared by two names (tied parameters).
        tensors[path] = value.detach().to("cpu", copy=True).contiguous()
        return {_TENSOR: path}
    if isinstance(value, dict):
        for key in value:
            if not isinstance(key, str):
                raise TypeError(f"keys of a checkpoint are strings, got {key!r} at {path or 'the top'}")
        return {key: pack(inner, tensors, f"{path}/{key}" if path else key) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [pack(inner, tensors, f"{path}/{i}") for i, inner in enumerate(value)]
    return value


def unpack(body: Any, tensors: dict[str, Tensor]) -> Any:
    """The inverse of `pack`; tuples come back as lists."""
    if isinstance(body, dict):
        if body.keys() == {_TENSOR}:
            return tensors[body[_TENSOR]]
        return {key: unpack(inner, tensors) for key, inner in body.items()}
    if isinstance(body, list):
        return [unpack(inner, tensors) for inner in body]
    return body


def _warn(message: str) -> None:
    warnings.warn(message, CheckpointWarning, stacklevel=3)


def _positions(folder: Path) -> list[int]:
    """Steps that have a checkpoint, newest first."""
    return sorted((int(f.stem) for f in folder.glob("*.json") if f.stem.isdigit()), reverse=True)


def _remove(folder: Path, position: int) -> None:
    # The JSON goes first: without it the tensors do not count as a checkpoint.
    for suffix in (".json", ".safetensors"):
        (folder / f"{position:012d}{suffix}").unlink(missing_ok=True)
