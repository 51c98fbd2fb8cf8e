"""Global and dynamic pruning: the gate saliency, its degeneracy without gates, and the moving mask."""

from __future__ import annotations

import copy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import splinecut as sc
from splinecut.errors import InputError
from splinecut.networks.groups.read import groups as read_groups
from splinecut.networks.groups.values import Groups
from splinecut.pruning.budget import Budget
from splinecut.pruning.engine.driver import prune
from splinecut.pruning.evidence import Evidence
from splinecut.pruning.method import Scores
from splinecut.pruning.methods.channels.gdp import Gates, GlobalDynamic, batch_statistics, gate_derivatives
from splinecut.pruning.ticket import Ticket
from splinecut.training.config import Optimizer, TrainingConfig
from splinecut.training.hooks import Hook, TrainState
from splinecut.training.loop import train
from support.contexts import NETWORKS, context
from support.interrupted_runs import outcome, victim


class Gate(nn.Module):
    """Multiplies every channel by a number of its own."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.values = nn.Parameter(torch.ones(channels, dtype=torch.float64))

    def forward(self, x: Tensor) -> Tensor:
        return x * self.values.view(1, -1, *[1] * (x.dim() - 2))


def chain(has_norm: bool, gated: bool = False) -> nn.Sequential:
    """Two convolutions and a linear layer, with batch norms or biases, with gates or without: the same weights."""
    torch.manual_seed(0)
    layers: list[nn.Module] = []
    for n_in, n_out in ((2, 5), (5, 4)):
        conv = nn.Conv2d(n_in, n_out, 3, bias=not has_norm)
        norm = nn.BatchNorm2d(n_out) if has_norm else nn.Identity()
        if isinstance(norm, nn.BatchNorm2d):
            norm.weight.data, norm.bias.data = torch.rand(n_out) + 0.2, torch.randn(n_out)
        layers += [conv, norm, *([Gate(n_out)] if gated else []), nn.ReLU()]
    return nn.Sequential(*layers, nn.Flatten(), nn.Linear(4 * 16, 3)).double()


def batch(n: int = 12) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(1)
    return torch.randn(n, 2, 8, 8, generator=generator, dtype=torch.float64), torch.arange(n) % 3


@pytest.mark.parametrize("has_norm", [False, True])
def test_the_saliency_is_the_derivative_by_a_gate(has_norm: bool) -> None:
    (x, y), model, gated = batch(), chain(has_norm), chain(has_norm, gated=True)
    with batch_statistics(gated):
        nn.functional.cross_entropy(gated(x), y).backward()
    expected = [gate.values.grad for gate in gated if isinstance(gate, Gate)]
    found = gate_derivatives(model, read_groups(model, x), x, y)
    for derivative, oracle in zip(found.values(), expected, strict=True):
        assert oracle is not None and np.abs(derivative - oracle.numpy()).max() < 1e-16
    scores = GlobalDynamic(batch_size=12).score(Evidence(model, read_groups(model, x), x, labels=y), Budget(0.5))
    assert all(np.array_equal(scores[name], np.abs(derivative)) for name, derivative in found.items())


def test_under_batch_norm_the_literal_formula_is_zero_and_the_gates_is_not() -> None:
    (x, y), model = batch(), chain(has_norm=True)
    with batch_statistics(model):
        nn.functional.cross_entropy(model(x), y).backward()
    weight = model[0].weight
    assert isinstance(weight, Tensor) and weight.grad is not None
    literal = (weight.detach() * weight.grad).flatten(1).sum(1).abs()
    gates = np.abs(gate_derivatives(model, read_groups(model, x), x, y)["0"])
    assert float(literal.max()) < 1e-5 and gates.mean() > 1000 * float(literal.max())


def test_the_mean_is_of_absolute_values_batch_by_batch() -> None:
    (x, y), model = batch(12), chain(has_norm=True)
    found = read_groups(model, x)
    parts = [gate_derivatives(model, found, x[at], y[at]) for at in (slice(0, 4), slice(4, 8), slice(8, 12))]
    scores = GlobalDynamic(batch_size=4).score(Evidence(model, found, x, labels=y), Budget(0.5))
    for name, values in scores.items():
        assert np.allclose(values, np.mean([np.abs(part[name]) for part in parts], axis=0), rtol=1e-12)
        assert not np.allclose(values, np.abs(np.mean([part[name] for part in parts], axis=0)))


def test_units_of_a_residual_stream_have_one_gate_and_the_score_disturbs_nothing() -> None:
    here = context("resnet")
    model = here.build(0).train()
    found = read_groups(model, here.probe(8))
    before, random = copy.deepcopy(model.state_dict()), torch.get_rng_state()
    labels = here.labels(8)
    assert labels is not None
    scores = gate_derivatives(model, found, here.probe(8), labels)
    assert all(np.isfinite(values).all() and np.any(values) for values in scores.values())
    assert all(torch.equal(before[name], value) for name, value in model.state_dict().items())
    assert torch.equal(random, torch.get_rng_state()) and all(p.grad is None for p in model.parameters())
    assert all(module.training for module in model.modules())


def test_without_labels_it_says_what_it_needs() -> None:
    model, (x, _) = chain(has_norm=True), batch()
    with pytest.raises(InputError, match="needs labels"):
        GlobalDynamic().score(Evidence(model, read_groups(model, x), x), Budget(0.5))


class At(Hook):
    """Calls `look` after every epoch; stand it before the gates to look at the mask the epoch was trained under."""

    def __init__(self, look: Callable[[TrainState], Any]) -> None:
        self.look, self.seen = look, list[Any]()

    def after_epoch(self, state: TrainState) -> bool:
        self.seen.append(self.look(state))
        return False


def scripted(network: str, favourites: list[int], **plan: Any) -> tuple[Any, nn.Module, Gates, Groups]:
    """A bench whose gates close, in epoch i, all units but those from `favourites[i]` on, around the circle."""
    here = context(network, plan=TrainingConfig(epochs=len(favourites), batch_size=16, **plan))
    model, order = here.build(0), iter(favourites)
    found = read_groups(model, here.probe(4), "inner")

    def score(state: TrainState) -> Scores:
        first = next(order)
        return {group.name: -((np.arange(group.size) - first) % group.size).astype(float) for group in found}

    return here, model, Gates(found, Budget(0.5, scope="layer"), score), found


@pytest.mark.parametrize("network", NETWORKS)
def test_a_gated_network_computes_what_its_cut_does_and_is_left_without_gates(network: str) -> None:
    here, model, gates, found = scripted(network, [1])
    example = here.probe(8)

    def compare(state: TrainState) -> float:
        bare = copy.deepcopy(state.model).eval()
        for module in bare.modules():
            module._forward_pre_hooks.clear()
        smaller = sc.cut(bare, Ticket(gates.keep, found))
        with torch.no_grad():
            return float((state.model.eval()(example) - smaller(example)).abs().max())

    watch = At(compare)
    train(model, here.dataset, here.plan, hooks=[watch, gates])
    assert watch.seen[0] < 1e-5
    assert not any(module._forward_pre_hooks for module in model.modules())


def test_closed_filters_keep_their_weights_and_come_back() -> None:
    plain = Optimizer(lr=0.1, momentum=0.9, weight_decay=0.0)
    here, model, gates, _ = scripted("convnet", [4, 4, 0, 0], optimizer=plain)
    weights = At(lambda state: state.model.get_parameter("features.0.weight").detach().clone())
    start = model.get_parameter("features.0.weight").detach().clone()
    train(model, here.dataset, here.plan, hooks=[weights, gates])
    first, second, third, fourth = weights.seen
    # 8 filters: 0-3 are closed for two epochs and keep their first weights, then 4-7 are.
    assert torch.equal(start[:4], first[:4]) and torch.equal(first[:4], second[:4])
    assert not torch.equal(second[:4], third[:4]) and not torch.equal(first[4:], second[4:])
    assert torch.equal(third[4:], fourth[4:]) and torch.equal(second[4:], third[4:])


def test_scores_see_all_gates_open_and_the_mask_is_in_force_again_afterwards() -> None:
    here, model, gates, found = scripted("convnet", [0, 0])
    x, y = here.probe(32), here.labels(32)
    assert y is not None
    scripted_score, seen = gates.score, []

    def score(state: TrainState) -> Scores:
        bare = copy.deepcopy(state.model)
        for module in bare.modules():
            module._forward_pre_hooks.clear()
        seen.append((gate_derivatives(state.model, found, x, y), gate_derivatives(bare, found, x, y)))
        return scripted_score(state)

    gates.score = score
    closed = At(lambda state: sorted(gates._open))
    train(model, here.dataset, here.plan, hooks=[closed, gates])
    assert len(seen) == 2
    for through_gates, without in seen:
        assert all(np.array_equal(through_gates[name], without[name]) for name in without)
    assert closed.seen == [["classifier", "features.3"]] * 2


def test_a_removed_filter_given_a_large_gradient_returns() -> None:
    here = context(plan=TrainingConfig(epochs=2, batch_size=32, optimizer=Optimizer(lr=1e-4)))
    model, method, budget = here.build(0), GlobalDynamic(batch_size=32), Budget(0.5, scope="layer")
    found = read_groups(model, here.probe(4), "inner")
    chosen = []

    def score(state: TrainState) -> Scores:
        if chosen:  # the least of the removed ones is made the loudest
            weight = state.model.get_parameter("classifier.weight")
            weight.data.view(10, 16, 16)[:, int(chosen[0]["features.3"].argmin())] *= 300
        evidence = Evidence(state.model, found, here.probe(), labels=here.labels())
        chosen.append(method.score(evidence, budget))
        return chosen[-1]

    gates = Gates(found, budget, score)
    kept = At(lambda state: gates.keep["features.3"])
    train(model, here.dataset, here.plan, hooks=[kept, gates])
    quietest = int(chosen[0]["features.3"].argmin())
    assert not kept.seen[0][quietest] and kept.seen[1][quietest]


@pytest.mark.parametrize("network", ["convnet", "preresnet"])
def test_the_mask_that_is_cut_is_the_last_one_trained_under_and_every_pass_is_charged(network: str) -> None:
    here = context(network, epochs=4, residual="inner")
    outcome = prune(here, "gdp", GlobalDynamic(share=0.5, batches=2, batch_size=16), Budget(0.6))
    achieved = outcome.ticket.achieved
    assert achieved.kept == round(0.6 * achieved.of)
    images, dense = len(here.dataset.train), here.flops(here.build(0))
    phases = here.ledger.phases
    assert phases["dynamic"].flops == 3 * dense * images * 2 and phases["dynamic"].paper_flops == 0
    assert phases["score"].flops == 3 * dense * 32 * 2 and phases["score"].paper_flops == 0
    paper = 3 * images * 4 * (dense + here.flops(outcome.final.model))
    assert here.ledger.total.paper_flops == paper


def test_momentum_of_closed_units_is_forgotten_in_all_their_tensors() -> None:
    plain = Optimizer(lr=0.1, momentum=0.9, weight_decay=0.0)
    here, model, gates, _ = scripted("convnet", [0, 4], optimizer=plain)
    seen = []

    class Look(Hook):
        def after_epoch(self, state: TrainState) -> bool:
            buffers = state.optimizer.state
            named = {
                "own": ("features.0.weight", 0),
                "scale": ("features.1.weight", 0),
                "read": ("features.3.weight", 1),
            }
            for key, axis in named.values():
                buffer = buffers[state.model.get_parameter(key)]["momentum_buffer"].movedim(axis, 0)
                seen.append((gates.keep["features.0"], buffer.reshape(8, -1).abs().sum(1).numpy() > 0))
            return False

    train(model, here.dataset, here.plan, hooks=[gates, Look()])
    for kept, moves in seen[:3]:  # 0-3 have been open for an epoch, and are closed by the second choice
        assert np.array_equal(kept, np.arange(8) >= 4) and not moves[:4].any()
    for kept, moves in seen[3:]:
        assert np.array_equal(kept, np.arange(8) >= 4) and moves[4:].all()


def test_a_run_killed_under_its_moving_mask_ends_as_if_it_had_not_been(tmp_path: Path) -> None:
    experiment = {
        "model": {"name": "convnet", "preset": "digits", "width": 0.5},
        "data": {"name": "digits", "train_size": 200},
        "training": {"epochs": 4, "batch_size": 64, "checkpoint_minutes": 0.0005},
        "method": {"name": "gdp", "share": 0.5, "batches": 2},
        "probe": 64,
    }
    victim(tmp_path / "whole", experiment=experiment)
    kills = ["epoch:5", "steps:1.5"]  # after the dense training: in the first epoch of the dynamic phase, in the second
    ends = victim(tmp_path / "killed", *kills, experiment=experiment)
    assert [end["status"] for end in ends] == [-9, -9, 0]
    assert outcome(tmp_path / "killed", experiment) == outcome(tmp_path / "whole", experiment)
