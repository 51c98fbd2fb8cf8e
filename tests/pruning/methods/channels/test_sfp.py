"""Soft filter pruning: what is zeroed, what grows back and how, and that the end of training is the cut."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from splinecut.networks.groups.read import groups as read_groups
from splinecut.pruning.budget import Budget
from splinecut.pruning.engine.driver import prune
from splinecut.pruning.method import Round
from splinecut.pruning.methods.channels.sfp import SoftFilters, ZeroShortest, zero_filters
from splinecut.training.config import Optimizer, TrainingConfig
from splinecut.training.hooks import Hook, TrainState
from splinecut.training.loop import train
from support.contexts import NETWORKS, context

HALF = Budget(0.5, scope="layer")


class Look(Hook):
    """Remembers, after each epoch, which filters of each convolution are zero."""

    def __init__(self) -> None:
        self.zeros: list[dict[str, np.ndarray]] = []

    def after_epoch(self, state: TrainState) -> bool:
        self.zeros.append(zeros(state.model))
        return False


def zeros(model: nn.Module) -> dict[str, np.ndarray]:
    convolutions = {path: module for path, module in model.named_modules() if isinstance(module, nn.Conv2d)}
    return {path: (conv.weight.detach().flatten(1) == 0).all(1).numpy() for path, conv in convolutions.items()}


@pytest.mark.parametrize("keep", [0.5, 0.75])
def test_after_every_epoch_exactly_the_share_that_goes_is_zero_and_it_may_change(keep: float) -> None:
    here, look = context(epochs=6), Look()
    model, budget = here.build(0), Budget(keep, scope="layer")
    hook = SoftFilters()._zeroing(here, model, budget)
    train(model, here.dataset, here.plan, hooks=[hook, look])
    for found in look.zeros:  # 8 and 16 filters, so that floor(C p) of the paper is the shared count
        assert {path: int(gone.sum()) for path, gone in found.items()} == {
            "features.0": int(8 * (1 - keep)),
            "features.3": int(16 * (1 - keep)),
        }
    assert any(not np.array_equal(a["features.3"], b["features.3"]) for a, b in pairwise(look.zeros))


def test_zeroed_filters_grow_back_within_an_epoch_and_the_history_counts_them() -> None:
    here = context(epochs=3)
    outcome = prune(here, "sfp", SoftFilters(), HALF)
    regrown = [row["regrown"] for row in outcome.final.history]
    assert regrown[0] == 0 and all(0 < count <= 12 for count in regrown[1:])


def test_the_cut_takes_exactly_what_is_zero_and_nothing_is_trained_after_it() -> None:
    here, dense = context(epochs=2), []

    class Spy(SoftFilters):
        def apply(self, context, model, ticket, evidence):  # type: ignore[no-untyped-def]
            dense.append(zeros(model))
            return super().apply(context, model, ticket, evidence)

    outcome = prune(here, "sfp", Spy(), HALF)
    assert all(np.array_equal(~dense[0][name], kept) for name, kept in outcome.ticket.keep.items())
    assert set(here.ledger.phases) == {"train", "train: validate", "score", "recalibrate"}
    images = len(here.dataset.train)
    assert here.ledger.total.paper_flops == 3 * here.flops(here.build(0)) * images * 2
    assert here.ledger.phases["recalibrate"].flops == here.flops(outcome.final.model) * here.probe_size


def test_from_a_trained_network_it_costs_two_dense_trainings_and_shares_the_first() -> None:
    here, method = context(epochs=2), SoftFilters(from_trained=True)
    prune(here, "sfp", method, HALF)
    images = len(here.dataset.train)
    assert here.ledger.total.paper_flops == 2 * 3 * here.flops(here.build(0)) * images * 2
    assert method.first_training(HALF) == {} and SoftFilters().first_training(HALF) != {}


@pytest.mark.parametrize("network", ["vgg", "preresnet", "resnet"])
def test_all_filters_of_a_unit_are_zeroed_whichever_layers_make_it(network: str) -> None:
    model = context(network).build(0)
    example = torch.randn(4, *NETWORKS[network]["input_shape"])
    found = read_groups(model, example)
    keep = {group.name: np.arange(group.size) % 2 == 0 for group in found}
    zero_filters(model, found, keep)
    for group in found:
        for producer in group.producers:
            length = model.get_parameter(str(producer.weight)).detach().movedim(producer.axis, 0).flatten(1).norm(dim=1)
            assert np.array_equal(length.numpy() > 0, keep[group.name][group.rows(producer)])


class OneFilter(nn.Module):
    """A filter that was set to zero, batch norm with the given shift, ReLU, and a linear layer."""

    input_shape = (1, 8, 8)

    def __init__(self, shift: float) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.filter, self.norm, self.last = nn.Conv2d(1, 1, 3, bias=False), nn.BatchNorm2d(1), nn.Linear(36, 10)
        nn.init.constant_(self.norm.bias, shift)

    def forward(self, x: Tensor) -> Tensor:
        return self.last(torch.relu(self.norm(self.filter(x))).flatten(1))


def gradient(model: OneFilter) -> float:
    here = context()
    model.double().zero_grad()
    nn.functional.cross_entropy(model(here.probe().double()), here.labels()).backward()
    assert model.filter.weight.grad is not None
    return float(model.filter.weight.grad.norm())


@pytest.mark.parametrize("shift", [0.0, -0.5])
def test_a_zeroed_filter_is_dead_where_the_shift_is_not_positive(shift: float) -> None:
    model = OneFilter(shift)
    nn.init.zeros_(model.filter.weight)
    assert gradient(model) == 0


def test_a_zeroed_filter_has_a_hundredfold_gradient_where_the_shift_is_positive() -> None:
    before = gradient(model := OneFilter(0.5))
    nn.init.zeros_(model.filter.weight)
    assert gradient(model) > 100 * before > 0  # by 1 / sqrt(eps) = 316, batch norm dividing by a spread of zero


class ZeroAt(Hook):
    """Zeroes the filter after `step` steps, as the end of an epoch does."""

    def __init__(self, step: int) -> None:
        self.step = step

    def after_step(self, state: TrainState) -> None:
        if state.step == self.step:
            nn.init.zeros_(state.model.get_submodule("filter").weight)  # type: ignore[arg-type]


@pytest.mark.parametrize("momentum", [0.0, 0.9])
def test_with_a_negative_shift_only_momentum_brings_a_filter_back(momentum: float) -> None:
    here, model = context(), OneFilter(-0.5)
    optimizer = Optimizer(lr=0.05, momentum=momentum)
    model.norm.requires_grad_(False)
    train(model, here.dataset, TrainingConfig(epochs=2, batch_size=20, optimizer=optimizer), hooks=[ZeroAt(13)])
    assert (float(model.filter.weight.detach().norm()) > 0) == (momentum > 0)


def test_momentum_is_left_alone_by_zeroing() -> None:
    here, seen = context(epochs=1), []

    class Look(Hook):
        def after_epoch(self, state: TrainState) -> bool:
            weight = state.model.get_parameter("features.3.weight")
            seen.append(state.optimizer.state[weight]["momentum_buffer"].flatten(1).norm(dim=1))
            return False

    model = here.build(0)
    hook = SoftFilters()._zeroing(here, model, HALF)
    train(model, here.dataset, here.plan, hooks=[hook, Look()])
    assert isinstance(hook, ZeroShortest) and (seen[0] > 0).all()


def test_the_batch_norms_of_the_cut_network_know_what_reaches_them() -> None:
    here = context(epochs=2)
    outcome = prune(here, "sfp", SoftFilters(), HALF)
    model, met = outcome.final.model.eval(), []
    norm = model.get_submodule("features.4")
    norm.register_forward_pre_hook(lambda _, inputs: met.append(inputs[0]))
    with torch.no_grad():
        model(here.probe())
    assert torch.allclose(norm.running_mean, met[0].mean((0, 2, 3)), atol=1e-5)  # type: ignore[arg-type]


def test_a_search_is_done_only_from_a_trained_network() -> None:
    here = context()
    SoftFilters().search(here, here.build(0), Round(HALF))
    assert not here.ledger.phases
