"""Schedules are functions of the step; optimisers are the ones named."""

from __future__ import annotations

import itertools
import math

import pytest
import torch

from splinecut.training.config import Optimizer, Schedule, TrainingConfig


def test_the_papers_schedule_drops_tenfold_at_epochs_80_and_120_of_160() -> None:
    by_share, by_epoch = Schedule(), Schedule(milestones=(80, 120))
    for epoch, expected in [(0, 1), (79, 1), (80, 0.1), (119, 0.1), (120, 0.01), (159, 0.01)]:
        for schedule in (by_share, by_epoch):
            assert schedule.factor(epoch * 196, 160, 196) == pytest.approx(expected)
            assert schedule.factor(epoch * 196 + 195, 160, 196) == pytest.approx(expected)


def test_cosine_falls_from_one_towards_zero() -> None:
    factors = [Schedule(name="cosine").factor(step, 2, 50) for step in range(100)]
    assert factors[0] == 1
    assert factors[50] == pytest.approx(0.5)
    assert all(a > b for a, b in itertools.pairwise(factors))
    assert 0 < factors[-1] < 1e-3


def test_one_cycle_rises_for_three_tenths_then_falls() -> None:
    factors = [Schedule(name="one-cycle").factor(step, 1, 100) for step in range(100)]
    assert max(range(100), key=factors.__getitem__) in (29, 30)
    assert max(factors) == pytest.approx(1)
    assert factors[-1] < 1e-2


def test_warm_up_is_linear_and_then_gone() -> None:
    schedule = Schedule(name="constant", warmup=2)
    assert [schedule.factor(step, 4, 2) for step in range(6)] == [0.25, 0.5, 0.75, 1, 1, 1]


@pytest.mark.parametrize("name", ["step", "cosine", "one-cycle", "constant"])
def test_every_schedule_stays_within_zero_and_one(name: str) -> None:
    schedule = Schedule(name=name, warmup=0.5)
    for step in range(7 * 13):
        assert 0 <= schedule.factor(step, 13, 7) <= 1
        assert math.isfinite(schedule.factor(step, 13, 7))


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("sgd", torch.optim.SGD),
        ("adam", torch.optim.Adam),
        ("adagrad", torch.optim.Adagrad),
        ("rmsprop", torch.optim.RMSprop),
    ],
)
def test_an_optimiser_is_the_one_named_with_its_constants(name: str, kind: type) -> None:
    optimizer = Optimizer(name=name, lr=0.03, weight_decay=0.2).build([torch.nn.Parameter(torch.zeros(2))])
    assert type(optimizer) is kind
    assert optimizer.param_groups[0]["lr"] == 0.03
    assert optimizer.param_groups[0]["weight_decay"] == 0.2


def test_the_defaults_are_the_papers() -> None:
    plan = TrainingConfig()
    assert (plan.epochs, plan.batch_size) == (160, 256)
    assert plan.optimizer == Optimizer(name="sgd", lr=0.1, momentum=0.9, weight_decay=1e-4)
