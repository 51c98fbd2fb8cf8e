"""ThiNet: outputs taken apart, both greedy searches against plain ones, the rescaling, the course through layers."""

from __future__ import annotations

import copy
import itertools
import zlib

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.console import Console
from torch import nn

from splinecut.errors import InputError
from splinecut.networks import models
from splinecut.networks.groups.read import groups
from splinecut.pruning.activations import consumer_layers
from splinecut.pruning.budget import Budget
from splinecut.pruning.draw_ticket import draw
from splinecut.pruning.engine.context import RunContext
from splinecut.pruning.engine.driver import prune
from splinecut.pruning.evidence import Evidence
from splinecut.pruning.method import NO_RETRAINING
from splinecut.pruning.methods.channels import thinet
from splinecut.pruning.methods.channels.thinet import (
    ThiNet,
    channel_contributions,
    least_squares,
    leave_by_removal,
    leave_by_selection,
)
from splinecut.training import data
from splinecut.training.config import TrainingConfig
from splinecut.training.progress import ConsoleProgress
from support import coupled_networks
from support.interrupted_runs import outcome, victim

QUICK = settings(derandomize=True, deadline=None, max_examples=25)


def parts_of(n: int, seed: int, samples: int = 40) -> np.ndarray:
    """What n channels add to each sample: random, correlated, of different sizes."""
    rng = np.random.default_rng(seed)
    return rng.normal(size=(samples, n)) @ rng.normal(size=(n, n)) * rng.random(n)


def error(parts: np.ndarray, kept: np.ndarray, factors: np.ndarray | float = 1.0) -> float:
    return float(np.square(parts.sum(1) - (parts[:, kept] * factors).sum(1)).sum())


@pytest.mark.parametrize("name", ["mlp", "convnet", "vgg16", "preresnet11", "resnet18", "vit", "unet"])
def test_the_parts_of_a_sample_add_up_to_the_layers_output_less_its_bias(name: str) -> None:
    model, x = coupled_networks.make(name, torch.float64)
    for group in coupled_networks.read(name, "inner"):
        for consumer in consumer_layers(model, group):
            found = channel_contributions(model, [group], x, positions=5, seed=3)[consumer.place]
            module, seen = model.get_submodule(consumer.module), []
            with module.register_forward_hook(lambda _, inputs, output, seen=seen: seen.append((inputs[0], output))):
                model(x)
            inputs, output = seen[0]
            if len(consumer.columns) * consumer.columns.shape[1] < inputs.shape[-1 if consumer.is_linear else 1]:
                continue  # the layer reads other groups too
            if module.bias is not None:
                output = module(inputs) - module(torch.zeros_like(inputs))
            by_place = output.reshape(len(x), -1, output.shape[-1]) if consumer.is_linear else output.flatten(2).mT
            rng = np.random.default_rng([3, zlib.crc32(consumer.module.encode())])
            place, unit = rng.integers(by_place.shape[1], size=20), rng.integers(by_place.shape[2], size=20)
            expected = by_place[np.repeat(np.arange(4), 5), place, unit].detach().numpy()
            assert np.abs(found.sum(1) - expected).max() < 1e-12 * max(1.0, np.abs(expected).max())


@pytest.mark.parametrize(
    "conv",
    [
        nn.Conv2d(3, 4, (3, 2), stride=(2, 1), padding=(1, 2), dilation=(1, 2)),
        nn.Conv2d(3, 4, 3, padding="same", padding_mode="circular"),
        nn.Conv1d(3, 4, 4, stride=3, padding=1),
        nn.Conv3d(3, 4, 2, padding="valid"),
    ],
)
def test_windows_hold_what_each_output_looks_at(conv: nn.Conv2d) -> None:
    x = torch.randn(2, 3, *[7, 8, 6][: conv.weight.dim() - 2])
    windows, places = thinet._windows(conv, x)
    letters = "hwd"[: len(places)]
    taps = "xyz"[: len(places)]
    made = torch.einsum(f"bc{letters}{taps},oc{taps}->bo{letters}", windows, conv.weight)
    expected = conv(x) - conv.bias.view(-1, *[1] * len(places))  # type: ignore[union-attr]
    assert torch.allclose(made, expected, atol=1e-5)


