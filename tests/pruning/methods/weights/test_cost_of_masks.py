"""What single-weight pruning costs: no credit in `paper` and `full`, the share of weights in `sparse`."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn

from splinecut.networks import cost, models
from splinecut.pruning.methods.weights.rigl import MoveMask
from splinecut.pruning.weight_mask import WeightMaskHook, masked_flops, nonzeros, prunable_weights
from splinecut.training import data
from splinecut.training.config import TrainingConfig
from splinecut.training.hooks import Hook, TrainState
from splinecut.training.ledger import FORWARD, Charge, Ledger
from splinecut.training.loop import train


@pytest.fixture(scope="module")
def digits() -> data.DataSet:
    return data.load("digits", train_size=160, validation=0.0)


def small() -> nn.Module:
    return models.build("convnet", preset="digits", width=0.25, classes=10, in_channels=1, seed=0)


def half(model: nn.Module) -> dict[str, np.ndarray]:
    """Every second weight of each layer."""
    return {name: np.arange(w.numel()).reshape(w.shape) % 2 == 0 for name, w in prunable_weights(model).items()}


def test_flops_by_module_are_two_per_weight_and_position() -> None:
    flops = cost.flops_by_module(small(), (1, 8, 8))
    # 4 filters of 3x3 at 8x8 places, 8 of 4x3x3 at 4x4, then 128 inputs to 10 classes.
    assert flops["features.0"] == 2 * 4 * 9 * 64
    assert flops["features.3"] == 2 * 8 * 4 * 9 * 16
    assert flops["classifier"] == 2 * 128 * 10
    assert flops[""] == flops["features"] + flops["classifier"] == cost.forward_flops(small(), (1, 8, 8))


def test_idle_flops_are_each_layers_share_of_removed_weights() -> None:
    model = small()
    keep = {name: np.zeros(tuple(w.shape), bool) for name, w in prunable_weights(model).items()}
    keep["features.0.weight"][:1] = True  # one filter of four
    expected = 2 * 3 * 9 * 64 + 2 * 8 * 4 * 9 * 16 + 2 * 128 * 10
    assert masked_flops(model, keep, (1, 8, 8)) == expected
    assert masked_flops(model, {name: np.ones_like(k) for name, k in keep.items()}, (1, 8, 8)) == 0


def test_a_masked_training_costs_the_dense_count_and_half_of_it_on_a_sparse_machine(digits: data.DataSet) -> None:
    model, ledger = small(), Ledger()
    dense = 3 * cost.forward_flops(model, (1, 8, 8)) * len(digits.train) * 2
    train(model, digits, TrainingConfig(epochs=2, batch_size=32), ledger=ledger, hooks=[WeightMaskHook(half(model))])
    assert ledger.total.flops == ledger.total.paper_flops == dense
    assert ledger.total.sparse_flops == dense // 2


def test_a_dense_training_costs_the_same_on_a_sparse_machine(digits: data.DataSet) -> None:
    ledger = Ledger()
    train(small(), digits, TrainingConfig(epochs=1, batch_size=32), ledger=ledger)
    assert ledger.total.sparse_flops == ledger.total.flops > 0


def test_a_moving_mask_pays_for_dense_weight_gradients_when_it_moves(digits: data.DataSet) -> None:
    """(every - 1) steps of 3 f_S and one of 2 f_S + f_D: Evci et al. 2020, a move being a step of its own."""
    model, ledger = small(), Ledger()
    hook = MoveMask(half(model), every=4, until=1.0, drop=0.3)
    train(model, digits, TrainingConfig(epochs=2, batch_size=32), ledger=ledger, hooks=[hook])
    dense = cost.forward_flops(model, (1, 8, 8))
    sparse = dense // 2
    moves = [4, 8]  # of the steps 0..9
    expected = 32 * ((10 - len(moves)) * 3 * sparse + len(moves) * (2 * sparse + dense))
    assert ledger.total.sparse_flops == expected


def test_a_ledger_written_before_there_was_a_sparse_column_can_be_read() -> None:
    old = {"train": {"flops": 12, "paper_flops": 12, "images": 1, "seconds": 0.5, "joules": None}}
    assert Ledger.from_dict(old).total == Charge(12, 12, 1, 0.5)
    assert Ledger.from_dict(old).total.sparse_flops == 12


def test_spared_flops_survive_being_written_down_and_add_up() -> None:
    ledger = Ledger()
    ledger.charge("train", 10, 4, spared_flops=24)
    ledger.charge("test", 10, 4, FORWARD)
    assert Ledger.from_dict(ledger.to_dict()).phases == ledger.phases
    assert ledger.total.flops - ledger.total.sparse_flops == 96


def test_removed_weights_are_exactly_zero_after_a_hundred_steps_with_momentum_and_decay(digits: data.DataSet) -> None:
    model = small()
    keep = half(model)

    class Look(Hook):
        def end(self, state: TrainState) -> None:
            self.steps = state.step
            for name, parameter in prunable_weights(state.model).items():
                gone = torch.from_numpy(~keep[name])
                assert not parameter[gone].any()
                assert not state.optimizer.state[parameter]["momentum_buffer"][gone].any()

    look = Look()
    train(model, digits, TrainingConfig(epochs=20, batch_size=32), hooks=[WeightMaskHook(keep), look])
    assert look.steps == 100
    assert nonzeros(model)[0] == sum(int(stays.sum()) for stays in keep.values())


def test_a_hook_can_leave_the_optimiser_out_of_a_step(digits: data.DataSet) -> None:
    class Skip(Hook):
        def after_backward(self, state: TrainState) -> bool:
            self.before = [p.detach().clone() for p in state.model.parameters()]
            return state.step == 3

        def after_step(self, state: TrainState) -> None:
            moved = [not torch.equal(a, b) for a, b in zip(self.before, state.model.parameters(), strict=True)]
            steps.append(any(moved))

    steps: list[bool] = []
    train(small(), digits, TrainingConfig(epochs=1, batch_size=32), hooks=[Skip()])
    assert steps == [True, True, True, False, True]
