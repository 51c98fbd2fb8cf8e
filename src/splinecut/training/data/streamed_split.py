"""A split too large for memory: images are read, cropped and mirrored by worker processes as they are needed."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

import numpy as np
import torch
from jaxtyping import Int64, UInt8
from PIL import Image
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from splinecut.errors import InputError
from splinecut.training.data.batch_order import Order
from splinecut.training.data.encoded_images import Encoded, decode, in_mode
from splinecut.training.data.transforms import Pixels

# The standard augmentation of ImageNet (Szegedy et al. 2015): share of the area and width / height of a crop.
AREA, ASPECT, TRIES = (0.08, 1.0), (3 / 4, 4 / 3), 10
RESIZE = 256 / 224  # evaluation resizes to this many times the crop


@dataclass(frozen=True, eq=False)
class StreamedSplit:
    """Rows read from storage when asked for; `rows` are those of `images` that belong to the split.

    Every image becomes `side` x `side` pixels: in training a random crop, resized and mirrored half of the time, as a
    function of (seed, epoch, row); otherwise the centre of the image after resizing its shorter side.
    """

    images: Encoded
    labels: Int64[Tensor, " stored"]
    rows: Int64[Tensor, " rows"]
    pixels: Pixels
    side: int
    workers: int = 0

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def targets(self) -> Int64[Tensor, " rows"]:
        """The class number of every row."""
        return self.labels[self.rows]

    def batches(
        self, order: Order, *, augment: bool = True, device: torch.device | str = "cpu", channels_last: bool = False
    ) -> Iterator[tuple[Tensor, Tensor]]:
        """Inputs and targets, batch by batch; see `Split`."""
        shares = [self.rows[batch[order.share]] for _, batch in order.batches(len(self))]
        key = (order.seed, order.epoch) if order.shuffle and augment else None
        loader = self._loader(shares, key, pinned=torch.device(device).type == "cuda")
        for images, rows in zip(loader, shares, strict=True):
            if isinstance(images, InputError):
                raise images
            seen = self.pixels.normalise(images.to(device, non_blocking=True), channels_last)
            yield seen, self.labels[rows].to(device, non_blocking=True)

    def examples(self, rows: Tensor | list[int], device: torch.device | str = "cpu") -> Tensor:
        """The inputs of these rows as the network sees them, not augmented."""
        crops = [centre_crop(self.images, row, self._channels, self.side) for row in self.rows[rows].tolist()]
        return self.pixels.normalise(torch.stack(crops).to(device))

    def subset(self, rows: Tensor) -> StreamedSplit:
        """Only these rows."""
        return replace(self, rows=self.rows[rows])

    @property
    def _channels(self) -> int:
        return len(self.pixels.mean)

    def _loader(self, shares: list[Tensor], key: tuple[int, int] | None, pinned: bool) -> DataLoader:
        return DataLoader(
            _Crops(self.images, self._channels, self.side, key),
            batch_sampler=[share.tolist() for share in shares],
            collate_fn=_stacked,
            num_workers=self.workers,
            pin_memory=pinned,
            generator=torch.Generator(),  # its own, or it would draw from the global one
        )


@dataclass(frozen=True)
class _Crops(Dataset):
    """The crop of each row in one epoch; errors come as values, since a worker wraps raised ones in its traceback."""

    images: Encoded
    channels: int
    side: int
    key: tuple[int, int] | None

    def __getitem__(self, row: int) -> UInt8[Tensor, "channels side side"] | InputError:
        try:
            if self.key is None:
                return centre_crop(self.images, row, self.channels, self.side)
            generator = np.random.default_rng([*self.key, row])
            return random_crop(self.images, row, self.channels, self.side, generator)
        except InputError as error:
            return error


def _stacked(crops: list[Tensor | InputError]) -> Tensor | InputError:
    for crop in crops:
        if isinstance(crop, InputError):
            return crop
    return torch.stack([crop for crop in crops if isinstance(crop, Tensor)])


def random_crop(
    images: Encoded, row: int, channels: int, side: int, generator: np.random.Generator
) -> UInt8[Tensor, "channels side side"]:
    """A random part of the image, resized to `side` and mirrored half of the time."""

    def crop(image: Image.Image) -> Tensor:
        left, top, width, height = _random_box(*image.size, generator)
        box = (left, top, left + width, top + height)
        part = in_mode(image, channels).resize((side, side), Image.Resampling.BILINEAR, box=box)
        pixels = _pixels(part)
        return pixels.flip(-1) if generator.random() < 0.5 else pixels

    return decode(images, row, crop)


def centre_crop(images: Encoded, row: int, channels: int, side: int) -> UInt8[Tensor, "channels side side"]:
    """The middle of the image, once its shorter side is resized to 256/224 of `side`."""

    def crop(image: Image.Image) -> Tensor:
        scale = round(side * RESIZE) / min(image.size)
        width, height = (max(side, int(length * scale + 1e-9)) for length in image.size)
        resized = in_mode(image, channels).resize((width, height), Image.Resampling.BILINEAR)
        left, top = round((width - side) / 2), round((height - side) / 2)
        return _pixels(resized.crop((left, top, left + side, top + side)))

    return decode(images, row, crop)


def _random_box(width: int, height: int, generator: np.random.Generator) -> tuple[int, int, int, int]:
    """Left, top, width and height of a crop with random area and aspect; the largest allowed one if none fits."""
    for _ in range(TRIES):
        area = width * height * generator.uniform(*AREA)
        aspect = math.exp(generator.uniform(math.log(ASPECT[0]), math.log(ASPECT[1])))
        across, down = round(math.sqrt(area * aspect)), round(math.sqrt(area / aspect))
        if 0 < across <= width and 0 < down <= height:
            left = int(generator.integers(0, width - across + 1))
            return left, int(generator.integers(0, height - down + 1)), across, down
    across = min(width, max(1, round(height * ASPECT[1])))
    down = min(height, max(1, round(width / ASPECT[0])))
    return (width - across) // 2, (height - down) // 2, across, down


def _pixels(image: Image.Image) -> UInt8[Tensor, "channels side side"]:
    values = torch.from_numpy(np.array(image))
    return values[None] if values.ndim == 2 else values.permute(2, 0, 1).contiguous()


def listing_digest(splits: Iterable[StreamedSplit], class_names: Iterable[str]) -> str:
    """sha256 over the places and labels of all images and over a thousand of their contents.

    Sets read this way are too large to hash whole at every start.
    """
    sha = hashlib.sha256("\0".join(class_names).encode())
    for split in splits:
        rows = split.rows.tolist()
        for row, label in zip(rows, split.targets.tolist(), strict=True):
            sha.update(f"{split.images.place(row)}\0{label}\0".encode())
        for row in rows[:: max(1, len(rows) // 1000)]:
            sha.update(split.images[row])
    return sha.hexdigest()
