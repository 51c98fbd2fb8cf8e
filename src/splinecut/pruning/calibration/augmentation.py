"""Variations of unlabelled inputs: flips and shifts of images; the dense network says what each should give.

No label has to survive the variation, since the target is what the dense network makes of the very same input.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn import functional

from splinecut.errors import InputError, unknown
from splinecut.networks.inputs import Arguments, as_arguments, count

Augment = Callable[[Arguments, torch.Generator], Arguments]
"""Some rows of the probe, as the network's arguments, and a generator -> as many rows, varied."""

SHARE = 8  # images shift by up to this part of their side: 4 pixels of CIFAR's 32, He et al. 2016, Sec. 4.2


def resolve_augment(augment: str | Augment | None, arguments: Arguments) -> Augment | None:
    """The function that varies these inputs: for "auto", flips and shifts if they are one tensor of images."""
    if augment is None or callable(augment):
        return augment
    if augment != "auto":
        raise unknown("augment", str(augment), ("auto",), "or a function (arguments, generator) -> arguments, or None")
    return flip_and_shift if _are_images(arguments) else None


def flip_and_shift(arguments: Arguments, generator: torch.Generator) -> Arguments:
    """Mirrors half of the images left to right, and shifts each by up to an eighth of its side, edges reflected."""
    return (_shifted(_flipped(arguments[0], generator), generator), *arguments[1:])


def check_augmented(before: Arguments, after: object) -> Arguments:
    """What a function of the user's gave, if it has as many rows as it was given."""
    varied = as_arguments(after)
    if count(varied) != count(before):
        raise InputError(
            f"augment must give as many inputs as it gets, got {count(varied)} for {count(before)}; "
            "vary each input in its place"
        )
    return varied


def _are_images(arguments: Arguments) -> bool:
    """Whether the only argument is a batch of grey or colour images that are large enough to shift."""
    tensors = [value for value in arguments if isinstance(value, Tensor)]
    x = tensors[0]
    return (
        len(tensors) == 1
        and x is arguments[0]
        and x.is_floating_point()
        and x.ndim == 4
        and x.shape[1] in (1, 3)
        and min(x.shape[2:]) >= SHARE
    )


def _flipped(x: Float[Tensor, "n c h w"], generator: torch.Generator) -> Float[Tensor, "n c h w"]:
    is_flipped = torch.rand(len(x), generator=generator) < 0.5
    return torch.where(is_flipped.to(x.device)[:, None, None, None], x.flip(3), x)


def _shifted(x: Float[Tensor, "n c h w"], generator: torch.Generator) -> Float[Tensor, "n c h w"]:
    height, width = x.shape[2:]
    tall, wide = height // SHARE, width // SHARE
    padded = functional.pad(x, (wide, wide, tall, tall), mode="reflect")
    tops = torch.randint(2 * tall + 1, (len(x),), generator=generator).tolist()
    lefts = torch.randint(2 * wide + 1, (len(x),), generator=generator).tolist()
    windows = [
        image[:, top : top + height, left : left + width] for image, top, left in zip(padded, tops, lefts, strict=True)
    ]
    return torch.stack(windows)
