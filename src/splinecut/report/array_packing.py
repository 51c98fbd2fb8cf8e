"""Arrays inside a page: each set of them becomes one string, deflated and in base64, with a list of what is in it."""

from __future__ import annotations

import base64
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

ALIGNMENT = 8  # bytes; a typed array may only start at a multiple of its item's size


@dataclass(frozen=True)
class Blob:
    """`entries`: [name, type, first byte, number of items] of each array in the inflated bytes."""

    entries: list[list[Any]]
    text: str


def pack(arrays: Mapping[str, np.ndarray]) -> Blob:
    """The arrays one after the other, raw deflate, base64; the page's `unpack` is the way back."""
    entries: list[list[Any]] = []
    parts: list[bytes] = []
    at = 0
    for name, array in arrays.items():
        little_endian = np.ascontiguousarray(array).astype(array.dtype.newbyteorder("<"), copy=False)
        data = little_endian.tobytes()
        entries.append([name, little_endian.dtype.name, at, little_endian.size])
        parts += [data, b"\0" * (-len(data) % ALIGNMENT)]
        at += len(data) + len(parts[-1])
    squeeze = zlib.compressobj(6, wbits=-zlib.MAX_WBITS)
    squeezed = squeeze.compress(b"".join(parts)) + squeeze.flush()
    return Blob(entries, base64.b64encode(squeezed).decode("ascii"))
