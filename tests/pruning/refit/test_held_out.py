"""Held-out errors: what removing units costs on inputs that chose nothing, against plain regressions."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

import splinecut as sc
from splinecut.errors import ProbeWarning
from splinecut.networks import models
from splinecut.networks.inputs import held_out
from splinecut.pruning.activations import RunningCovariance, consumer_layers
from splinecut.pruning.evidence import Evidence
from splinecut.pruning.methods.channels import joint_error as joint
from splinecut.pruning.refit import held_out as heldout
from splinecut.pruning.refit import symmetric

QUICK = settings(derandomize=True, deadline=None, max_examples=25)


def convnet(seed: int = 0) -> tuple[nn.Module, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    model = models.build("convnet", input_shape=(1, 8, 8), preset="digits", width=0.5, seed=seed).double().eval()
    return model, torch.randn(32, 1, 8, 8, generator=generator, dtype=torch.float64)


def sent_rows(model: nn.Module, x: Tensor) -> tuple[Evidence, Tensor, Tensor]:
    """The evidence, what the first group's units send (images, positions, units), and the weights that read it."""
    evidence = Evidence(model, sc.groups(model, x), x)
    (consumer,) = consumer_layers(model, evidence.groups[0])
    sent: list[Tensor] = []
    handle = model.get_submodule(consumer.module).register_forward_pre_hook(lambda _, i: sent.append(i[0].detach()))
    model(x)
    handle.remove()
    return evidence, sent[0].movedim(1, -1).flatten(1, 2), model.get_parameter(consumer.key).detach()


def test_the_error_of_a_unit_is_what_a_regression_on_other_images_leaves_of_it() -> None:
    model, x = convnet()
    evidence, images, weight = sent_rows(model, x)
    n_units, is_held = images.shape[-1], held_out(len(x))
    fit, held = images[~is_held].flatten(0, 1), images[is_held].flatten(0, 1)
    held, fit = held - fit.mean(0), fit - fit.mean(0)
    (sent,) = heldout.consumer_statistics(evidence, consumer_layers(model, evidence.groups[0])).values()
    flat = weight.transpose(0, 1).flatten(1)
    received = max(((flat @ flat.T) * (part.T @ part / len(part))).sum().item() for part in (fit, held))
    ridge = heldout.RIDGE * fit.square().mean().item()
    for unit in range(n_units):
        others = [other for other in range(n_units) if other != unit]
        gram = fit[:, others].T @ fit[:, others] / len(fit) + ridge * torch.eye(n_units - 1, dtype=torch.float64)
        made_of = torch.linalg.solve(gram, fit[:, others].T @ fit[:, unit] / len(fit))
        left = (held[:, unit] - held[:, others] @ made_of).square().mean()
        expected = (left * weight[:, unit].square().sum()).item() / received
        assert sent.held_out_error(np.arange(n_units) != unit) == pytest.approx(expected, rel=1e-6)


def test_the_first_to_leave_is_the_unit_that_the_others_explain_best() -> None:
    model, x = convnet()
    evidence, images, weight = sent_rows(model, x)
    fit = images[~held_out(len(x))].flatten(0, 1)
    fit = fit - fit.mean(0)
    costs = []
    for unit in range(images.shape[-1]):
        others = [other for other in range(images.shape[-1]) if other != unit]
        made_of = torch.linalg.lstsq(fit[:, others], fit[:, unit : unit + 1]).solution
        left = (fit[:, unit] - (fit[:, others] @ made_of)[:, 0]).square().mean()
        costs.append((left * weight[:, unit].square().sum()).item())
    errors = joint.removal_errors(evidence)[evidence.groups[0].name]
    assert int(errors.argmin()) == int(np.argmin(costs))


def head(units: int = 160, seed: int = 0) -> nn.Module:
    """Two convolutions, a global pooling and a classifier: as few rows reach the classifier as there are images."""
    torch.manual_seed(seed)
    return nn.Sequential(
        *(nn.Conv2d(3, 32, 3, padding=1), nn.ReLU(), nn.Conv2d(32, 32, 3, padding=1), nn.ReLU()),
        *(nn.Conv2d(32, units, 1), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(units, 10)),
    ).eval()


