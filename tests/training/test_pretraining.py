"""Weights to start from: fitted to nonsense, trained layer by layer, or those a ticket began with."""

from __future__ import annotations

import copy
from dataclasses import replace

import numpy as np
import pytest
import torch
from rich.console import Console
from scipy import stats
from torch import Tensor, nn

import splinecut as sc
from splinecut.errors import InputError
from splinecut.networks import models
from splinecut.networks.cost import forward_flops
from splinecut.networks.model_state import clone_state
from splinecut.pruning.engine.context import Observer, RunContext, TrainingResult
from splinecut.training import data as sets
from splinecut.training.config import TrainingConfig
from splinecut.training.data import DataSet, TensorSplit
from splinecut.training.evaluate import evaluate
from splinecut.training.hooks import Hook, TrainState
from splinecut.training.initialization import ADVERSARIAL, LAYERWISE, Initialization
from splinecut.training.ledger import Phase
from splinecut.training.pretraining import PHASE, rotated, with_random_labels
from splinecut.training.progress import ConsoleProgress


@pytest.fixture(scope="module")
def digits() -> DataSet:
    return sets.load("digits", validation=0.0)


def few(data: DataSet, rows: int) -> DataSet:
    return replace(data, train=data.train.subset(torch.arange(rows)))


def net(classes: int = 10) -> nn.Module:
    return models.build("convnet", classes=classes, preset="digits", input_shape=(1, 8, 8), seed=0)


def pretrain(
    model: nn.Module, data: DataSet, name: str, plan: TrainingConfig, hooks: tuple[Hook, ...] = ()
) -> tuple[list[TrainingResult], RunContext]:
    """The result of every training that takes `model` to the weights called `name`, and the context of the run."""
    results: list[TrainingResult] = []
    observer = Observer(hooks, lambda context, result: results.append(result))
    quiet = ConsoleProgress(Console(quiet=True))
    context = RunContext(lambda seed: model, data, plan, progress=quiet, observers={PHASE.kind: observer})
    context.pretrain(model, Initialization(name=name, plan=plan), PHASE)
    return results, context


def test_random_labels_are_uniform_and_agree_with_the_true_ones_by_chance_only(digits: DataSet) -> None:
    wrong = with_random_labels(digits, copies=5, seed=1)
    n = len(digits.train)
    assert len(wrong.train) == 5 * n and not len(wrong.validation)
    counts = np.bincount(wrong.train.targets, minlength=10)
    assert stats.chisquare(counts).pvalue > 0.01
    overlap = (wrong.train.targets == digits.train.targets.repeat(5)).float().mean()
    assert abs(float(overlap) - 0.1) < 4 * (0.09 / (5 * n)) ** 0.5
    assert len({tuple(labels.tolist()) for labels in wrong.train.targets.split(n)}) == 5


def test_a_tenth_of_the_values_is_zeroed_and_the_rest_is_kept(digits: DataSet) -> None:
    before, after = digits.train.inputs, with_random_labels(digits, seed=1).train.inputs
    lit = before > 0
    assert abs(float((after[lit] == 0).double().mean()) - 0.1) < 4 * (0.09 / int(lit.sum())) ** 0.5
    assert torch.equal(after[after > 0], before[after > 0])


def test_adversarial_weights_know_the_nonsense_and_nothing_else(digits: DataSet) -> None:
    model, small = net(), few(digits, 300)
    plan = ADVERSARIAL.model_copy(update={"batch_size": 50})
    ((result,), _) = pretrain(model, small, "adversarial", plan)
    learnt = evaluate(model, with_random_labels(small, seed=0).train).accuracy
    assert learnt is not None and learnt >= 0.99
    assert len(result.history) < plan.epochs  # it stops when it has learnt them
    found = evaluate(model, digits.test).accuracy
    assert found is not None and found < 0.3


def test_the_published_settings_are_the_defaults() -> None:
    assert (ADVERSARIAL.optimizer.momentum, ADVERSARIAL.optimizer.weight_decay, ADVERSARIAL.augment) == (0, 0, False)
    assert [ADVERSARIAL.schedule.factor(epoch, 350, 1) for epoch in (0, 150, 250)] == pytest.approx([1, 0.1, 0.01])
    assert [LAYERWISE.schedule.factor(epoch, 50, 1) for epoch in (0, 15, 30)] == pytest.approx([1, 0.2, 0.04])


class Unreadable(TensorSplit):
    """A split whose labels must not be looked at."""

    def __getattribute__(self, name: str) -> object:
        if name == "targets":
            raise AssertionError("labels were read")
        return super().__getattribute__(name)


def hidden(data: DataSet) -> DataSet:
    split = data.train
    blind = object.__new__(Unreadable)
    for name in ("inputs", "pixels", "augmentation"):
        object.__setattr__(blind, name, getattr(split, name))
    return replace(data, train=blind)


