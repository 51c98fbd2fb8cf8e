"""Pretraining: the trainings that give a network other initial weights than random ones.

Adversarial initialisation (Liu, Papailiopoulos, Achlioptas 2019): fit the training images with random labels first.
Greedy layerwise pretraining (Belilovsky, Eickenberg, Oyallon 2019): each layer is trained under a head of its own while
all layers below it are frozen. The original has the labels; without them the head names the rotation of the image
(Gidaris, Singh, Komodakis 2018), which is our choice for what You et al. (2022) call unsupervised.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn

from splinecut.errors import InputError
from splinecut.networks.cost import forward_flops
from splinecut.training.data import DataSet, Split, TensorSplit
from splinecut.training.hooks import Hook, TrainState
from splinecut.training.initialization import Initialization
from splinecut.training.ledger import TRAIN, Phase
from splinecut.training.seeding import generator

PHASE = Phase("initialise")  # what these trainings are charged to before the first training
FITTED = 0.9999  # training accuracy at which fitting random labels ends


def with_random_labels(data: DataSet, copies: int = 1, zeroed: float = 0.1, seed: int = 0) -> DataSet:
    """The training images `copies` times, each with a share of its values zeroed and a label drawn at random."""
    split, random = _in_memory(data), generator(seed)
    inputs = split.inputs.repeat(copies, *[1] * (split.inputs.dim() - 1)).clone()
    inputs[torch.rand(inputs.shape, generator=random) < zeroed] = 0
    labels = torch.randint(data.classes, (len(inputs),), generator=random)
    return _only_training(data, replace(split, inputs=inputs, targets=labels, augmentation=None), "confused")


def rotated(data: DataSet) -> DataSet:
    """Every training image upright and turned by 90, 180 and 270 degrees; its class is the turn, no label is read."""
    split = _in_memory(data)
    inputs = torch.cat([split.inputs.rot90(turn, (-2, -1)) for turn in range(4)])
    turns = torch.arange(4).repeat_interleave(len(split.inputs))
    only = _only_training(data, TensorSplit(inputs, turns, split.pixels, split.augmentation), "rotated")
    return replace(only, outputs=4, class_names=("upright", "left", "upside down", "right"))


@dataclass(frozen=True)
class PretrainingStage:
    """One training on the way to a start; `number` counts the layers from 1, None where all are trained at once."""

    model: nn.Module
    data: DataSet
    hooks: tuple[Hook, ...]
    number: int | None = None

    def phase(self, of: Phase) -> Phase:
        """What its cost is charged to."""
        return of if self.number is None else replace(of, index=str(self.number))


def pretraining_stages(
    start: Initialization, model: nn.Module, data: DataSet, seed: int = 0
) -> Iterator[PretrainingStage]:
    """The trainings that take `model` to `start`, in order; each is to be done before the next is asked for."""
    if start.name == "adversarial":
        yield _adversarial(model, data, seed, start.copies, start.zeroed)
    elif start.is_trained:
        yield from _layerwise(model, data, seed, has_labels=start.name == "layerwise")


def _adversarial(model: nn.Module, data: DataSet, seed: int, copies: int, zeroed: float) -> PretrainingStage:
    return PretrainingStage(model, with_random_labels(data, copies, zeroed, seed), (StopWhenFitted(),))


class StopWhenFitted(Hook):
    """Ends training when nearly every label is named."""

    def after_epoch(self, state: TrainState) -> bool:
        return bool(state.history[-1]["train_accuracy"] >= FITTED)


def _layerwise(model: nn.Module, data: DataSet, seed: int, has_labels: bool) -> Iterator[PretrainingStage]:
    """The layers of `model`, one after another from the input; it must be a chain: see `_greedy`.

    A layer's cost is a forward pass of what lies below it and a training pass of itself and its head.
    """
    seen = _only_training(data, data.train, "labelled") if has_labels else rotated(data)
    device = next(model.parameters()).device
    for number, greedy in enumerate(_greedy(model, data.input_shape, seen.outputs, seed), start=1):
        yield PretrainingStage(greedy.to(device), seen, (ChargePrefixOnce(data.input_shape),), number)


class LayerwiseHead(nn.Module):
    """One layer with a head, on top of frozen layers: not trained, and in eval mode."""

    def __init__(self, below: nn.Sequential, layer: nn.Sequential, head: nn.Module) -> None:
        super().__init__()
        self.below, self.layer, self.head = below, layer, head
        below.requires_grad_(False)
        layer.requires_grad_(True)

    def forward(self, x: Tensor) -> Tensor:
        with torch.no_grad():
            x = self.below(x)
        logits: Tensor = self.head(self.layer(x))
        return logits

    def train(self, mode: bool = True) -> LayerwiseHead:
        super().train(mode)
        self.below.eval()
        return self


@dataclass
class ChargePrefixOnce(Hook):
    """Charges a forward pass, not a training pass, for the frozen layers."""

    input_shape: tuple[int, ...]

    def start(self, state: TrainState) -> None:
        assert isinstance(state.model, LayerwiseHead)
        below = forward_flops(state.model.below, self.input_shape) if len(state.model.below) else 0
        state.forward_flops -= (TRAIN - 1) * below // TRAIN


def _greedy(model: nn.Module, input_shape: tuple[int, ...], classes: int, seed: int) -> Iterator[LayerwiseHead]:
    """The layers of a chain, each under a fresh head; afterwards every parameter may be trained again."""
    chain = getattr(model, "features", None)
    if not isinstance(chain, nn.Sequential):
        raise InputError(f"layerwise training needs a chain of layers called `features`, got {type(model).__name__}")
    like, was_training = next(model.parameters()), model.training
    x = torch.zeros(2, *input_shape, dtype=like.dtype, device=like.device)
    modules, start = list(chain), 0
    try:
        for stop in [number + 1 for number, module in enumerate(modules) if isinstance(module, nn.ReLU | nn.LeakyReLU)]:
            with torch.random.fork_rng(devices=[]), torch.no_grad():
                torch.manual_seed(seed + stop)
                channels = nn.Sequential(*modules[:stop]).eval()(x).shape[1]
                head = nn.Sequential(nn.AdaptiveAvgPool2d(2), nn.Flatten(), nn.Linear(4 * channels, classes))
            yield LayerwiseHead(
                nn.Sequential(*modules[:start]), nn.Sequential(*modules[start:stop]), head.to(like.dtype)
            )
            start = stop
    finally:
        model.requires_grad_(True)
        model.train(was_training)


def _in_memory(data: DataSet) -> TensorSplit:
    if not isinstance(data.train, TensorSplit) or data.task != "classification":
        raise InputError(f"initialising by training needs labelled images held in memory, got {data.name!r}")
    return data.train


def _only_training(data: DataSet, split: Split, what: str) -> DataSet:
    """`data` with another training split and nothing to validate on: these labels mean nothing elsewhere."""
    nothing = split.subset(torch.arange(0))
    return replace(data, train=split, validation=nothing, hash=f"{what} {data.hash}")
