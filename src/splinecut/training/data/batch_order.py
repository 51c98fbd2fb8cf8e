"""The rows of each batch as a function of seed, epoch and batch number, so that resuming needs no replay."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from jaxtyping import Int64
from torch import Tensor

from splinecut.training.seeding import generator


@dataclass(frozen=True)
class Order:
    """The order in which one epoch goes through a split.

    Shuffled, its order follows from (seed, epoch) alone; otherwise rows come as stored. Of every global batch a
    process takes the rows rank, rank + world, ...: whatever `world` is, the processes together see the same batches.
    """

    batch_size: int
    shuffle: bool
    seed: int = 0
    epoch: int = 0
    skip: int = 0
    rank: int = 0
    world: int = 1

    @property
    def share(self) -> slice:
        """This process's part of a global batch."""
        return slice(self.rank, None, self.world)

    def batches(self, rows: int) -> Iterator[tuple[int, Int64[Tensor, " batch"]]]:
        """Number and rows of every global batch after the first `skip`; the last one may be smaller."""
        order = torch.randperm(rows, generator=generator(self.seed, self.epoch)) if self.shuffle else torch.arange(rows)
        # Split first, then shared out: global batches are the same whatever the number of processes.
        for number, batch in enumerate(order.split(self.batch_size)):
            # A last batch smaller than `world` leaves some processes without a row.
            if number >= self.skip and len(batch) > self.rank:
                yield number, batch

    def generator(self, batch: int) -> torch.Generator:
        """The randomness of one batch."""
        return generator(self.seed, self.epoch, batch)