def plain_removal(parts: np.ndarray) -> list[int]:
    gone: list[int] = []
    while len(gone) < parts.shape[1]:
        costs = {c: np.square(parts[:, [*gone, c]].sum(1)).sum() for c in range(parts.shape[1]) if c not in gone}
        gone.append(min(costs, key=lambda c: costs[c]))
    return gone


def plain_selection(parts: np.ndarray) -> list[int]:
    chosen: list[int] = []
    y = parts.sum(1)
    while len(chosen) < parts.shape[1]:
        fitted = parts[:, chosen] @ np.linalg.lstsq(parts[:, chosen], y, rcond=None)[0] if chosen else 0.0
        rest = [c for c in range(parts.shape[1]) if c not in chosen]
        alone = {c: ((y - fitted) @ parts[:, c]) ** 2 / np.square(parts[:, c]).sum() for c in rest}
        chosen.append(max(alone, key=lambda c: alone[c]))
    return chosen[::-1]


@QUICK
@given(st.integers(2, 10), st.integers(0, 10**6))
def test_removal_by_products_is_the_plain_removal(n: int, seed: int) -> None:
    parts = parts_of(n, seed)
    assert leave_by_removal(parts.T @ parts).tolist() == plain_removal(parts)


@QUICK
@given(st.integers(2, 10), st.integers(0, 10**6))
def test_selection_by_products_is_the_plain_selection(n: int, seed: int) -> None:
    parts = parts_of(n, seed)
    # Once nothing is left to explain, which unit comes next is rounding; the last one has no choice.
    assert leave_by_selection(parts.T @ parts)[1:].tolist() == plain_selection(parts)[1:]


def test_both_searches_by_hand() -> None:
    parts = np.array([[3.0, -2.9, 1.0], [0.0, 0.0, 0.2]])
    # Alone, unit 2 is the smallest (1.04). With it gone, R = (1, 0.2): adding unit 1 gives 1.9^2, adding unit 0 gives
    # 4^2 (and 0.04 each): unit 1 leaves next.
    assert leave_by_removal(parts.T @ parts).tolist() == [2, 1, 0]
    # y = (1.1, 0.2). Units 0 and 1 both explain its first entry alike, 1.21; unit 2 explains 1.14^2 / 1.04 = 1.2496.
    assert leave_by_selection(parts.T @ parts)[-1] == 2


def test_what_leaves_errs_less_than_chance_before_and_after_least_squares() -> None:
    for seed in range(5):
        parts = parts_of(12, seed)
        gram = parts.T @ parts
        halves = [np.isin(np.arange(12), half) for half in itertools.combinations(range(12), 6)]
        removal, selection = (np.isin(np.arange(12), leave(gram)[6:]) for leave in thinet.GREEDY_ORDERS.values())
        assert error(parts, removal) < np.mean([error(parts, kept) for kept in halves])
        by_chance = np.mean([error(parts, kept, least_squares(parts, kept)) for kept in halves[::20]])
        assert error(parts, selection, least_squares(parts, selection)) < by_chance


@QUICK
@given(st.integers(2, 10), st.integers(0, 10**6))
def test_least_squares_never_errs_more_than_weights_left_alone(n: int, seed: int) -> None:
    parts = parts_of(n, seed, samples=int(seed % 15) + 1)
    kept = np.random.default_rng(seed).random(n) < 0.5
    kept[0] = True
    before = error(parts, kept)
    assert error(parts, kept, least_squares(parts, kept)) <= before * (1 + 1e-9) + 1e-18 * np.square(parts).sum()


def test_a_silent_channel_keeps_its_weights_and_makes_nothing_singular() -> None:
    parts = parts_of(5, 0)
    parts[:, 2] = 0
    factors = least_squares(parts, np.array([True, True, True, False, True]))
    assert factors[2] == pytest.approx(1) and np.isfinite(factors).all()
    assert leave_by_removal(parts.T @ parts)[0] == 2


