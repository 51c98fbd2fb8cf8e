"""Images of every depth and colour model are read at their own scale, or refused.

The files are written here byte by byte, or by Pillow from arrays, and compared with the arrays.
"""

from __future__ import annotations

import io
import struct
import zlib
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from splinecut.errors import InputError
from splinecut.training.data import load
from splinecut.training.data.encoded_images import Files, looks, to_tensor
from splinecut.training.data.streamed_split import centre_crop, random_crop

RNG = np.random.default_rng(0)
WIDE = RNG.integers(0, 65536, (6, 5, 4)).astype(np.uint16)  # rows, columns, red green blue alpha
WIDE[0, :3] = [[0] * 4, [65535] * 4, [255] * 4]
NARROW = (WIDE >> 8).astype(np.uint8)
COLOUR_TYPES = {1: 0, 2: 4, 3: 2, 4: 6}  # channels -> PNG's name for them


def png(values: np.ndarray) -> bytes:
    """A PNG of unsigned 8- or 16-bit values (rows, columns, channels)."""
    rows, columns, channels = values.shape
    lines = b"".join(b"\0" + line.astype(values.dtype.newbyteorder(">")).tobytes() for line in values)
    header = struct.pack(">IIBBBBB", columns, rows, 8 * values.itemsize, COLOUR_TYPES[channels], 0, 0, 0)
    parts = ((b"IHDR", header), (b"IDAT", zlib.compress(lines)), (b"IEND", b""))
    chunks = [struct.pack(">I", len(d)) + kind + d + struct.pack(">I", zlib.crc32(kind + d)) for kind, d in parts]
    return b"\x89PNG\r\n\x1a\n" + b"".join(chunks)


def tiff(values: np.ndarray, bits: int = 16, order: str = "<") -> bytes:
    """An uncompressed TIFF of 16-bit words (rows, columns, channels), or of grey values of 12 bits."""
    rows, columns, channels = values.shape
    data = values.astype(f"{order}u2").tobytes()
    if bits == 12:
        assert columns % 2 == 0 and channels == 1 and order == "<"
        pairs = values.reshape(-1, 2).astype(int)
        data = b"".join(bytes([a >> 4, (a & 15) << 4 | b >> 8, b & 255]) for a, b in pairs)
    tags = {
        256: columns, 257: rows, 258: bits, 259: 1, 262: 2 if channels == 3 else 1, 273: 8, 277: channels, 278: rows,
        279: len(data),
    }  # fmt: skip
    after = 8 + len(data) + len(data) % 2
    extra = after + 2 + 12 * len(tags) + 4
    fields = b""
    for tag, value in tags.items():
        if tag == 258 and channels == 3:
            fields += struct.pack(f"{order}HHII", tag, 3, 3, extra)
        else:
            fields += struct.pack(f"{order}HHII", tag, 4, 1, value)
    start = (b"II*\0" if order == "<" else b"MM\0*") + struct.pack(f"{order}I", after)
    listing = struct.pack(f"{order}H", len(tags)) + fields + struct.pack(f"{order}I", 0)
    return start + data + b"\0" * (len(data) % 2) + listing + struct.pack(f"{order}HHH", bits, bits, bits)


def by_pillow(image: Image.Image, kind: str = "PNG", **options: object) -> bytes:
    file = io.BytesIO()
    image.save(file, kind, **options)
    return file.getvalue()


def stored(tmp_path: Path, content: bytes, name: str = "a.png") -> Files:
    (tmp_path / name).write_bytes(content)
    return Files([tmp_path / name], tmp_path)


def pixels(tmp_path: Path, content: bytes, channels: int) -> np.ndarray:
    """(rows, columns, channels) as the loader stores them."""
    return to_tensor(stored(tmp_path, content), channels)[0].permute(1, 2, 0).numpy().astype(float)


GREY_16 = {
    "PNG": png(WIDE[..., :1]),
    "TIFF, little endian": tiff(WIDE[..., :1]),
    "TIFF, big endian": tiff(WIDE[..., :1], order=">"),
    "PNG by Pillow": by_pillow(Image.fromarray(WIDE[..., 0])),
    "TIFF by Pillow": by_pillow(Image.fromarray(WIDE[..., 0]), "TIFF"),
    "PGM": b"P5 5 6 65535\n" + WIDE[..., 0].astype(">u2").tobytes(),
}


