"""Magnitude and the lottery ticket: what is kept, and what it is set back to, bit for bit."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
import torch
from torch import nn

import splinecut as sc
from splinecut.networks import models
from splinecut.pruning.budget import Budget
from splinecut.pruning.engine.context import RunContext
from splinecut.pruning.engine.driver import PruningResult, prune
from splinecut.pruning.method import NO_RETRAINING
from splinecut.pruning.methods.weights.magnitude import Lottery, Magnitude
from splinecut.pruning.weight_mask import nonzeros, prunable_weights
from splinecut.training import data
from splinecut.training.config import TrainingConfig
from splinecut.training.hooks import Hook, TrainState
from splinecut.training.loop import train

PLAN = TrainingConfig(epochs=3, batch_size=32)


@pytest.fixture(scope="module")
def digits() -> data.DataSet:
    return data.load("digits", train_size=160)


def build(seed: int) -> nn.Module:
    return models.build("convnet", preset="digits", width=0.25, classes=10, in_channels=1, seed=seed)


def context(digits: data.DataSet) -> RunContext:
    return RunContext(build, digits, PLAN, seed=3, probe_size=32)


def pruned(digits: data.DataSet, method: Magnitude, keep: float, **options) -> tuple[PruningResult, list[nn.Module]]:
    """The outcome, and the network as it was right after the last cut."""
    seen: list[nn.Module] = []
    outcome = prune(context(digits), "it", method, Budget(keep, "weights"), on_pruned=seen.append, **options)
    return outcome, seen


def after(steps: int, digits: data.DataSet, **options) -> dict[str, torch.Tensor]:
    """The dense network's weights and statistics after so many steps of the same training."""

    class Stop(Hook):
        def after_step(self, state: TrainState) -> bool:
            return state.step == steps

    model = build(3)
    if steps:
        train(model, digits, PLAN, seed=3, hooks=[Stop()], **options)
    return model.state_dict()


class ConsoleProgress(Lottery):
    """A lottery that shows the network its retraining starts from."""

    def retrain_hooks(self, context, model, budget):
        class Look(Hook):
            def start(self, state: TrainState) -> None:
                starts.append(({n: t.clone() for n, t in state.model.state_dict().items()}, state.step))

        return [Look()]


starts: list[tuple[dict[str, torch.Tensor], int]] = []


@pytest.mark.parametrize("rewind_step", [0, 7])
def test_kept_weights_statistics_and_the_data_order_are_set_back_bit_for_bit(digits, rewind_step: int) -> None:
    starts.clear()
    outcome, _ = pruned(digits, ConsoleProgress(rewind_step=rewind_step), 0.2)
    (start, step), origin = starts[0], after(rewind_step, digits)
    assert step == rewind_step
    for name, tensor in start.items():
        kept = outcome.ticket.keep.get(name)
        expected = origin[name] if kept is None else origin[name] * torch.tensor(kept)
        assert torch.equal(tensor, expected), name


def test_the_ticket_is_the_largest_trained_weights(digits) -> None:
    outcome, _ = pruned(digits, Lottery(), 0.2)
    trained = build(3)
    train(trained, digits, PLAN, seed=3)
    sizes = {name: w.detach().abs().numpy() for name, w in prunable_weights(trained).items()}
    everything = np.sort(np.concatenate([size.reshape(-1) for size in sizes.values()]))[::-1]
    least = everything[round(0.2 * len(everything)) - 1]
    for name, size in sizes.items():
        assert np.array_equal(outcome.ticket.keep[name], size >= least)


def test_keeping_everything_trains_the_dense_network_again_bit_for_bit(digits) -> None:
    dense = build(3)
    history = train(dense, digits, PLAN, seed=3)
    outcome, _ = pruned(digits, Lottery(), 1.0)
    for name, tensor in outcome.final.model.state_dict().items():
        assert torch.equal(tensor, dense.state_dict()[name]), name
    assert outcome.final.history == history


def test_rounds_leave_geometric_shares_of_nested_tickets(digits) -> None:
    budget = Budget(0.125, "weights")
    shares = [turn.budget.keep for turn in Lottery(n_rounds=3).rounds(budget, None)]
    assert shares == pytest.approx([0.5, 0.25, 0.125]) and shares[-1] == 0.125
    keeps = []

    class Nested(Lottery):
        def select(self, scores, budget, groups, found):
            keeps.append(super().select(scores, budget, groups, found))
            return keeps[-1]

    outcome, _ = pruned(digits, Nested(n_rounds=3), 0.125)
    assert len(keeps) == 3
    for earlier, later in pairwise(keeps):
        assert all((earlier[name] | ~later[name]).all() for name in later)
    total = outcome.ticket.achieved.of
    assert [sum(int(k.sum()) for k in keep.values()) for keep in keeps] == [
        round(total * s) for s in (0.5, 0.25, 0.125)
    ]
    assert nonzeros(outcome.final.model)[0] == round(0.125 * total)


def test_one_shot_costs_two_dense_trainings_and_rounds_one_more_each(digits) -> None:
    dense = RunContext(build, digits, PLAN, seed=3)
    dense.train(build(3), "train")
    for method, trainings in ((Lottery(), 2), (Lottery(n_rounds=3), 4)):
        here = context(digits)
        prune(here, "lottery", method, Budget(0.2, "weights"))
        assert here.ledger.total.paper_flops == trainings * dense.ledger.total.paper_flops


def test_rewinding_past_the_end_of_training_is_refused(digits) -> None:
    with pytest.raises(sc.InputError, match="cannot rewind to step 1000"):
        pruned(digits, Lottery(rewind_step=1000), 0.5)


@pytest.mark.parametrize("options", [{"n_rounds": 0}, {"rewind_step": -1}])
def test_senseless_options_are_refused(options) -> None:
    with pytest.raises(sc.InputError, match="got"):
        Lottery(**options)


def test_magnitude_keeps_the_numbers_worked_by_hand_globally_and_by_layer() -> None:
    net = nn.Sequential(nn.Linear(2, 2, bias=False), nn.Linear(2, 2, bias=False))
    with torch.no_grad():
        net[0].weight.copy_(torch.tensor([[1.0, -8.0], [6.0, 7.0]]))
        net[1].weight.copy_(torch.tensor([[-2.0, 3.0], [0.5, -5.0]]))
    example = torch.zeros(1, 2)
    everywhere = sc.draw(net, example, method="magnitude", keep=0.5).keep
    assert [k.tolist() for k in everywhere.values()] == [[[False, True], [True, True]], [[False, False], [False, True]]]
    layers = sc.draw(net, example, method="magnitude", budget=Budget(0.5, "weights", "layer")).keep
    assert [k.tolist() for k in layers.values()] == [[[False, True], [False, True]], [[False, True], [False, True]]]


def test_magnitude_goes_on_from_the_trained_weights(digits) -> None:
    outcome, _ = pruned(digits, Magnitude(), 0.3, recovery=NO_RETRAINING)
    trained = build(3)
    train(trained, digits, PLAN, seed=3)
    for name, weight in prunable_weights(outcome.final.model).items():
        assert torch.equal(weight, trained.get_parameter(name) * torch.tensor(outcome.ticket.keep[name]))


def test_reported_density_is_that_of_true_nonzeros(digits) -> None:
    from splinecut.experiments.measurements import pruning_facts

    outcome, _ = pruned(digits, Lottery(), 0.2)
    facts = pruning_facts(outcome, None)
    assert facts["nonzero"] == facts["achieved"]["kept"] == round(0.2 * facts["weights"])
    assert replace(outcome.ticket).achieved.density == pytest.approx(facts["nonzero"] / facts["weights"])
