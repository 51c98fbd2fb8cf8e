"""The table of data sets, and `load`, which finds one by name and keeps its three splits apart."""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from pathlib import Path

from splinecut.errors import InputError, unknown
from splinecut.training.data import toy
from splinecut.training.data.assemble import assemble
from splinecut.training.data.dataset import DataSet, held_out
from splinecut.training.data.folders import read_folder
from splinecut.training.data.huggingface import read_hub
from splinecut.training.data.transforms import Augmentation, Pixels

ENVIRONMENT = "SPLINECUT_DATA"

BUILT_IN = {
    "digits": toy.load_digits,
    "x-shape": toy.load_x_shape,
    "sawtooth": toy.load_sawtooth,
    "gaussian-mixture": toy.load_gaussian_mixture,
}


@dataclass(frozen=True)
class Known:
    """What we know of a set before reading it: its name on the Hub and how the field treats its images."""

    about: str
    hub: str
    pixels: Pixels
    augmentation: Augmentation | None = None


# Means and deviations as everyone uses them; CIFAR-100's are CIFAR-10's in the authors' code.
_CIFAR = Pixels((0.4914, 0.4822, 0.4465), (0.2023, 0.1994, 0.2010))
_IMAGENET = Pixels((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))
KNOWN = {
    "mnist": Known("handwritten digits, 28x28 grey", "ylecun/mnist", Pixels((0.1307,), (0.3081,))),
    "fashion-mnist": Known("clothing, 28x28 grey", "zalandoresearch/fashion_mnist", Pixels((0.2860,), (0.3530,))),
    "cifar10": Known("32x32 colour, 10 classes", "uoft-cs/cifar10", _CIFAR, Augmentation()),
    "cifar100": Known("32x32 colour, 100 classes", "uoft-cs/cifar100", _CIFAR, Augmentation()),
    "tiny-imagenet": Known("64x64 photographs, 200 classes", "zh-plus/tiny-imagenet", _IMAGENET, Augmentation()),
    "imagenet": Known("photographs, 1000 classes, streamed", "ILSVRC/imagenet-1k", _IMAGENET),
}

DATA: dict[str, str] = {
    "digits": "handwritten digits, 8x8 grey, embedded",
    "x-shape": "two classes on a plane, apart by a cross (generated)",
    "sawtooth": "regression on a line with two teeth (generated)",
    "gaussian-mixture": "64 round clusters on a plane (generated)",
    **{name: known.about for name, known in KNOWN.items()},
}


def load(
    name: str,
    data_dir: str | Path | None = None,
    seed: int = 0,
    validation: float = 0.1,
    train_size: int | None = None,
    image_size: int | None = None,
    workers: int | None = None,
) -> DataSet:
    """The data set called `name`: built in, a folder of that name in `data_dir` (or SPLINECUT_DATA), or from the Hub.

    A folder holds parquet files or a folder of images per split and class; a Hub name is one of DATA or
    `owner/name`. Nothing but the final report may look at `test`. Where a set has no validation split, a `validation`
    share of its training rows, stratified and chosen by `seed`, is held out. Where it has no (labelled) test split
    but a validation split, that one is the test split. `train_size` keeps a stratified sample of what is left to train.

    Images of one size stay in memory; others, and all when an `image_size` other than their own is asked for, are
    streamed by `workers` processes (one per core unless given) and cropped to squares of that side (224 unless given).
    """
    if not 0 <= validation < 1:
        raise InputError(f"validation must be in [0, 1), got {validation}; it is a share of the training rows")
    dataset = BUILT_IN[name]() if name in BUILT_IN else _stored(name, data_dir, image_size, workers)
    if image_size is not None and dataset.input_shape[1:] != (image_size, image_size):
        raise InputError(f"{name} has inputs of shape {dataset.input_shape}, got image_size={image_size}; leave it out")
    return _sampled(_carved(dataset, validation, seed), train_size, seed)


def _carved(dataset: DataSet, validation: float, seed: int) -> DataSet:
    """The set with validation rows: its own, or taken from the training rows."""
    if len(dataset.validation):
        return dataset
    kept, validation_rows = held_out(dataset.train.targets, validation, seed)
    return replace(dataset, train=dataset.train.subset(kept), validation=dataset.train.subset(validation_rows))


def _sampled(dataset: DataSet, train_size: int | None, seed: int) -> DataSet:
    if train_size is None:
        return dataset
    rows = len(dataset.train)
    if not 1 <= train_size <= rows:
        raise InputError(
            f"train_size must be from 1 to {rows}, got {train_size}; {dataset.name} has {rows} rows to train on"
        )
    _, chosen = held_out(dataset.train.targets, train_size / rows, seed)
    return replace(dataset, train=dataset.train.subset(chosen))


def _stored(name: str, data_dir: str | Path | None, image_size: int | None, workers: int | None) -> DataSet:
    hub_set = KNOWN.get(name)
    folder = _folder(name, data_dir)
    if folder is not None:
        encoded = read_folder(folder)
    elif hub_set or "/" in name:
        encoded = read_hub(hub_set.hub if hub_set else name)
    else:
        raise unknown("data set", name, [*DATA, *_folders_in(data_dir)], "or a Hub name owner/name, or a folder")
    return assemble(
        name=Path(name).name if folder else name,
        encoded=encoded,
        pixels=hub_set.pixels if hub_set else None,
        augmentation=hub_set.augmentation if hub_set else None,
        image_size=image_size,
        workers=workers,
    )


def _folder(name: str, data_dir: str | Path | None) -> Path | None:
    """Where the set is stored, or None where only the Hub may have it."""
    if data_dir is not None and not Path(data_dir).is_dir():
        raise InputError(f"data folder {data_dir} does not exist; give the folder that holds {name}")
    candidates = [Path(place) / name for place in (data_dir, os.environ.get(ENVIRONMENT)) if place]
    if name.startswith((".", "/", "~")):
        candidates = [Path(name).expanduser()]
        if not candidates[0].is_dir():
            raise InputError(f"data folder {name} does not exist; give an existing one, or the name of a data set")
    return next((candidate for candidate in candidates if candidate.is_dir()), None)


def _folders_in(data_dir: str | Path | None) -> list[str]:
    place = Path(data_dir or os.environ.get(ENVIRONMENT) or "/nowhere")
    return [entry.name for entry in place.iterdir() if entry.is_dir()] if place.is_dir() else []
