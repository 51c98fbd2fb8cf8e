"""Sets in a local folder: parquet files, or a folder per split with a folder of images per class."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path
from typing import Any

import torch

from splinecut.errors import InputError, unknown
from splinecut.training.data.encoded_images import Column, EncodedSet, EncodedSplit, Files

SPLITS = {
    "train": "train", "training": "train",
    "validation": "validation", "valid": "validation", "val": "validation", "dev": "validation",
    "test": "test", "testing": "test",
}  # fmt: skip
SUFFIXES = {".jpeg", ".jpg", ".png", ".bmp", ".gif", ".webp", ".tif", ".tiff", ".ppm", ".pgm"}
IMAGE_COLUMNS = ("image", "img", "jpg", "png", "webp")
LABEL_COLUMNS = ("label", "fine_label", "labels", "target", "class", "cls")


IN_MEMORY = 4 * 2**30  # bytes of images; a larger set is mapped and streamed from disk


def read_folder(folder: Path) -> EncodedSet:
    """The set stored in `folder`, whichever of the two layouts it has."""
    try:
        files = sorted(folder.rglob("*.parquet"))
        return read_parquet(files, folder) if files else read_class_folders(folder)
    except OSError as error:
        place = error.filename or folder
        raise InputError(
            f"cannot read {place}: {error.strerror or error}; check that it exists and may be read"
        ) from error


def read_parquet(files: list[Path], folder: Path) -> EncodedSet:
    """Parquet files named by split (`train-00000-of-00001.parquet`, `test.parquet`, `train/0.parquet`)."""
    by_split: dict[str, list[Path]] = {}
    for file in files:
        by_split.setdefault(_split_of(file.relative_to(folder)), []).append(file)
    is_large = sum(file.stat().st_size for file in files) > IN_MEMORY
    return from_tables((_mapped_tables if is_large else _tables)(by_split), folder.name)


def _tables(by_split: dict[str, list[Path]]) -> dict[str, Any]:
    """The tables in memory."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    def read(file: Path) -> Any:
        try:
            return pq.read_table(file)
        except pa.ArrowInvalid as error:
            raise InputError(f"cannot read {file}: {' '.join(str(error).split())}; fetch the file again") from error

    return {split: pa.concat_tables([read(file) for file in files]) for split, files in by_split.items()}


def _mapped_tables(by_split: dict[str, list[Path]]) -> dict[str, Any]:
    """The tables on disk, mapped: `datasets` unpacks the files once into its cache."""
    import datasets

    names = {split: [str(file) for file in files] for split, files in by_split.items()}
    return {split: part.data.table for split, part in datasets.load_dataset("parquet", data_files=names).items()}


def from_tables(tables: dict[str, Any], name: str, label_names: tuple[str, ...] = ()) -> EncodedSet:
    """The set in Arrow tables, one per split. Class names are `label_names`, or in the tables' own metadata."""
    columns = next(iter(tables.values())).column_names
    image, label = _column("image", IMAGE_COLUMNS, columns, name), _column("label", LABEL_COLUMNS, columns, name)
    values = {split: table.column(label).to_pylist() for split, table in tables.items()}
    names = label_names or _names_in_metadata(next(iter(tables.values())).schema.metadata, label)
    if not names:
        names = tuple(str(value) for value in sorted(set().union(*map(set, values.values()))))
        values = {split: [names.index(str(value)) for value in column] for split, column in values.items()}
    splits = {
        split: EncodedSplit(Column(table.column(image), f"{name}/{split}"), torch.tensor(values[split]))
        for split, table in tables.items()
    }
    return EncodedSet(splits, names)


def read_class_folders(folder: Path) -> EncodedSet:
    """`train/<class>/*.jpeg` and the same for the other splits; the training classes, sorted, are the classes."""
    folders = {SPLITS[entry.name.lower()]: entry for entry in sorted(folder.iterdir()) if entry.name.lower() in SPLITS}
    if "train" not in folders:
        raise InputError(
            f"no data set in {folder}: expected parquet files, "
            "or folders named train and test with a folder of images per class"
        )
    names = tuple(sorted(entry.name for entry in folders["train"].iterdir() if entry.is_dir()))
    return EncodedSet({split: _class_folders(place, names) for split, place in folders.items()}, names)


def _class_folders(place: Path, names: tuple[str, ...]) -> EncodedSplit:
    paths: list[Path] = []
    labels: list[int] = []
    for entry in sorted(place.iterdir()):
        if entry.is_dir() and entry.name not in names:
            raise unknown(f"class in {place}", entry.name, names, "classes are the folders in train")
        if entry.is_dir():
            images = sorted(path for path in _files(entry) if path.suffix.lower() in SUFFIXES)
            paths += images
            labels += [names.index(entry.name)] * len(images)
    return EncodedSplit(Files(paths, place.parent), torch.tensor(labels, dtype=torch.int64))


def _files(folder: Path) -> list[Path]:
    def stop(error: OSError) -> None:
        raise error

    # Unlike rglob, walk can be told not to pass over a folder that may not be read.
    return [Path(root, name) for root, _, names in os.walk(folder, onerror=stop) for name in names]


def _split_of(path: Path) -> str:
    """The split a parquet file belongs to, by the first word of its name or of a folder it is in."""
    for part in reversed(path.parts):
        word = re.split(r"[^a-z]", part.lower())[0]
        if word in SPLITS:
            return SPLITS[word]
    raise InputError(f"{path} belongs to no split; name parquet files train-*, validation-* or test-*")


def _column(kind: str, known: tuple[str, ...], columns: list[str], name: str) -> str:
    for column in known:
        if column in columns:
            return column
    raise InputError(
        f"no {kind} column in {name}: expected one of {', '.join(known)}, got {', '.join(columns)}; rename it"
    )


def _names_in_metadata(metadata: dict[bytes, bytes] | None, label: str) -> tuple[str, ...]:
    """Class names as Hugging Face `datasets` stores them in a parquet file."""
    stored = json.loads((metadata or {}).get(b"huggingface", b"{}"))
    feature = stored.get("info", {}).get("features", {}).get(label, {})
    return tuple(feature.get("names") or ())
