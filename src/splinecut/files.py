"""Atomic writes: a reader sees the old file or the new one, never a part."""

from __future__ import annotations

import json
import math
import os
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from splinecut.errors import InputError, SplinecutError


class WriteError(SplinecutError, OSError):
    """A file could not be written; what stood there before is untouched."""


def write_atomically(path: str | Path, write: Callable[[Path], object]) -> Path:
    """Calls `write` on a temporary neighbour of `path`, forces it to disk, renames it into place; returns `path`.

    A process killed at any moment leaves `path` as it was or complete. The neighbour ends in `.partial`
    (followed by `path`'s own suffix, since some writers insist on one) and is removed when `write` fails.
    """
    path = Path(path)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.stem}-", suffix=f".partial{path.suffix}")
    except OSError as error:
        raise WriteError(f"cannot write {path}: {_reason(error)}; choose a writable folder") from error
    os.close(handle)
    temporary = Path(name)
    try:
        write(temporary)
        # mkstemp makes files private to their owner; a result is for whoever may read the folder.
        os.chmod(temporary, 0o666 & ~_umask())
        _to_disk(temporary)
        os.replace(temporary, path)
        _to_disk(path.parent)
    except OSError as error:
        temporary.unlink(missing_ok=True)
        raise WriteError(f"cannot write {path}: {_reason(error)}; what stood there before is intact") from error
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    return path


def write_text(path: str | Path, text: str) -> Path:
    """Writes `text` as UTF-8, atomically."""
    return write_atomically(path, lambda temporary: temporary.write_text(text, encoding="utf-8"))


def write_json(path: str | Path, value: Any) -> Path:
    """Writes `value` as readable JSON, atomically; refuses what `json_text` refuses."""
    return write_text(path, json_text(value))


def json_text(value: Any) -> str:
    """`value` as readable JSON; numbers that are not finite are refused by their key, because JSON has none."""
    try:
        return json.dumps(value, indent=2, allow_nan=False) + "\n"
    except ValueError:
        for key, number in _numbers(value):
            if not math.isfinite(number):
                name = key or "value"
                raise InputError(f"{name} is {number}; only finite numbers are stored; nothing was written") from None
        raise


def _numbers(value: Any, key: str = "") -> Iterator[tuple[str, float]]:
    """Every number with a point inside nested dicts and lists, with its dotted key."""
    if isinstance(value, float):
        yield key, value
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list | tuple) else ()
    for name, each in inner:
        yield from _numbers(each, f"{key}.{name}" if key else str(name))


def _to_disk(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


def _reason(error: OSError) -> str:
    return error.strerror or str(error)
