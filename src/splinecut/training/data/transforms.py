"""Pixels on their way from storage to a network: shifted and mirrored at random, then normalised."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int64, UInt8
from torch import Tensor


@dataclass(frozen=True)
class Pixels:
    """Stored values run from 0 to `levels`; the network sees (value / levels - mean) / std, per channel."""

    mean: tuple[float, ...]
    std: tuple[float, ...]
    levels: int = 255

    def normalise(
        self, images: UInt8[Tensor, "batch channels height width"], channels_last: bool = False
    ) -> Float[Tensor, "batch channels height width"]:
        """The images as the network sees them, in one conversion and two passes."""
        mean, std = (torch.tensor(values, device=images.device).view(-1, 1, 1) for values in (self.mean, self.std))
        layout = torch.channels_last if channels_last else torch.contiguous_format
        values = images.to(torch.float32, memory_format=layout)
        return values.mul_(1 / (self.levels * std)).sub_(mean / std)


@dataclass(frozen=True)
class Augmentation:
    """Images shifted by up to `padding` pixels each way and, with `mirror`, flipped left-right half of the time."""

    padding: int = 4  # pixels, as usual on CIFAR (He et al. 2016)
    mirror: bool = True

    def __call__(
        self,
        images: UInt8[Tensor, "batch channels height width"],
        generator: torch.Generator,
        share: slice = slice(None),
        total: int | None = None,
    ) -> UInt8[Tensor, "batch channels height width"]:
        """The images changed at random.

        They are the `share` of a batch of `total`; the draws are made for all of it, so that an image is
        changed in the same way whichever process holds it.
        """
        total = len(images) if total is None else total
        top, left = torch.randint(0, 2 * self.padding + 1, (2, total), generator=generator).to(images.device)
        mirrored = (torch.rand(total, generator=generator) < 0.5 * self.mirror).to(images.device)
        return shift_and_mirror(images, top[share], left[share], mirrored[share], self.padding)


def measured(images: UInt8[Tensor, "batch channels height width"], levels: int = 255) -> Pixels:
    """The normalisation that gives these images mean 0 and deviation 1 in each channel.

    From a histogram of the stored levels, which is exact and needs no copy of the set in floating point.
    """
    mean, std = [], []
    for channel in images.unbind(1):
        counts = torch.bincount(channel.reshape(-1), minlength=levels + 1).double()
        values = torch.arange(len(counts), dtype=torch.float64) / levels
        average = (counts * values).sum() / counts.sum()
        spread = ((counts * (values - average) ** 2).sum() / counts.sum()).sqrt()
        mean.append(round(average.item(), 6))
        # A constant channel (all black) would divide by zero.
        std.append(round(spread.item(), 6) or 1.0)
    return Pixels(tuple(mean), tuple(std), levels)


def shift_and_mirror(
    images: UInt8[Tensor, "batch channels height width"],
    top: Int64[Tensor, " batch"],
    left: Int64[Tensor, " batch"],
    mirrored: Bool[Tensor, " batch"],
    padding: int,
) -> UInt8[Tensor, "batch channels height width"]:
    """Each image padded with black, cropped to its own size at (top, left), and flipped left-right where `mirrored`.

    One gather over flat pixel positions: about three times as fast as indexing with broadcast rows and columns.
    """
    batch, channels, height, width = images.shape
    padded = torch.nn.functional.pad(images, (padding,) * 4)
    across = torch.arange(width, device=images.device)
    columns = torch.where(mirrored[:, None], width - 1 - across, across) + left[:, None]
    rows = torch.arange(height, device=images.device) + top[:, None]
    positions = rows[:, :, None] * padded.shape[-1] + columns[:, None, :]
    flat = positions.view(batch, 1, height * width).expand(-1, channels, -1)
    return padded.flatten(2).gather(2, flat).view_as(images)
