"""Sets that need no file: scikit-learn's digits, and the paper's generated toys."""

from __future__ import annotations

import torch
from jaxtyping import Float, Int64
from torch import Tensor

from splinecut.training.data.dataset import DataSet, held_out
from splinecut.training.data.tensor_split import TensorSplit, digest
from splinecut.training.data.transforms import Augmentation, measured
from splinecut.training.seeding import generator

CONTENTS = 0  # seed of what the sets hold and of their test rows; a run's seed moves neither
TEST_SHARE = 0.2  # as the authors' code splits its toy set


def x_shape(
    generator: torch.Generator, points: int = 2000
) -> tuple[Float[Tensor, "points 2"], Int64[Tensor, " points"]]:
    """Points uniform on [-5, 5]^2; class 1 above and below the cross |y| = |x|, class 0 left and right of it."""
    xy = torch.rand(points, 2, generator=generator) * 10 - 5
    return xy, (xy[:, 1].abs() > xy[:, 0].abs()).long()


def sawtooth(
    generator: torch.Generator, points: int = 2000, peaks: int = 2
) -> tuple[Float[Tensor, "points 1"], Float[Tensor, "points 1"]]:
    """Points uniform on [0, 2 peaks + 1] and the height there of a line with teeth of height 1 at 2, 4, ....

    With 2 peaks: 0, 0, 1, 0, 1, 0 at x = 0, 1, ..., 5. The least ReLU layer that fits it has 2 peaks units with
    cuts at 1, 2, ... and outgoing weights 1, -2, 2, -2; the alternating 1, -2, 1, -2 printed in the paper does not.
    """
    x = torch.rand(points, 1, generator=generator) * (2 * peaks + 1)
    return x, torch.where(x > 1, (x % 2 - 1).abs(), 0.0)


def gaussian_mixture(
    generator: torch.Generator, points: int = 6400, side: int = 8, sigma: float = 0.1
) -> tuple[Float[Tensor, "points 2"], Int64[Tensor, " points"]]:
    """Points around the side x side centres of a unit grid about the origin, sigma apart; the class is the centre.

    Every centre has equally many points, up to one.
    """
    centre = torch.arange(points) % side**2
    grid = torch.stack([centre % side, centre // side], dim=1) - (side - 1) / 2
    return grid + sigma * torch.randn(points, 2, generator=generator), centre


def load_x_shape() -> DataSet:
    """The paper's two classes on a plane."""
    return _toy("x-shape", *x_shape(generator(CONTENTS)), ("left or right", "above or below"))


def load_sawtooth() -> DataSet:
    """The paper's regression task on a line."""
    return _toy("sawtooth", *sawtooth(generator(CONTENTS)), ())


def load_gaussian_mixture() -> DataSet:
    """64 round clusters on a plane, the paper's k-means data."""
    names = tuple(f"centre {column},{row}" for row in range(8) for column in range(8))
    return _toy("gaussian-mixture", *gaussian_mixture(generator(CONTENTS)), names)


def load_digits() -> DataSet:
    """1,797 handwritten digits of 8x8 pixels with 17 grey levels."""
    from sklearn.datasets import load_digits as read

    bunch = read()
    images = torch.from_numpy(bunch.images).to(torch.uint8)[:, None]
    labels = torch.from_numpy(bunch.target).long()
    train, test = held_out(labels, TEST_SHARE, CONTENTS)
    digits = TensorSplit(images, labels, measured(images[train], levels=16), Augmentation(padding=1, mirror=False))
    return _assembled("digits", digits, train, test, tuple("0123456789"))


def _toy(name: str, inputs: Tensor, targets: Tensor, class_names: tuple[str, ...]) -> DataSet:
    return _assembled(name, TensorSplit(inputs, targets), *held_out(targets, TEST_SHARE, CONTENTS), class_names)


def _assembled(name: str, split: TensorSplit, train: Tensor, test: Tensor, class_names: tuple[str, ...]) -> DataSet:
    """The set with its test rows apart and no validation rows yet."""
    training, testing = split.subset(train), split.subset(test)
    return DataSet(
        name=name,
        train=training,
        validation=training.subset(torch.arange(0)),
        test=testing,
        input_shape=tuple(split.inputs.shape[1:]),
        outputs=len(class_names) or split.targets.shape[1],
        class_names=class_names,
        task="classification" if class_names else "regression",
        hash=digest((training, testing), class_names),
    )
