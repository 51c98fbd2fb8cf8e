"""Cutting in several rounds: how much stays after each, and how long the network trains between two of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from splinecut.errors import InputError
from splinecut.pruning.budget import Budget
from splinecut.pruning.method import Round
from splinecut.training.config import TrainingConfig


def geometric(budget: Budget, n_rounds: int) -> Sequence[Round]:
    """Rounds that each keep the same share of what the one before left: keep^(i / n), the last one exactly `keep`.

    Before the last round every group keeps a unit, whatever the floor: there is no training a network that is cut
    in two.
    """
    if n_rounds < 1:
        raise InputError(f"n_rounds must be at least 1, got {n_rounds}; 1 cuts once")
    shares = [budget.keep ** (number / n_rounds) for number in range(1, n_rounds)]
    before = [replace(budget, keep=share, floor=max(1, budget.floor)) for share in shares]
    return tuple(Round(each) for each in (*before, budget))


def shortened(plan: TrainingConfig, epochs: int) -> TrainingConfig:
    """The plan in another number of epochs, its schedule squeezed alike: milestones and warm-up keep their shares."""
    schedule = plan.schedule
    shares = [milestone if milestone < 1 else milestone / max(1, plan.epochs) for milestone in schedule.milestones]
    squeezed = schedule.model_copy(
        update={
            "milestones": tuple(share for share in shares if share < 1),
            "warmup": schedule.warmup * epochs / max(1, plan.epochs),
        }
    )
    return plan.model_copy(update={"epochs": epochs, "schedule": squeezed})