ONE = TrainingConfig(epochs=1, batch_size=100)


def test_without_labels_none_is_read(digits: DataSet) -> None:
    small = hidden(few(digits, 100))
    with pytest.raises(AssertionError, match="labels were read"):
        _ = small.train.targets
    results, _ = pretrain(net(), small, "layerwise-rotation", ONE)
    assert len(results) == 2


def test_images_are_turned_by_their_class(digits: DataSet) -> None:
    turned = rotated(few(digits, 7)).train
    for row in range(28):
        image = np.rot90(digits.train.inputs[row % 7].numpy(), int(turned.targets[row]), axes=(1, 2))
        assert np.array_equal(turned.inputs[row].numpy(), image)


class BeforeAndAfter(Hook):
    """Copies of the frozen layers and of the trained one, at the start and at the end of each training."""

    def __init__(self) -> None:
        self.states: list[tuple[dict[str, Tensor], ...]] = []

    def start(self, state: TrainState) -> None:
        self.before = [clone_state(part) for part in (state.model.below, state.model.layer)]

    def end(self, state: TrainState) -> None:
        below, layer = (clone_state(part) for part in (state.model.below, state.model.layer))
        self.states.append((self.before[0], below, self.before[1], layer))


def test_layers_below_stand_still_bit_by_bit_while_one_is_trained(digits: DataSet) -> None:
    model, recorder = net(), BeforeAndAfter()
    pretrain(model, few(digits, 200), "layerwise", ONE, (recorder,))
    states = recorder.states
    assert len(states) == 2
    for below, below_after, layer, layer_after in states:
        assert same(below, below_after)
        assert not same(layer, layer_after)
    assert len(states[1][0]) > len(states[0][0]) == 0
    assert all(parameter.requires_grad for parameter in model.parameters())


def same(a: dict[str, Tensor], b: dict[str, Tensor]) -> bool:
    return all(torch.equal(a[name], b[name]) for name in a)


def test_a_layer_pays_one_forward_pass_for_what_lies_below_it(digits: DataSet) -> None:
    model = net()
    _, context = pretrain(model, few(digits, 100), "layerwise", ONE)
    costs = [context.ledger.phases[str(phase)].flops for phase in (Phase("initialise", "1"), Phase("initialise", "2"))]
    chain = model.features
    stops = [number + 1 for number, module in enumerate(chain) if isinstance(module, nn.ReLU)]
    for cost, start, stop in zip(costs, [0, *stops], stops, strict=False):
        below = forward_flops(chain[:start], (1, 8, 8)) if start else 0
        whole = forward_flops(chain[:stop], (1, 8, 8))
        head = cost / 100 - below - 3 * (whole - below)
        assert 0 < head < 3 * 2 * 4 * 64 * 10 + 3 * 64 * 64  # pooling and a small linear layer


def test_layers_trained_one_by_one_learn_to_read(digits: DataSet) -> None:
    results, _ = pretrain(net(), digits, "layerwise", TrainingConfig(epochs=4, batch_size=64))
    assert results[-1].history[-1]["train_accuracy"] > 0.8


def test_a_network_that_is_no_chain_is_refused(digits: DataSet) -> None:
    with pytest.raises(InputError, match="needs a chain of layers called `features`, got MLP"):
        pretrain(models.build("mlp", classes=10, input_shape=(1, 8, 8), seed=0), digits, "layerwise", ONE)


def test_a_lottery_ticket_starts_from_the_very_weights_it_had() -> None:
    first, example = net(), torch.zeros(2, 1, 8, 8)
    trained = copy.deepcopy(first)
    with torch.no_grad():
        for parameter in trained.parameters():
            parameter += torch.randn(parameter.shape, generator=torch.Generator().manual_seed(0))
    ticket = sc.draw(trained, example, method="slimming", keep=0.5)
    rewound, fresh = (
        sc.cut(first, ticket),
        sc.cut(models.build("convnet", preset="digits", input_shape=(1, 8, 8), seed=1), ticket),
    )
    inputs = torch.tensor([True])
    convolutions = [name for name, module in first.named_modules() if isinstance(module, nn.Conv2d)]
    for name in convolutions:
        kept = torch.tensor(next(keep for group, keep in ticket.keep.items() if group.startswith(name)))
        before = first.get_submodule(name).weight
        assert torch.equal(rewound.get_submodule(name).weight, before[kept][:, inputs])
        inputs = kept
    shapes = [parameter.shape for parameter in rewound.parameters()]
    assert shapes == [parameter.shape for parameter in fresh.parameters()]
    assert forward_flops(rewound, (1, 8, 8)) == forward_flops(fresh, (1, 8, 8))
    assert not torch.equal(next(rewound.parameters()), next(fresh.parameters()))
