"""The tasks of the paper's partition figures: FCNet on the X data, and the ConvNet on MNIST, 6 against 9."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import torch
from torch import nn

from splinecut.errors import InputError
from splinecut.geometry.slices import Slice
from splinecut.networks import models
from splinecut.pruning.methods.channels.slimming import ShrinkScales, Slimming
from splinecut.training import data
from splinecut.training.config import Optimizer, Schedule, TrainingConfig
from splinecut.training.data import DataSet, TensorSplit
from splinecut.training.data.tensor_split import digest
from splinecut.training.hooks import Hook

X_DATA = 5.0  # half the side of the square that holds the X data


@dataclass(frozen=True)
class Task:
    """A network, what it learns and how, and where it is looked at.

    build:  seed -> an untrained network.  load: seed -> the data, with the seed's own validation split.
    steps:  of the whole training.  pictured: shares of them at which the paper's Fig. 4 shows the partition.
    early:  the share by which the paper calls the partition settled.
    method: what prunes, how the cut network is refitted, and what steps into the training before the cut.
    zoom:   the side of a second, smaller window about the decision boundary, as a share of the first one's.
    """

    build: Callable[[int], nn.Module]
    load: Callable[[int], DataSet]
    plan: TrainingConfig
    region: Slice
    steps: int
    pictured: tuple[float, ...]
    early: float
    method: str
    refit: str | None = None
    hooks: Sequence[Hook] = ()
    zoom: float | None = None


SLOWLY = TrainingConfig(  # the paper: 10,000 steps of plain SGD; 6 an epoch
    epochs=1667,
    optimizer=Optimizer(lr=0.01, momentum=0.0, weight_decay=0.0),
    schedule=Schedule(name="constant"),
)
QUICKLY = TrainingConfig(
    epochs=100, batch_size=64, optimizer=Optimizer(lr=0.05, weight_decay=0.0)
)  # 2,300 steps, 23 an epoch


def fcnet(
    hidden: Sequence[int] = (20,), plan: TrainingConfig = SLOWLY, steps: int = 10_000, activation: str = "relu"
) -> Task:
    """The paper's FCNet; its published code has one hidden layer."""
    return Task(
        build=lambda seed: models.build("mlp", 2, 2, activation=activation, hidden=tuple(hidden), seed=seed),
        load=lambda seed: data.load("x-shape", seed=seed),
        plan=plan,
        region=Slice.square(X_DATA),
        steps=steps,
        pictured=(0.0, 0.05, 0.2, 0.5, 1.0),
        early=0.2,
        method="spline",
        refit="least_squares",
    )


def convnet(data_dir: Path | None = None, digits: Sequence[int] = (6, 9), epochs: int = 16) -> Task:
    """The paper's ConvNet, trained with slimming's penalty, on the plane of the test set's first 6 and first 9.

    The window holds the mixtures u a + v b with u and v from 1/4 to 3/4. The paper trains for 160 epochs; the learning
    rate drops at the same shares of ours.
    """
    whole = data.load("mnist", data_dir=data_dir)
    first = [int((whole.test.targets == digit).nonzero()[0, 0]) for digit in (6, 9)]
    six, nine = whole.test.examples(first)
    rows = len(only(whole, digits).train)
    plan = TrainingConfig(epochs=epochs, batch_size=128)
    return Task(
        build=lambda seed: models.build("convnet", classes=len(digits), in_channels=1, preset="paper", seed=seed),
        load=lambda seed: only(data.load("mnist", data_dir=data_dir, seed=seed), digits),
        plan=plan,
        region=Slice.span(six, nine, margin=-0.25),
        steps=epochs * -(-rows // plan.batch_size),
        pictured=(0.0, 1 / 16, 3 / 16, 0.5, 1.0),
        early=3 / 16,
        method="slimming",
        hooks=(ShrinkScales(Slimming().l1),),
        zoom=1 / 8,
    )


def only(dataset: DataSet, classes: Sequence[int]) -> DataSet:
    """The rows of these classes, which are numbered anew in the order given."""
    train, validation, test = (_only(split, classes) for split in (dataset.train, dataset.validation, dataset.test))
    names = tuple(dataset.class_names[each] for each in classes)
    return replace(
        dataset,
        train=train,
        validation=validation,
        test=test,
        outputs=len(names),
        class_names=names,
        hash=digest((train, validation, test), names),
    )


def _only(split: object, classes: Sequence[int]) -> TensorSplit:
    if not isinstance(split, TensorSplit):
        raise InputError(f"classes are taken from data in memory, got a {type(split).__name__}; use a smaller data set")
    number = torch.full((int(split.targets.max()) + 1 if len(split) else 1,), -1)
    for new, old in enumerate(classes):
        if old < len(number):
            number[old] = new
    rows = (number[split.targets] >= 0).nonzero()[:, 0]
    return replace(split.subset(rows), targets=number[split.targets[rows]])


TASKS: dict[str, Callable[[Path | None], Task]] = {
    "fcnet": lambda data_dir: fcnet(),
    "fcnet-small": lambda data_dir: fcnet(plan=QUICKLY, steps=2_300),
    "fcnet-deep": lambda data_dir: fcnet((20, 20)),  # the paper's text: "two-layer, 20 nodes per layer"
    "fcnet-leaky": lambda data_dir: fcnet(activation="leaky_relu"),
    "convnet": convnet,
    "convnet-small": lambda data_dir: convnet(data_dir, epochs=8),
    "convnet-ten": lambda data_dir: convnet(data_dir, range(10), epochs=8),
}
