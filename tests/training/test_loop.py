"""The training loop against a hand-written one, its hooks, and what it charges."""

from __future__ import annotations

import copy
import random
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from splinecut.networks import cost, models
from splinecut.training import data
from splinecut.training.config import Optimizer, Schedule, TrainingConfig
from splinecut.training.data.batch_order import Order
from splinecut.training.evaluate import evaluate
from splinecut.training.hooks import Hook, TrainState
from splinecut.training.ledger import Ledger
from splinecut.training.loop import train


@pytest.fixture(scope="module")
def digits() -> data.DataSet:
    return data.load("digits", train_size=300)


def small(digits: data.DataSet, seed: int = 0) -> nn.Module:
    return models.build("convnet", preset="digits", width=0.25, classes=10, input_shape=digits.input_shape, seed=seed)


def test_it_takes_the_steps_that_a_hand_written_loop_takes(digits: data.DataSet) -> None:
    plan = TrainingConfig(epochs=3, batch_size=64, schedule=Schedule(milestones=(1, 2)), channels_last=False)
    ours, bare = small(digits), small(digits)
    train(ours, digits, plan, seed=5)
    optimizer = torch.optim.SGD(bare.parameters(), lr=0.1, momentum=0.9, weight_decay=1e-4)
    for epoch, rate in enumerate((0.1, 0.01, 0.001)):
        optimizer.param_groups[0]["lr"] = rate
        for x, y in digits.train.batches(Order(64, True, seed=5, epoch=epoch)):
            optimizer.zero_grad()
            nn.functional.cross_entropy(bare(x), y).backward()
            optimizer.step()
    for a, b in zip(ours.state_dict().values(), bare.state_dict().values(), strict=True):
        assert torch.allclose(a, b, rtol=1e-5, atol=1e-6)


def test_the_same_seed_gives_the_same_weights_and_another_seed_others(digits: data.DataSet) -> None:
    def weights(seed: int) -> list[Tensor]:
        model = small(digits)
        train(model, digits, TrainingConfig(epochs=1, batch_size=64), seed=seed)
        return list(model.parameters())

    assert all(torch.equal(a, b) for a, b in zip(weights(0), weights(0), strict=True))
    assert not all(torch.equal(a, b) for a, b in zip(weights(0), weights(1), strict=True))


def test_the_global_random_state_is_put_back(digits: data.DataSet) -> None:
    before, python = torch.get_rng_state(), random.getstate()
    train(small(digits), digits, TrainingConfig(epochs=1))
    assert torch.equal(torch.get_rng_state(), before) and random.getstate() == python


def test_dropout_resumes_as_if_never_interrupted(digits: data.DataSet, tmp_path: Path) -> None:
    def net() -> nn.Module:
        torch.manual_seed(0)
        return nn.Sequential(nn.Flatten(), nn.Linear(64, 32), nn.ReLU(), nn.Dropout(0.5), nn.Linear(32, 10))

    class Stop(Hook):
        def after_epoch(self, state: TrainState) -> bool:
            if state.epoch == 2:
                raise KeyboardInterrupt
            return False

    plan = TrainingConfig(epochs=4, batch_size=64, checkpoint_minutes=1e-9)  # a checkpoint after every step
    whole, parts = net(), net()
    train(whole, digits, plan)
    with pytest.raises(KeyboardInterrupt):
        train(parts, digits, plan, hooks=[Stop()], checkpoints=tmp_path)
    parts = net()
    train(parts, digits, plan, checkpoints=tmp_path)
    assert all(torch.equal(a, b) for a, b in zip(whole.parameters(), parts.parameters(), strict=True))


class Recorder(Hook):
    name = "recorder"

    def __init__(self) -> None:
        self.calls: list[str] = []

    def start(self, state: TrainState) -> None:
        self.calls.append("start")

    def loss(self, state: TrainState, outputs: Tensor, targets: Tensor, loss: Tensor) -> Tensor:
        self.calls.append("loss")
        return loss

    def after_backward(self, state: TrainState) -> None:
        assert all(p.grad is not None for p in state.model.parameters())
        self.calls.append("backward")

    def after_step(self, state: TrainState) -> None:
        self.calls.append("step")

    def after_epoch(self, state: TrainState) -> bool:
        assert state.history[-1]["epoch"] == state.epoch
        self.calls.append("epoch")
        return state.epoch == 2

    def end(self, state: TrainState) -> None:
        self.calls.append("end")


def test_hooks_are_called_in_order_and_can_stop_training(digits: data.DataSet) -> None:
    hook = Recorder()
    history = train(small(digits), digits, TrainingConfig(epochs=9, batch_size=150), hooks=[hook])
    epoch = ["loss", "backward", "step"] * 2 + ["epoch"]
    assert hook.calls == ["start", *epoch, *epoch, "end"]
    assert [row["stopped"] for row in history] == [False, True]