def test_a_pooled_head_wider_than_the_probe_is_not_emptied() -> None:
    model, x = head(), torch.randn(24, 3, 8, 8, generator=torch.Generator().manual_seed(2))
    with pytest.warns(ProbeWarning, match=r"at 8: .*; 214 inputs or more would do"):
        ticket = sc.draw(model, x, budget=sc.Budget(0.6, "flops"))
    # 24 images explain 160 units exactly, so that most of them seemed free: 22 stayed in 0.1.0, now 119.
    assert ticket.keep["4"].sum() > 80


def test_enough_inputs_are_not_warned_of() -> None:
    model, x = head(8), torch.randn(24, 3, 8, 8)
    with warnings.catch_warnings():
        warnings.simplefilter("error", ProbeWarning)
        sc.draw(model, x, keep=0.5)


def test_one_input_is_enough_to_draw_with_a_warning() -> None:
    model, x = head(8), torch.randn(1, 3, 8, 8)
    with pytest.warns(ProbeWarning, match="more would do|one input"):
        ticket = sc.draw(model, x, keep=0.5)
    assert ticket.achieved.kept == 36


@QUICK
@given(st.integers(2, 40), st.integers(1, 60), st.integers(0, 10**6))
def test_errors_never_fall_along_the_order_whatever_the_rows(n: int, rows: int, seed: int) -> None:
    generator = np.random.default_rng(seed)
    parts = []
    for _ in range(2):
        seen = RunningCovariance.of(n)
        seen.add(torch.from_numpy(generator.normal(size=(rows, 3)) @ generator.normal(size=(3, n))))
        parts.append(seen)
    sent = [heldout.ConsumerStatistics.of(generator.normal(size=(n, 4)), *parts)]
    order = joint.removal_order(sent)
    assert sorted(order.tolist()) == list(range(n))
    errors = heldout.removal_costs(sent, order)[order]
    assert np.isfinite(errors).all() and (np.diff(errors) >= 0).all()
    assert errors[-1] >= 1 and len(np.unique(errors[:-1])) == n - 1  # ties are broken by the order itself


def test_the_errors_of_a_small_group_add_up_to_the_convex_part_of_what_was_measured() -> None:
    # Uncorrelated units with outgoing weights 1, 2, 3: they leave in this order, each taking its square along.
    sent = heldout.ConsumerStatistics(np.eye(3), np.eye(3), np.diag([1.0, 4.0, 9.0]), 14.0)
    assert joint.removal_order([sent]).tolist() == [0, 1, 2]
    assert heldout.removal_costs([sent], np.arange(3)) == pytest.approx([1 / 14, 4 / 14, 1.0], abs=1e-9)


def test_singular_matrices_are_solved_by_least_squares() -> None:
    ones = np.ones((3, 3))  # as when all units are one
    assert np.allclose(symmetric.solve(ones, ones), ones / 3)
    assert np.allclose(symmetric.solve(np.zeros((2, 2)), np.ones((2, 1))), 0)
    assert np.isfinite(symmetric.inverse(-np.eye(2))).all()


def test_a_group_whose_reader_never_runs_on_the_probe_goes_last() -> None:
    class Skips(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.second = nn.Linear(4, 6), nn.Linear(6, 2)
            self.third, self.fourth = nn.Linear(4, 6), nn.Linear(6, 2)
            self.skip = False

        def forward(self, x: Tensor) -> Tensor:
            y = self.second(self.first(x).relu())
            return y if self.skip else y + self.fourth(self.third(x).relu())

    torch.manual_seed(0)
    model, x = Skips().eval(), torch.randn(40, 4)
    found = sc.groups(model, x)
    model.skip = True
    errors = joint.removal_errors(Evidence(model, found, x))
    assert np.isfinite(errors["first"]).all() and np.isinf(errors["third"]).all()
