"""Small benches for tests of pruning methods: a network, a few images, a short plan."""

from __future__ import annotations

from dataclasses import replace
from io import StringIO
from pathlib import Path
from typing import Any

import torch
from rich.console import Console

from splinecut.networks import models
from splinecut.pruning.engine.context import RunContext
from splinecut.training import data
from splinecut.training.config import TrainingConfig
from splinecut.training.data import DataSet, TensorSplit
from splinecut.training.progress import ConsoleProgress

NETWORKS: dict[str, dict[str, Any]] = {
    "convnet": {"name": "convnet", "preset": "digits", "width": 0.5, "input_shape": (1, 8, 8)},
    "vgg": {"name": "vgg16", "width": 0.0625, "input_shape": (3, 32, 32)},
    "preresnet": {"name": "preresnet11", "width": 0.25, "input_shape": (3, 8, 8)},
    "resnet": {"name": "resnet18", "width": 0.125, "input_shape": (3, 32, 32)},
}


def coloured(shape: tuple[int, ...], n: int = 96, classes: int = 4) -> DataSet:
    """Noise images whose mean tells their class."""
    generator = torch.Generator().manual_seed(0)
    targets = torch.arange(n) % classes
    images = torch.randn(n, *shape, generator=generator) + targets.view(-1, *[1] * len(shape))
    parts = [TensorSplit(images[at], targets[at]) for at in (slice(0, n // 2), slice(0, 0), slice(n // 2, n))]
    names = tuple(map(str, range(classes)))
    return DataSet("coloured", *parts, shape, classes, names, "classification", "none")


def context(network: str = "convnet", epochs: int = 2, folder: Path | None = None, **changes: Any) -> RunContext:
    """A bench on 200 digits, or on coloured noise for networks that need larger images."""
    asked = NETWORKS[network]
    small = network == "convnet"
    dataset = data.load("digits", train_size=200, validation=0.1) if small else coloured(asked["input_shape"])
    plan = changes.pop("plan", TrainingConfig(epochs=epochs, batch_size=32))
    return RunContext(
        build=lambda seed: models.build(classes=dataset.outputs, seed=seed, **asked),
        dataset=dataset,
        plan=plan,
        folder=folder,
        probe_size=48,
        progress=ConsoleProgress(Console(file=StringIO(), width=500)),
        **changes,
    )


def said(context: RunContext) -> str:
    """What the run told its user."""
    file = context.progress.console.file
    assert isinstance(file, StringIO)
    return file.getvalue()


def with_validation(there: RunContext) -> RunContext:
    """The context with validation images, and the memory layout in which oneDNN 3.12 can train strided 1x1 convolutions
    of two to five channels: with channels last it corrupts the heap."""
    data = there.dataset
    plan = there.plan.model_copy(update={"channels_last": False})
    return replace(there, plan=plan, dataset=replace(data, validation=data.test) if not len(data.validation) else data)