def with_a_double(dtype: torch.dtype = torch.float64) -> tuple[nn.Module, torch.Tensor]:
    """A network whose first layer has unit 1 twice, as unit 4 as well, both of little weight."""
    torch.manual_seed(0)
    model = models.build("mlp", hidden=[6, 5], in_channels=3).to(dtype)
    first, second = [m for m in model.modules() if isinstance(m, nn.Linear)][:2]
    with torch.no_grad():
        first.weight[4], first.bias[4] = first.weight[1], first.bias[1].abs() + 0.5
        first.bias[1] = first.bias[4]
        second.weight[:, 1] *= 0.01
        second.weight[:, 4] = second.weight[:, 1]
    return model.eval(), torch.randn(300, 3, dtype=dtype)


@pytest.mark.parametrize("greedy", ["removal", "selection"])
def test_of_a_channel_that_is_there_twice_one_leaves_and_the_other_counts_double(greedy: str) -> None:
    model, x = with_a_double()
    found = groups(model, x)
    method = ThiNet(greedy=greedy)  # type: ignore[arg-type]
    evidence = Evidence(model, found, x)
    scores = method.score(evidence, Budget(0.5))
    name = found[0].name
    kept = np.arange(6) != scores[name].argmin()
    assert not kept[4] or not kept[1]
    parts = channel_contributions(model, [found[0]], x, 10, 0)[consumer_layers(model, found[0])[0].place]
    factors = least_squares(parts, kept)
    double = 1 if kept[1] else 4
    assert factors[np.flatnonzero(kept).tolist().index(double)] == pytest.approx(2)
    assert error(parts, kept, factors) < 1e-20 * np.square(parts).sum()


def digits_bench(name: str = "convnet", epochs: int = 1, **options: object) -> RunContext:
    dataset = data.load("digits", seed=0, train_size=300)
    shape = dataset.input_shape

    def build(seed: int) -> nn.Module:
        return models.build(name, classes=10, input_shape=shape, seed=seed, **options)

    plan = TrainingConfig(epochs=epochs, batch_size=64)
    return RunContext(
        build, dataset, plan, residual="inner", probe_size=128, progress=ConsoleProgress(Console(quiet=True))
    )


def test_layers_are_cut_one_by_one_and_each_is_judged_on_what_the_last_ones_left() -> None:
    context = digits_bench(filters=[8, 12, 10], kernels=[3, 3, 3], strides=[1, 1, 1], paddings=[1, 1, 1], image_size=8)
    seen: list[list[int]] = []

    class Spy(ThiNet):
        def score(self, evidence: Evidence, budget: Budget) -> dict[str, np.ndarray]:
            seen.append([group.size for group in evidence.groups])
            return super().score(evidence, budget)

    outcome = prune(context, "thinet", Spy(), Budget(0.5), recovery=NO_RETRAINING)
    assert seen == [[8, 12, 10], [4, 12, 10], [4, 6, 10]]
    assert [int(kept.sum()) for kept in outcome.ticket.keep.values()] == [4, 6, 5]
    sizes = [m.out_channels for m in outcome.final.model.modules() if isinstance(m, nn.Conv2d)]
    assert sizes == [4, 6, 5]
    epoch = {phase: charge.images for phase, charge in context.ledger if phase in ("train", "round-1", "round-2")}
    assert epoch == dict.fromkeys(("train", "round-1", "round-2"), len(context.dataset.train))
    scored = context.ledger.phases["score"]
    assert scored.paper_flops == 0 and scored.flops > 3 * 100 * context.flops(outcome.final.model)


def test_keeping_everything_is_the_dense_network_and_trains_nothing_more() -> None:
    context = digits_bench(preset="digits", width=0.5)
    outcome = prune(context, "thinet", ThiNet(), Budget(1.0), recovery=NO_RETRAINING)
    assert outcome.dense is not None and all(kept.all() for kept in outcome.ticket.keep.values())
    x = context.probe(8)
    assert torch.equal(outcome.final.model.eval()(x), outcome.dense.model.eval()(x))
    assert not [phase for phase, _ in context.ledger if phase.startswith("round")]


