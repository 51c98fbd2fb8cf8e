"""RigL: the count of weights never changes, the schedule ends at zero, what comes in comes in fresh."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
from torch import nn

import splinecut as sc
from splinecut.networks import models
from splinecut.pruning.budget import Budget
from splinecut.pruning.engine.context import RunContext
from splinecut.pruning.engine.driver import prune
from splinecut.pruning.methods.weights.rigl import MoveMask, Rigl, drop_share, moved
from splinecut.pruning.weight_mask import nonzeros, prunable_weights
from splinecut.training import data
from splinecut.training.config import Optimizer, TrainingConfig
from splinecut.training.hooks import Hook, TrainState
from splinecut.training.loop import train


@pytest.fixture(scope="module")
def digits() -> data.DataSet:
    return data.load("digits", train_size=160, validation=0.0)


def build(seed: int = 0) -> nn.Module:
    return models.build("convnet", preset="digits", width=0.25, classes=10, in_channels=1, seed=seed)


def sparse(model: nn.Module, density: float = 0.2) -> dict[str, np.ndarray]:
    ticket = sc.draw(model, torch.zeros(2, 1, 8, 8), method="erk", keep=density)
    return {name: kept.copy() for name, kept in ticket.keep.items()}


def test_a_move_worked_by_hand() -> None:
    stays = np.array([True, True, True, False, False, False])
    weight = np.array([0.5, -0.1, 0.3, 0.0, 0.0, 0.0])
    gradient = np.array([9.0, 0.2, 9.0, -0.4, 0.3, 0.0])
    # -0.1 leaves; outside the two that are kept, -0.4 pulls most.
    assert moved(stays, weight, gradient, 1).tolist() == [True, False, True, True, False, False]
    # -0.1 and 0.3 leave; 0.3 comes back by its gradient of 9.
    assert moved(stays, weight, gradient, 2).tolist() == [True, False, True, True, False, False]
    assert moved(stays, weight, gradient, 0).tolist() == stays.tolist()


@settings(derandomize=True, deadline=None, max_examples=60)
@given(values=arrays.arrays(float, (3, 4, 5), elements=st.floats(-1, 1)), share=st.floats(0, 1))
def test_a_move_keeps_the_count_and_the_larger_weights(values: np.ndarray, share: float) -> None:
    stays, weight, gradient = values[0] > 0, np.where(values[0] > 0, values[1], 0.0), values[2]
    n = int(share * stays.sum())
    after = moved(stays, weight, gradient, n)
    left, came = stays & ~after, after & ~stays
    assert after.sum() == stays.sum() and left.sum() == came.sum() <= n
    if left.any():
        # What left was among the n smallest, and nothing outside pulled less than what came in.
        assert np.abs(weight[left]).max() <= np.sort(np.abs(weight[stays]))[n - 1]
        assert np.abs(gradient[came]).min() >= np.abs(gradient[~stays & ~after]).max(initial=0.0)


def test_the_share_replaced_falls_from_drop_to_zero_along_half_a_cosine() -> None:
    assert drop_share(0, 300, 0.3) == pytest.approx(0.3)
    assert drop_share(150, 300, 0.3) == pytest.approx(0.15)
    assert drop_share(100, 300, 0.3) == pytest.approx(0.15 * (1 + math.cos(math.pi / 3)))
    assert drop_share(300, 300, 0.3) == drop_share(1000, 300, 0.3) == 0.0
    shares = [drop_share(step, 300, 0.3) for step in range(301)]
    assert shares == sorted(shares, reverse=True)


class Events(Hook):
    """Looks at the mask and the optimiser after every step."""

    def __init__(self, mask: MoveMask) -> None:
        self.mask, self.before = mask, {name: kept.copy() for name, kept in mask.keep.items()}
        self.moves: list[tuple[int, dict[str, int], dict[str, int]]] = []

    def start(self, state: TrainState) -> None:
        self.weights = {n: p.detach().clone() for n, p in state.model.named_parameters()}

    def after_step(self, state: TrainState) -> None:
        left = {n: int((self.before[n] & ~k).sum()) for n, k in self.mask.keep.items()}
        came = {n: int((k & ~self.before[n]).sum()) for n, k in self.mask.keep.items()}
        if any(came.values()):
            self.moves.append((state.step - 1, left, came))
            self._check_move(state)
        for name, parameter in prunable_weights(state.model).items():
            gone = torch.from_numpy(~self.mask.keep[name])
            assert not parameter[gone].any()
            for buffer in state.optimizer.state[parameter].values():
                assert buffer.dim() == 0 or not buffer[gone].any()
        self.before = {name: kept.copy() for name, kept in self.mask.keep.items()}
        self.weights = {n: p.detach().clone() for n, p in state.model.named_parameters()}

    def _check_move(self, state: TrainState) -> None:
        for name, parameter in state.model.named_parameters():
            if name not in self.mask.keep:
                assert torch.equal(parameter, self.weights[name])  # the optimiser was left out
                continue
            stayed = torch.from_numpy(self.mask.keep[name] & self.before[name])
            came = torch.from_numpy(self.mask.keep[name] & ~self.before[name])
            assert torch.equal(parameter[stayed], self.weights[name][stayed])
            assert not parameter[came].any()
            for buffer in state.optimizer.state[parameter].values():
                assert buffer.dim() == 0 or not buffer[came].any()


@pytest.mark.parametrize("optimizer", [Optimizer(), Optimizer(name="adam", lr=0.01)])
def test_every_move_keeps_each_layers_count_and_starts_what_comes_in_at_zero_without_momentum(
    digits: data.DataSet, optimizer: Optimizer
) -> None:
    model = build()
    keep = sparse(model)
    mask = MoveMask(keep, every=4, until=0.75, drop=0.3)
    events = Events(mask)
    train(model, digits, TrainingConfig(epochs=6, batch_size=32, optimizer=optimizer), hooks=[mask, events])
    # 30 steps, moves until step 22.5.
    assert [step for step, _, _ in events.moves] == [4, 8, 12, 16, 20]
    for step, left, came in events.moves:
        assert left == came
        most = {n: int(drop_share(step, 22.5, 0.3) * kept.sum()) for n, kept in keep.items()}
        assert all(came[name] <= most[name] for name in came)
    assert {n: k.sum() for n, k in mask.keep.items()} == {n: k.sum() for n, k in keep.items()}
    assert nonzeros(model)[0] <= sum(int(k.sum()) for k in keep.values())


def test_what_comes_in_is_what_the_dense_gradient_pulls_most(digits: data.DataSet) -> None:
    seen = {}

    class Look(Hook):
        def after_backward(self, state: TrainState) -> None:
            if state.step == 4:
                for name, parameter in prunable_weights(state.model).items():
                    seen[name] = (mask.keep[name].copy(), parameter.detach().clone(), parameter.grad.clone())

    model = build()
    mask = MoveMask(sparse(model), every=4, until=1.0, drop=0.5)
    events = Events(mask)
    train(model, digits, TrainingConfig(epochs=1, batch_size=32), hooks=[Look(), mask, events])
    assert len(events.moves) == 1
    for name, (before, weight, gradient) in seen.items():
        n = int(drop_share(4, 5, 0.5) * before.sum())
        active = np.argwhere(before.reshape(-1)).reshape(-1)
        smallest = sorted(active, key=lambda i: (abs(float(weight.reshape(-1)[i])), -i))[:n]
        kept = set(active.tolist()) - {int(i) for i in smallest}
        outside = [i for i in range(before.size) if i not in kept]
        pulled = sorted(outside, key=lambda i: (-abs(float(gradient.reshape(-1)[i])), i))[:n]
        assert set(np.flatnonzero(mask.keep[name]).tolist()) == kept | set(pulled), name


@pytest.mark.parametrize("densities", ["erk", "uniform"])
def test_the_driver_ends_with_the_moved_mask_and_the_densities_it_began_with(digits: data.DataSet, densities) -> None:
    context = RunContext(build, digits, TrainingConfig(epochs=3, batch_size=32), probe_size=32)
    method = Rigl(densities=densities, every=3)
    outcome = prune(context, "rigl", method, Budget(0.1, "weights"))
    static = sc.draw(build(0), torch.zeros(2, 1, 8, 8), method=densities, keep=0.1)
    assert {n: int(k.sum()) for n, k in outcome.ticket.keep.items()} == {
        n: int(k.sum()) for n, k in static.keep.items()
    }
    assert outcome.ticket.distance(static) > 0
    for name, weight in prunable_weights(outcome.final.model).items():
        assert not weight[torch.from_numpy(~outcome.ticket.keep[name])].any()


def test_stopped_between_moves_it_goes_on_exactly(digits: data.DataSet, tmp_path: Path) -> None:
    class Stop(Hook):
        def after_step(self, state: TrainState) -> None:
            if state.step == 10:
                raise KeyboardInterrupt

    def run(*extra: Hook, **options) -> tuple[nn.Module, MoveMask]:
        model = build()
        mask = MoveMask(sparse(model), every=4, until=0.75, drop=0.3)
        plan = TrainingConfig(epochs=6, batch_size=32, checkpoint_minutes=1e-9)  # a checkpoint after every step
        train(model, digits, plan, hooks=[mask, *extra], **options)
        return model, mask

    whole, expected = run()
    with pytest.raises(KeyboardInterrupt):
        run(Stop(), checkpoints=tmp_path)
    parts, mask = run(checkpoints=tmp_path)
    assert all(np.array_equal(mask.keep[name], kept) for name, kept in expected.keep.items())
    assert all(torch.equal(a, b) for a, b in zip(whole.state_dict().values(), parts.state_dict().values(), strict=True))


@pytest.mark.parametrize("options", [{"densities": "erd"}, {"every": 0}, {"until": 0.0}, {"drop": 1.5}])
def test_senseless_options_are_refused(options) -> None:
    with pytest.raises(sc.InputError):
        Rigl(**options)