def test_a_training_that_a_hook_stopped_stays_stopped_when_resumed(digits: data.DataSet, tmp_path: Path) -> None:
    plan = TrainingConfig(epochs=9, batch_size=150)
    first = train(small(digits), digits, plan, hooks=[Recorder()], checkpoints=tmp_path)
    again = Recorder()
    assert train(small(digits), digits, plan, hooks=[again], checkpoints=tmp_path) == first
    assert again.calls == ["start", "end"]


def test_a_hook_can_change_loss_and_gradient(digits: data.DataSet) -> None:
    class Freeze(Hook):
        def loss(self, state: TrainState, outputs: Tensor, targets: Tensor, loss: Tensor) -> Tensor:
            return loss * 0

        def after_backward(self, state: TrainState) -> None:
            assert all(not p.grad.any() for p in state.model.parameters() if p.grad is not None)

    model = small(digits)
    before = copy.deepcopy(dict(model.named_parameters()))
    plan = TrainingConfig(epochs=1, optimizer=Optimizer(weight_decay=0))
    train(model, digits, plan, hooks=[Freeze()])
    assert all(torch.equal(p, before[name]) for name, p in model.named_parameters())


def test_every_pass_is_charged_once(digits: data.DataSet) -> None:
    ledger, model = Ledger(), small(digits)
    train(model, digits, TrainingConfig(epochs=3, batch_size=64), ledger=ledger)
    flops = cost.forward_flops(model, digits.input_shape)
    assert ledger.phases["train"].flops == 3 * flops * 300 * 3
    assert ledger.phases["train: validate"].flops == flops * len(digits.validation) * 3
    assert ledger.total.paper_flops == ledger.phases["train"].flops
    assert ledger.phases["train"].seconds > 0


def test_evaluating_agrees_with_a_plain_count_and_restores_the_mode(digits: data.DataSet) -> None:
    model = small(digits).train()
    metrics = evaluate(model, digits.test, batch_size=100)
    assert model.training
    model.eval()
    with torch.no_grad():
        outputs = model(digits.test.examples(list(range(len(digits.test)))))
    targets = digits.test.targets
    assert metrics.accuracy == (outputs.argmax(1) == targets).double().mean().item()
    top5 = [target in row for target, row in zip(targets, outputs.topk(5).indices, strict=True)]
    assert metrics.top5 == pytest.approx(sum(top5) / len(top5))
    assert metrics.loss == pytest.approx(nn.functional.cross_entropy(outputs, targets).item(), rel=1e-5)


@pytest.mark.parametrize("name", ["sgd", "adam", "adagrad", "rmsprop"])
def test_every_optimiser_lowers_the_loss(digits: data.DataSet, name: Any) -> None:
    rate = {"sgd": 0.1, "adam": 0.01, "adagrad": 0.03, "rmsprop": 0.001}[name]
    plan = TrainingConfig(epochs=4, batch_size=32, optimizer=Optimizer(name=name, lr=rate), augment=False)
    history = train(small(digits), digits, plan)
    assert history[-1]["train_loss"] < 0.5 * history[0]["train_loss"]


def test_regression_is_trained_and_reported_without_accuracy() -> None:
    line = data.load("sawtooth")
    model = models.build("mlp", classes=line.outputs, input_shape=line.input_shape, hidden=[64, 64], seed=0)
    optimizer = Optimizer(name="adam", lr=0.01, weight_decay=0)
    plan = TrainingConfig(epochs=60, batch_size=64, optimizer=optimizer, schedule=Schedule(name="cosine"))
    history = train(model, line, plan)
    assert history[-1]["train_accuracy"] is None and history[-1]["validation_accuracy"] is None
    assert evaluate(model, line.test, line.task).loss < 0.05


def test_the_mlp_solves_the_x_shape() -> None:
    cross = data.load("x-shape")
    model = models.build("mlp", input_shape=cross.input_shape, seed=0)
    plan = TrainingConfig(epochs=60, batch_size=64, optimizer=Optimizer(lr=0.05, weight_decay=0))
    train(model, cross, plan)
    accuracy = evaluate(model, cross.test).accuracy
    assert accuracy is not None and accuracy > 0.98


def test_a_narrow_strided_shortcut_is_trained_without_channels_last(digits: data.DataSet) -> None:
    layers = [nn.Conv2d(1, 4, 3, padding=1), nn.Conv2d(4, 4, 3, padding=1), nn.Conv2d(4, 8, 1, stride=2)]
    net = nn.Sequential(*layers, nn.ReLU(), nn.Flatten(), nn.Linear(8 * 16, 10)).to(memory_format=torch.channels_last)
    history = train(net, digits, TrainingConfig(epochs=1, batch_size=64))
    assert layers[1].weight.is_contiguous()
    assert history[-1]["train_loss"] < 3
