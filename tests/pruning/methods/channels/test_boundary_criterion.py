"""The boundary criterion: kinks counted by an independent walk along each cut, and every folding unit's owner."""

from __future__ import annotations

import copy
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

import splinecut as sc
from splinecut.errors import InputError
from splinecut.geometry.codes import visit
from splinecut.geometry.estimates import estimate_regions
from splinecut.geometry.partition import subdivide
from splinecut.geometry.slices import slices_through
from splinecut.networks import models, surgery
from splinecut.networks.cut_owners import owners
from splinecut.networks.groups.read import groups
from splinecut.networks.trace import trace
from splinecut.pruning.budget import Budget
from splinecut.pruning.draw_ticket import ticket_from_evidence
from splinecut.pruning.evidence import Evidence
from splinecut.pruning.method import Round
from splinecut.pruning.methods.channels.boundary import BoundaryKinks
from splinecut.training import data
from support import coupled_networks
from support.contexts import context

BUDGET = Budget(0.5)
SQUARE = torch.tensor([[-1.0, -1.0], [1.0, 1.0], [0.0, 0.3]], dtype=torch.float64)  # its bounding square is [-1, 1]^2


def net(hidden: tuple[int, ...], inputs: int = 2, outputs: int = 2, seed: int = 0) -> nn.Sequential:
    built = models.build("mlp", classes=outputs, input_shape=(inputs,), hidden=list(hidden), seed=seed)
    return built.double().eval()  # type: ignore[return-value]


def evidence(model: nn.Module, probe: Tensor, seed: int = 0) -> Evidence:
    return Evidence(model, groups(model, probe), probe, seed)


def scores(model: nn.Module, probe: Tensor = SQUARE, **options: int) -> np.ndarray:
    """The scores of all units, group after group."""
    return np.concatenate(list(BoundaryKinks(**options).score(evidence(model, probe), BUDGET).values()))


def by_hand() -> nn.Sequential:
    """Decides by v > relu(u - 0.2) + relu(-u - 0.2): the boundary turns at u = 0.2 and at u = -0.2, nowhere else.

    Unit 0 cuts at u = 0.5 but tells the classes alike; units 1 and 2 make the turns; unit 3 holds v and is on all over
    the square.
    """
    model = net((4,))
    with torch.no_grad():
        model[0].weight.copy_(torch.tensor([[1.0, 0], [1, 0], [-1, 0], [0, 1]]))
        model[0].bias.copy_(torch.tensor([-0.5, -0.2, -0.2, 5]))
        model[2].weight.copy_(torch.tensor([[0.7, 1, 1, 0], [0.7, 0, 0, 1]]))
        model[2].bias.copy_(torch.tensor([0.0, -5]))
    return model


def test_units_that_shape_no_boundary_leave_first() -> None:
    model = by_hand()
    assert np.floor(scores(model)).tolist() == [0, 1, 1, 0]
    ticket = ticket_from_evidence(evidence(model, SQUARE), "boundary", BoundaryKinks(), BUDGET)
    assert ticket.keep["0"].tolist() == [False, True, True, False]


def test_of_units_without_a_kink_the_one_far_from_the_boundary_leaves_first() -> None:
    found = scores(by_hand())
    assert found[3] == 0 < found[0] < 1  # unit 3 has no cut in the square, unit 0 borders on the boundary


def kinks_along_a_cut(model: nn.Sequential, unit: int) -> int:
    """Sign changes of the difference of two logits along one cut of a single hidden layer, inside [-1, 1]^2.

    The cut is a line; along it the difference is affine between the cuts of the other units.
    """
    w, b = model[0].weight.detach().numpy(), model[0].bias.detach().numpy()
    start, along = -b[unit] * w[unit] / (w[unit] @ w[unit]), np.array([-w[unit, 1], w[unit, 0]])
    with np.errstate(divide="ignore", invalid="ignore"):
        enter, leave = np.sort(np.stack([(-1 - start) / along, (1 - start) / along]), axis=0)
        others = -(w @ start + b) / (w @ along)
    low, high = enter.max(), leave.min()
    if low >= high:
        return 0
    t = np.array([low, *np.sort(others[(others > low) & (others < high)]), high])
    logits = model(torch.from_numpy(start + t[:, None] * along)).detach().numpy()
    return int((np.diff(np.sign(logits[:, 0] - logits[:, 1])) != 0).sum())


@pytest.mark.parametrize("seed", range(3))
def test_kinks_are_those_of_a_walk_along_each_cut(seed: int) -> None:
    model = net((20,), seed=seed)
    xy, label = data.load("x-shape").train.inputs[:400].double() / 5, data.load("x-shape").train.targets[:400]
    optimizer = torch.optim.Adam(model.parameters(), lr=0.05)
    for _ in range(60):
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(xy), label).backward()
        optimizer.step()
    found = np.floor(scores(model))
    assert found.tolist() == [kinks_along_a_cut(model, unit) for unit in range(20)]
    assert found.sum() > 4


@settings(derandomize=True, deadline=None, max_examples=8)
@given(st.integers(0, 10**6))
def test_permuting_units_permutes_scores_and_rescaling_leaves_them(seed: int) -> None:
    model = net((7, 6), outputs=3, seed=seed)
    generator = torch.Generator().manual_seed(seed)
    order, scale = torch.randperm(7, generator=generator), torch.rand(7, generator=generator).double() * 3 + 0.2
    other = copy.deepcopy(model)
    with torch.no_grad():
        other[0].weight.copy_((model[0].weight * scale[:, None])[order])
        other[0].bias.copy_((model[0].bias * scale)[order])
        other[2].weight.copy_((model[2].weight / scale)[:, order])
    before, after = scores(model), scores(other)
    assert np.allclose(after, np.concatenate([before[:7][order.numpy()], before[7:]]))