def test_rescaling_brings_the_next_layer_nearer_and_leaves_the_given_network_alone() -> None:
    context = digits_bench(preset="digits", width=0.5, epochs=3)
    trained = context.train(context.build(0), "train").model.eval()
    before = copy.deepcopy(trained.state_dict())
    found, x = groups(trained, context.probe()), context.probe(64)
    method = ThiNet()
    evidence = context.evidence(trained, method)
    ticket = draw(trained, context.probe(), "thinet", keep=0.5, labels=context.labels())
    first = {**found.full_keep(), found[0].name: ticket.keep[found[0].name]}
    one = type(ticket)(first, found, "thinet", ticket.budget)

    def missed(rescale: bool) -> float:
        smaller = ThiNet(rescale=rescale).apply(context, trained, one, evidence).eval()
        second = consumer_layers(trained, found[0])[0].module
        outputs = []
        for net in (trained, smaller):
            handle = net.get_submodule(second).register_forward_hook(lambda _, __, output: outputs.append(output))
            net(x)
            handle.remove()
        return (outputs[0] - outputs[1]).square().mean().item()

    assert missed(True) < 0.9 * missed(False)
    assert all(torch.equal(tensor, before[name]) for name, tensor in trained.state_dict().items())


@pytest.mark.parametrize("name", ["convnet", "vgg16", "preresnet11", "resnet18"])
@pytest.mark.parametrize("greedy", ["removal", "selection"])
def test_budgets_are_met_exactly_with_the_same_share_of_every_layer(name: str, greedy: str) -> None:
    model, x = coupled_networks.make(name)
    ticket = draw(model, x, "thinet", keep=0.5, greedy=greedy)
    assert ticket.achieved.kept == round(0.5 * ticket.achieved.of)
    assert all(abs(kept.mean() - 0.5) <= 1 / kept.size for kept in ticket.keep.values())
    ticket = draw(model, x, "thinet", budget=Budget(0.8, "flops"), greedy=greedy)
    found = ticket.groups
    assert found is not None
    achieved = found.flops(ticket.keep)
    saving = max(found.flops({}) - found.flops({group.name: np.arange(group.size) > 0}) for group in found)
    assert 0.8 * found.flops() - saving <= achieved <= 0.8 * found.flops()
    assert draw(model, x, "thinet", budget=Budget(0.8, "flops"), greedy=greedy) == ticket


def test_residual_streams_stay_whole_unless_asked_for() -> None:
    model, x = coupled_networks.make("preresnet11")
    ticket = draw(model, x, "thinet", keep=0.5)
    inner = {f"blocks.{block}.conv{layer}" for block in range(3) for layer in (1, 2)}
    assert set(ticket.keep) == inner | {"stem"}  # the first block has a convolution in its shortcut: no sum of the stem
    assert "blocks.0.conv3" in draw(model, x, "thinet", keep=0.5, residual="tied").keep


def test_an_unknown_variant_is_refused_by_name() -> None:
    with pytest.raises(InputError, match="did you mean 'removal'"):
        ThiNet(greedy="removel")  # type: ignore[arg-type]
    with pytest.raises(InputError, match="at least 1"):
        ThiNet(images=0)


EXPERIMENT = {
    "model": {"name": "convnet", "preset": "digits", "width": 0.5},
    "data": {"name": "digits", "train_size": 300},
    "training": {"epochs": 2, "batch_size": 64},
    "method": "thinet",
    "probe": 64,
}


@pytest.mark.slow
def test_a_run_killed_between_and_inside_its_trainings_ends_as_if_it_had_not_been(tmp_path: object) -> None:
    whole, killed = tmp_path / "whole", tmp_path / "killed"  # type: ignore[operator]
    victim(whole, experiment=EXPERIMENT)
    ends = victim(killed, "steps:3", "epoch:3", experiment=EXPERIMENT)
    assert [end["status"] for end in ends] == [-9, -9, 0]
    assert outcome(killed, EXPERIMENT) == outcome(whole, EXPERIMENT)