@pytest.mark.parametrize("kind", GREY_16)
@pytest.mark.parametrize("channels", [1, 3])
def test_grey_images_of_16_bits_are_scaled_to_8(kind: str, channels: int, tmp_path: Path) -> None:
    found = pixels(tmp_path, GREY_16[kind], channels)
    assert np.abs(found - WIDE[..., :1] / 257).max() <= 0.5 and found.shape == (6, 5, channels)
    assert all(is_grey for is_grey, _ in looks(stored(tmp_path, GREY_16[kind])))


COLOUR_16 = [png(WIDE[..., :3]), png(WIDE), tiff(WIDE[..., :3]), tiff(WIDE[..., :3], order=">")]


@pytest.mark.parametrize("content", COLOUR_16)
def test_colours_of_16_bits_are_scaled_to_8(content: bytes, tmp_path: Path) -> None:
    assert np.abs(pixels(tmp_path, content, 3) - WIDE[..., :3] / 257).max() < 1  # Pillow takes the upper byte


def test_grey_with_alpha_of_16_bits_is_scaled_to_8(tmp_path: Path) -> None:
    assert np.abs(pixels(tmp_path, png(WIDE[..., [0, 3]]), 1) - WIDE[..., :1] / 257).max() < 1


def test_a_tiff_of_12_bits_has_its_own_range(tmp_path: Path) -> None:
    values = RNG.integers(0, 4096, (6, 4, 1))
    values[0, :2, 0] = 0, 4095
    found = pixels(tmp_path, tiff(values, bits=12), 1)
    assert np.abs(found - values / 4095 * 255).max() <= 0.5


@pytest.mark.parametrize("channels", [1, 2, 3, 4])
def test_images_of_8_bits_are_stored_as_they_are(channels: int, tmp_path: Path) -> None:
    """Transparency is left out, as everywhere in the field: the colours are those in the file."""
    some = NARROW[..., {1: [0], 2: [0, 3], 3: [0, 1, 2], 4: [0, 1, 2, 3]}[channels]]
    colours = some[..., : 1 if channels < 3 else 3]
    assert (pixels(tmp_path, png(some), colours.shape[-1]) == colours).all()


def test_a_palette_gives_its_colours(tmp_path: Path) -> None:
    index = RNG.integers(0, 7, (6, 5)).astype(np.uint8)
    palette = RNG.integers(0, 256, (7, 3)).astype(np.uint8)
    image = Image.fromarray(index).convert("P")
    image.putdata(index.reshape(-1).tolist())
    image.putpalette(palette.reshape(-1).tolist())
    for options in ({}, {"transparency": 2}):
        assert (pixels(tmp_path, by_pillow(image, **options), 3) == palette[index]).all()


def test_black_and_white_is_0_and_255(tmp_path: Path) -> None:
    bits = RNG.random((6, 5)) < 0.5
    for channels in (1, 3):
        found = pixels(tmp_path, by_pillow(Image.fromarray(bits)), channels)
        assert (found == 255 * bits[..., None]).all()


def test_streamed_crops_have_the_scale_of_stored_images(tmp_path: Path) -> None:
    flat = np.full((40, 40, 1), 0x8000, np.uint16)
    files = stored(tmp_path, png(flat))
    for channels in (1, 3):
        assert set(centre_crop(files, 0, channels, 8).unique().tolist()) == {128}
        assert set(random_crop(files, 0, channels, 8, np.random.default_rng(0)).unique().tolist()) == {128}


@pytest.mark.parametrize("dtype", [np.float32, np.int32])
def test_values_without_a_known_range_are_refused_by_name(dtype: type, tmp_path: Path) -> None:
    content = by_pillow(Image.fromarray(RNG.random((6, 5)).astype(dtype)), "TIFF")
    for read in (to_tensor, lambda files, channels: centre_crop(files, 0, channels, 4)):
        with pytest.raises(InputError, match=r"cannot read image odd.tif: .*8 or 16 bits"):
            read(stored(tmp_path, content, "odd.tif"), 1)


def test_a_set_of_16_bit_images_has_one_channel_and_the_values_of_its_8_bit_twin(tmp_path: Path) -> None:
    for name in ("wide", "narrow"):
        for split in ("train", "test"):
            for label in ("cat", "dog"):
                folder = tmp_path / name / split / label
                folder.mkdir(parents=True)
                for row in range(4):
                    values = np.random.default_rng([row, label == "cat"]).integers(0, 256, (6, 5, 1))
                    wide = (values * 257).astype(np.uint16)
                    (folder / f"{row}.png").write_bytes(png(wide if name == "wide" else values.astype(np.uint8)))
    wide, narrow = (load(name, tmp_path, validation=0) for name in ("wide", "narrow"))
    assert wide.input_shape == narrow.input_shape == (1, 6, 5)
    assert wide.hash == narrow.hash