def test_the_same_seed_gives_the_same_scores_and_the_network_is_left_as_found() -> None:
    model = net((8, 8), inputs=6, outputs=4).train()
    probe = torch.randn(40, 6, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    state = copy.deepcopy(model.state_dict())
    first, second = scores(model, probe, slices=2), scores(model, probe, slices=2)
    assert np.array_equal(first, second)
    assert model.training and all(torch.equal(state[key], value) for key, value in model.state_dict().items())


def test_slices_pass_through_inputs_of_different_classes() -> None:
    probe = torch.randn(30, 5, generator=torch.Generator().manual_seed(0))
    classes = np.arange(30) % 4
    for region in slices_through(probe, classes, 6, seed=1):
        distances = (region.embed(region.coordinates(probe.numpy())) - probe).norm(dim=1).numpy()
        on_plane = np.flatnonzero(distances < 1e-6)
        assert len(on_plane) == 3 == len(set(classes[on_plane]))


def test_inputs_of_two_numbers_have_one_slice_the_square_that_holds_them() -> None:
    (square,) = slices_through(torch.tensor([[0.0, 1.0], [4.0, 2.0], [1.0, 1.5]]), np.array([0, 1, 0]), 8, seed=0)
    assert square.window.tolist() == [[0, -0.5], [4, -0.5], [4, 3.5], [0, 3.5]]


@pytest.mark.parametrize(("hidden", "inputs"), [((12,), 2), ((32, 32), 8), ((40, 40, 40), 2)])
def test_the_estimate_is_within_a_factor_of_three(hidden: tuple[int, ...], inputs: int) -> None:
    probe = torch.randn(64, inputs, dtype=torch.float64, generator=torch.Generator().manual_seed(2))
    graph = trace(net(hidden, inputs), probe[:1])
    region = slices_through(probe, np.arange(64), 1, seed=0)[0]
    assert 1 / 3 < estimate_regions(graph, region) / len(subdivide(graph, region)) < 3


def test_a_network_with_too_many_regions_is_refused_with_the_estimate() -> None:
    message = r"may look at 100 regions in a slice and this network has about [\d,]+, a .* raise max_regions, or use"
    with pytest.raises(InputError, match=message):
        scores(net((64, 64)), max_regions=100)


@pytest.mark.parametrize("probe", [torch.randn(9, 1), torch.randn(2, 4)])
def test_inputs_that_span_no_plane_are_refused(probe: Tensor) -> None:
    with pytest.raises(InputError, match="at least 3 inputs of 2 or more numbers"):
        scores(net((4,), inputs=probe.shape[1]).float(), probe)


def test_flops_are_a_forward_pass_for_each_region_and_input() -> None:
    model = net((12,))
    regions = len(sc.subdivide(model, sc.Slice.square(1.0)))
    assert BoundaryKinks().flops(evidence(model, SQUARE), 10) == pytest.approx(10 * (regions + 3), rel=0.7)


def test_budgets_count_kinks_once_and_both_pay(tmp_path: Path) -> None:
    method = BoundaryKinks(slices=1)
    bills, found = [], []
    for keep in (0.7, 0.3):
        there = context(shared=tmp_path)
        model = there.build(0)
        found.append(method.search(there, model, Round(Budget(keep))))
        bills.append(there.ledger.total.flops)
    direct = method.score(there.evidence(model, method), BUDGET)
    for held in found:
        assert all(np.array_equal(held[name], values) for name, values in direct.items()) and len(held) == len(direct)
    assert len(list(tmp_path.glob("kinks-*"))) == 1
    assert bills[0] == bills[1] == method.flops(there.evidence(model, method), there.flops(model)) > 0
    known = there.evidence(model, method, {name: -values for name, values in direct.items()})
    assert all(np.array_equal(-values, direct[name]) for name, values in method.score(known, BUDGET).items())
    assert method.flops(known, 10) == 0


READ = [(name, "tied") for name in ("convnet", "densenet", "mobilenetv2", "resnext", "unet", "shufflenet", "mlp")]
READ += [("preresnet11", "tied"), ("preresnet11", "select"), ("resnet18", "inner")]


@pytest.mark.parametrize(("name", "residual"), READ)
def test_cutting_units_takes_away_the_folding_units_they_own_and_no_others(name: str, residual: str) -> None:
    model, x = coupled_networks.make(name, torch.float64)
    found, graph = coupled_networks.read(name, residual), trace(model, x)
    keep = coupled_networks.draw(found, seed=1)
    stays = np.concatenate([*keep.values(), [True]])  # the last entry stands for NO_UNIT, which is -1
    with surgery.mask(model, found, keep):
        masked = [inputs[0].flatten(1) for _, inputs in visit(graph.with_state(model.state_dict()), x)]
    smaller = surgery.cut(model, found, keep)
    kept = [inputs[0].flatten(1) for _, inputs in visit(trace(smaller, x), x)]
    for layer, owner, before, after in zip(graph.layers, owners(graph, found).of, masked, kept, strict=True):
        if layer.bits:  # the inputs of a maximum lie in another order than its windows
            assert torch.allclose(before[:, torch.from_numpy(stays[owner])], after, atol=1e-9)
