"""A data set as a value: three splits that never mix, what they hold, and a hash of it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from splinecut.training.data.batch_order import Order
from splinecut.training.seeding import generator


class Split(Protocol):
    """Rows that can be walked in batches. Every epoch's order and augmentation follow from (seed, epoch) alone."""

    @property
    def targets(self) -> Tensor:
        """Class numbers, int64 (rows,), or for regression values, float32 (rows, outputs)."""

    def __len__(self) -> int: ...

    def batches(
        self, order: Order, *, augment: bool = True, device: torch.device | str = "cpu", channels_last: bool = False
    ) -> Iterator[tuple[Tensor, Tensor]]:
        """Inputs and targets, batch by batch, as the network sees them.

        A shuffled order is one of training: with `augment`, and where the set has an augmentation, inputs are
        augmented. The batches that `order` skips are neither read nor augmented.
        """

    def examples(self, rows: Tensor | list[int], device: torch.device | str = "cpu") -> Tensor:
        """The inputs of these rows as the network sees them, not augmented."""

    def subset(self, rows: Tensor) -> Split:
        """Only these rows."""


@dataclass(frozen=True)
class DataSet:
    """`train` to learn from, `validation` to decide by, `test` to report; `hash` is sha256 over the whole contents.

    `task` is "classification" or "regression"; `outputs` is the number of classes or of values to predict.
    """

    name: str
    train: Split
    validation: Split
    test: Split
    input_shape: tuple[int, ...]
    outputs: int
    class_names: tuple[str, ...]
    task: str
    hash: str

    @property
    def classes(self) -> int:
        """How many classes there are; none for regression."""
        return len(self.class_names)


def held_out(targets: Tensor, share: float, seed: int) -> tuple[Tensor, Tensor]:
    """Row numbers (kept, held): a random `share` is held out, the same share of every class as nearly as can be.

    Exactly round(share x rows) rows are held. Each class gives the whole part of its share, and the
    rest comes from the classes with the largest fractions, the lower class first where they tie.
    """
    rows = len(targets)
    classes = targets if targets.dtype == torch.int64 else torch.zeros(rows, dtype=torch.int64)
    wanted = torch.bincount(classes).double() * share
    quota = wanted.floor().long()
    missing = round(share * rows) - int(quota.sum())
    if missing > 0:
        quota[torch.argsort(quota - wanted, stable=True)[:missing]] += 1
    shuffled = torch.randperm(rows, generator=generator(seed))
    by_class = shuffled[torch.argsort(classes[shuffled], stable=True)]
    sizes = torch.bincount(classes).tolist()
    chosen = [group[:count] for group, count in zip(by_class.split(sizes), quota.tolist(), strict=True)]
    is_held = torch.zeros(rows, dtype=torch.bool)
    is_held[torch.cat(chosen)] = True
    return (~is_held).nonzero().flatten(), is_held.nonzero().flatten()
