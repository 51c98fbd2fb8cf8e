"""A split in memory: images as bytes or points as floats, gathered and augmented per batch."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from splinecut.training.data.batch_order import Order
from splinecut.training.data.transforms import Augmentation, Pixels


@dataclass(frozen=True, eq=False)
class TensorSplit:
    """Rows held as tensors.

    inputs: images, uint8 (rows, channels, height, width), seen through `pixels`; or points, float32 (rows, features)
    targets: class numbers, int64 (rows,), or values, float32 (rows, outputs)
    augmentation: what training does to the images before it sees them
    """

    inputs: Tensor
    targets: Tensor
    pixels: Pixels | None = None
    augmentation: Augmentation | None = None

    def __len__(self) -> int:
        return len(self.targets)

    def batches(
        self, order: Order, *, augment: bool = True, device: torch.device | str = "cpu", channels_last: bool = False
    ) -> Iterator[tuple[Tensor, Tensor]]:
        """Inputs and targets, batch by batch; see `Split`."""
        change = self.augmentation if order.shuffle and augment else None
        for number, batch in order.batches(len(self)):
            rows = batch[order.share].to(self.inputs.device)
            inputs = self.inputs[rows]
            if change is not None:
                inputs = change(inputs, order.generator(number), order.share, len(batch))
            inputs = self._seen(inputs.to(device, non_blocking=True), channels_last)
            yield inputs, self.targets[rows].to(device, non_blocking=True)

    def examples(self, rows: Tensor | list[int], device: torch.device | str = "cpu") -> Tensor:
        """The inputs of these rows as the network sees them, not augmented."""
        return self._seen(self.inputs[torch.as_tensor(rows)].to(device))

    def subset(self, rows: Tensor) -> TensorSplit:
        """Only these rows."""
        return replace(self, inputs=self.inputs[rows], targets=self.targets[rows])

    def _seen(self, inputs: Tensor, channels_last: bool = False) -> Tensor:
        return inputs if self.pixels is None else self.pixels.normalise(inputs, channels_last)


def digest(splits: Iterable[TensorSplit], class_names: Iterable[str]) -> str:
    """sha256 over shapes, values and class names; the same data give the same digest wherever they were read."""
    sha = hashlib.sha256("\0".join(class_names).encode())
    for split in splits:
        for tensor in (split.inputs, split.targets):
            sha.update(f"{tensor.dtype} {tuple(tensor.shape)}".encode())
            sha.update(tensor.contiguous().numpy().data)
    return sha.hexdigest()
