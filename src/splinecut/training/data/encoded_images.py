"""Images as they are stored, still encoded, each with its label and the place to name when it is broken."""

from __future__ import annotations

import io
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import torch
from jaxtyping import Int64
from PIL import Image
from torch import Tensor

from splinecut.errors import InputError

MODES = {1: "L", 3: "RGB"}  # Pillow's name for that many channels
GREY = ("1", "L", "I;16", "I;16L", "I;16B", "I;16N", "I")

# Tags of TIFF, and what the second says of ordinary whole numbers; it is also what a file without the tag means.
BITS_PER_SAMPLE, SAMPLE_FORMAT, UNSIGNED = 258, 339, 1


class SizesDiffer(Exception):
    """The images of a split are not all of one size."""


class Encoded(Protocol):
    """Image files in some container, by row."""

    def __len__(self) -> int: ...

    def __getitem__(self, row: int) -> bytes:
        """The file's bytes."""

    def place(self, row: int) -> str:
        """Where the file is, for messages and for the hash of a set too large to read whole."""


@dataclass(frozen=True)
class Files:
    """Image files in folders."""

    paths: list[Path]
    root: Path

    def __len__(self) -> int:
        return len(self.paths)

    def __getitem__(self, row: int) -> bytes:
        return self.paths[row].read_bytes()

    def place(self, row: int) -> str:
        return str(self.paths[row].relative_to(self.root))


@dataclass(frozen=True)
class Column:
    """A column of a table in Arrow's layout: image bytes, or a record {bytes, path} as Hugging Face writes it."""

    column: Any
    name: str

    def __len__(self) -> int:
        return len(self.column)

    def __getitem__(self, row: int) -> bytes:
        value = self.column[row].as_py()
        return value if isinstance(value, bytes) else value["bytes"] or Path(value["path"]).read_bytes()

    def place(self, row: int) -> str:
        return f"{self.name} row {row}"


@dataclass(frozen=True)
class EncodedSplit:
    """The images and labels of one split, as stored."""

    images: Encoded
    labels: Int64[Tensor, " rows"]


@dataclass(frozen=True)
class EncodedSet:
    """All labelled splits of a set, by name (train, validation, test), and the names of its classes."""

    splits: dict[str, EncodedSplit]
    class_names: tuple[str, ...]


def decode(images: Encoded, row: int, use: Callable[[Image.Image], Any]) -> Any:
    """What `use` makes of the decoded image of that row; one line naming the image where it cannot be decoded."""
    try:
        with Image.open(io.BytesIO(images[row])) as image:
            return use(image)
    except (OSError, SyntaxError, ValueError, TypeError, KeyError, Image.DecompressionBombError) as error:
        reason = "not an image" if isinstance(error, Image.UnidentifiedImageError) else " ".join(str(error).split())
        raise InputError(f"cannot read image {images.place(row)}: {reason}; replace or remove it") from error


def in_mode(image: Image.Image, channels: int) -> Image.Image:
    """The image with 8 bits in each of 1 or 3 channels; transparency is left out.

    Pillow reads colours of 16 bits by their upper byte. Grey values of more than 8 bits it hands out as they are and
    cuts off at 255 when asked to convert them, so those are scaled here.
    """
    if image.mode.startswith(("I", "F")):
        levels = _levels(image)
        image = Image.fromarray(np.rint(np.asarray(image) * (255 / levels)).astype(np.uint8))
    return image if image.mode == MODES[channels] else image.convert(MODES[channels])


def _levels(image: Image.Image) -> int:
    """The largest value that a grey image of more than 8 bits can have."""
    if image.format == "TIFF" and image.mode != "F":
        (bits, *_), (kind, *_) = (_tag(image, tag) for tag in (BITS_PER_SAMPLE, SAMPLE_FORMAT))
        if bits <= 16 and kind == UNSIGNED:
            return 2**bits - 1
    elif image.mode != "F":
        return 65535  # PNG has 16 bits, and Pillow stretches those of other formats to as many
    raise ValueError(f"values of mode {image.mode} have no known range; save it with 8 or 16 bits")


def _tag(image: Image.Image, tag: int) -> tuple[int, ...]:
    value = image.tag_v2.get(tag, (1,))  # type: ignore[attr-defined]
    return value if isinstance(value, tuple) else (value,)


def looks(images: Encoded, sample: int = 100) -> set[tuple[bool, tuple[int, int]]]:
    """Of some images spread over the split: whether they are grey, and their (width, height)."""
    rows = np.unique(np.linspace(0, len(images) - 1, sample).astype(int))
    return {decode(images, int(row), lambda image: (image.mode in GREY, image.size)) for row in rows}


def to_tensor(images: Encoded, channels: int) -> Tensor:
    """All images as one tensor, uint8 (rows, channels, height, width); raises SizesDiffer where that cannot be.

    One thread: with two, 16,000 images of 32x32 took longer, not less.
    """
    width, height = decode(images, 0, lambda image: image.size)
    pixels = np.empty((len(images), height, width, channels), dtype=np.uint8)

    def values(image: Image.Image) -> np.ndarray:
        if image.size != (width, height):
            raise SizesDiffer
        return np.asarray(in_mode(image, channels)).reshape(height, width, channels)

    for row in range(len(images)):
        pixels[row] = decode(images, row, values)
    return torch.from_numpy(pixels).permute(0, 3, 1, 2).contiguous()
