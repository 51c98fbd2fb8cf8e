"""Encoded images made into a DataSet: in memory where they all have one size and fit, streamed otherwise."""

from __future__ import annotations

import contextlib
import os

import torch
from torch import Tensor

from splinecut.errors import InputError
from splinecut.training.data import tensor_split as tensors
from splinecut.training.data.dataset import DataSet, Split
from splinecut.training.data.encoded_images import EncodedSet, EncodedSplit, SizesDiffer, looks, to_tensor
from splinecut.training.data.folders import IN_MEMORY
from splinecut.training.data.streamed_split import StreamedSplit, listing_digest
from splinecut.training.data.tensor_split import TensorSplit
from splinecut.training.data.transforms import Augmentation, Pixels, measured

SIDE = 224  # of streamed images, unless asked otherwise
# What photographs of ImageNet have, in colour and in grey; for streamed sets, which are not measured.
PHOTOGRAPHS = {3: Pixels((0.485, 0.456, 0.406), (0.229, 0.224, 0.225)), 1: Pixels((0.449,), (0.226,))}


def assemble(
    name: str,
    encoded: EncodedSet,
    pixels: Pixels | None,
    augmentation: Augmentation | None,
    image_size: int | None,
    workers: int | None,
) -> DataSet:
    """The data set, its validation split empty where none is stored beside a test split."""
    stored = _checked(name, encoded)
    looked = set().union(*(looks(split.images) for split in stored.values()))
    channels = 1 if all(is_grey for is_grey, _ in looked) else 3
    if pixels is not None and len(pixels.mean) != channels:
        pixels = None
    splits = None
    if _fits_memory(stored, {size for _, size in looked}, channels, image_size):
        # Only some images were looked at: the others may still turn out to differ.
        with contextlib.suppress(SizesDiffer):
            splits, digest = _in_memory(stored, encoded.class_names, channels, pixels, augmentation)
    if splits is None:
        seen = pixels or PHOTOGRAPHS[channels]
        splits, digest = _streamed(stored, encoded.class_names, seen, image_size or SIDE, workers)
    return DataSet(
        name=name,
        train=splits["train"],
        validation=splits.get("validation") or splits["train"].subset(torch.arange(0)),
        test=splits["test"],
        input_shape=tuple(splits["train"].examples([0]).shape[1:]),
        outputs=len(encoded.class_names),
        class_names=encoded.class_names,
        task="classification",
        hash=digest,
    )


def _fits_memory(
    stored: dict[str, EncodedSplit], sizes: set[tuple[int, int]], channels: int, image_size: int | None
) -> bool:
    """Whether images of these (width, height) are one size, the one asked for, and not too many."""
    if len(sizes) > 1 or (image_size is not None and sizes != {(image_size, image_size)}):
        return False
    (width, height), *_ = sizes
    return sum(len(part.labels) for part in stored.values()) * channels * width * height <= IN_MEMORY


def _checked(name: str, encoded: EncodedSet) -> dict[str, EncodedSplit]:
    """Train, test and perhaps validation, all labelled, every class seen in training."""
    # Public test splits often come with labels of -1: as good as absent.
    stored = {split: part for split, part in encoded.splits.items() if len(part.labels) and not (part.labels < 0).any()}
    if "test" not in stored and "validation" in stored:
        stored["test"] = stored.pop("validation")
    if "train" not in stored or "test" not in stored:
        splits = ", ".join(stored) or "none"
        raise InputError(f"{name} needs labelled images to train on and test on, got splits: {splits}; add the other")
    classes = len(encoded.class_names)
    for split, part in stored.items():
        if int(part.labels.max()) >= classes:
            raise InputError(
                f"{name}/{split} has label {int(part.labels.max())}, but only {classes} classes have names"
            )
    counts = torch.bincount(stored["train"].labels, minlength=classes)
    if (counts == 0).any():
        empty = encoded.class_names[int((counts == 0).nonzero()[0])]
        raise InputError(f"class {empty!r} of {name} has no training images; add some, or remove the class")
    return stored


def _in_memory(
    stored: dict[str, EncodedSplit],
    class_names: tuple[str, ...],
    channels: int,
    pixels: Pixels | None,
    augmentation: Augmentation | None,
) -> tuple[dict[str, Split], str]:
    images: dict[str, Tensor] = {split: to_tensor(part.images, channels) for split, part in stored.items()}
    seen = pixels or measured(images["train"])
    splits = {split: TensorSplit(images[split], part.labels, seen, augmentation) for split, part in stored.items()}
    ordered = [splits[split] for split in sorted(splits)]
    return dict(splits), tensors.digest(ordered, class_names)


def _streamed(
    stored: dict[str, EncodedSplit], class_names: tuple[str, ...], pixels: Pixels, side: int, workers: int | None
) -> tuple[dict[str, Split], str]:
    workers = (os.cpu_count() or 1) if workers is None else workers
    splits = {
        split: StreamedSplit(part.images, part.labels, torch.arange(len(part.labels)), pixels, side, workers)
        for split, part in stored.items()
    }
    return dict(splits), listing_digest([splits[split] for split in sorted(splits)], class_names)
