"""How a network is trained, as a frozen value: optimiser, schedule, epochs, batch."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

from splinecut.moved import renamed

if TYPE_CHECKING:
    from collections.abc import Iterable

    import torch

Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]
NonNegative = Annotated[float, Field(ge=0, allow_inf_nan=False)]


class Frozen(BaseModel):
    """A value that cannot change and refuses keys it does not know."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class Optimizer(Frozen):
    """Which optimiser, and its constants; the defaults are the paper's (SGD 0.1, momentum 0.9, decay 1e-4)."""

    name: Literal["sgd", "adam", "adagrad", "rmsprop"] = "sgd"
    lr: Positive = 0.1
    momentum: Annotated[float, Field(ge=0, lt=1)] = 0.9  # SGD and RMSprop
    nesterov: bool = False  # SGD
    weight_decay: NonNegative = 1e-4

    def build(self, parameters: Iterable[torch.nn.Parameter]) -> torch.optim.Optimizer:
        """The torch optimiser over `parameters`."""
        import torch

        if self.name == "sgd":
            return torch.optim.SGD(
                parameters,
                lr=self.lr,
                momentum=self.momentum,
                weight_decay=self.weight_decay,
                nesterov=self.nesterov,
            )
        if self.name == "rmsprop":
            return torch.optim.RMSprop(parameters, lr=self.lr, momentum=self.momentum, weight_decay=self.weight_decay)
        kind = {"adam": torch.optim.Adam, "adagrad": torch.optim.Adagrad}[self.name]
        return kind(parameters, lr=self.lr, weight_decay=self.weight_decay)


class Schedule(Frozen):
    """How the learning rate moves during training.

    step       x gamma at each milestone: below 1 a share of all epochs, else an epoch (the paper: 80 and 120 of 160)
    cosine     from 1 to 0 along half a cosine
    one-cycle  up linearly over the first 30 % of the steps, then down to 0 along half a cosine (Smith & Topin 2018)
    constant   stays
    """

    name: Literal["step", "cosine", "one-cycle", "constant"] = "step"
    milestones: tuple[Positive, ...] = (0.5, 0.75)
    gamma: Annotated[float, Field(gt=0, le=1)] = 0.1
    warmup: NonNegative = 0.0  # epochs of linear rise from 0 before the schedule proper

    def factor(self, step: int, epochs: int, steps_per_epoch: int) -> float:
        """What the base learning rate is multiplied by at `step` (the first is 0).

        A function of the position alone: nothing to save, and a resumed run cannot drift.
        """
        total = epochs * steps_per_epoch
        rise = min(1.0, (step + 1) / (self.warmup * steps_per_epoch)) if self.warmup else 1.0
        if self.name == "constant":
            return rise
        if self.name == "cosine":
            return rise * 0.5 * (1 + math.cos(math.pi * step / total))
        if self.name == "one-cycle":
            peak = max(1, round(0.3 * total))
            if step < peak:
                return rise * (step + 1) / peak
            return rise * 0.5 * (1 + math.cos(math.pi * (step - peak) / max(1, total - peak)))
        epoch = step // steps_per_epoch
        passed = sum(epoch >= (m * epochs if m < 1 else m) for m in self.milestones)
        return rise * self.gamma**passed


class TrainingConfig(Frozen):
    """One training: how long, in what batches, by which optimiser and schedule.

    `precision` is the dtype of weights and activations; on CUDA float32 trains under automatic mixed precision
    unless `amp` is false. `checkpoint_minutes` adds checkpoints inside long epochs to the one at each epoch's end.
    """

    epochs: Annotated[int, Field(ge=0)] = 160
    batch_size: Annotated[int, Field(ge=1)] = 256
    optimizer: Optimizer = Optimizer()
    schedule: Schedule = Schedule()
    label_smoothing: Annotated[float, Field(ge=0, lt=1)] = 0.0
    augment: bool = True  # by the data set's own recipe; sets without one are not augmented
    precision: Literal["float32", "float64"] = "float32"
    amp: bool = True
    channels_last: bool = True
    checkpoint_minutes: Positive = 5.0


__getattr__ = renamed(__name__, {"Plan": "TrainingConfig"})
