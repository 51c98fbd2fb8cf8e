"""Spline pruning: the greedy pairing, the joint ranking and the refit, against slow and obvious versions."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

import splinecut as sc
from splinecut.errors import InputError
from splinecut.networks import models
from splinecut.networks.groups.read import groups
from splinecut.pruning.draw_ticket import draw
from splinecut.pruning.evidence import Evidence
from splinecut.pruning.methods.channels import joint_error as joint
from splinecut.pruning.methods.channels.spline import DEAD, Spline, removal_distances
from splinecut.pruning.refit.batch_norms import recalibrate

QUICK = settings(derandomize=True, deadline=None, max_examples=25)


def naive_pairing(distance: np.ndarray, strength: np.ndarray) -> list[int]:
    """Units in the order they leave: look at all pairs, take the nearest, drop the weaker, start again."""
    alive, order = list(range(len(distance))), []
    while len(alive) > 1:
        gap, first, second = min((distance[i, j], i, j) for i in alive for j in alive if i < j)
        if not np.isfinite(gap):
            break
        order.append(min((first, second), key=lambda unit: (strength[unit], -unit)))
        alive.remove(order[-1])
    return order


@QUICK
@given(st.integers(2, 12), st.integers(0, 10**6))
def test_pairing_removes_the_units_that_a_plain_search_removes(n: int, seed: int) -> None:
    generator = np.random.default_rng(seed)
    distance = generator.random((n, n))
    distance = distance + distance.T
    strength = generator.random(n)
    scores = removal_distances(distance, strength)
    assert np.argsort(scores, kind="stable")[: n - 1].tolist() == naive_pairing(distance, strength)
    assert np.isfinite(scores).all()


def test_pairing_by_hand() -> None:
    distance = np.array([[0, 0.1, 0.5], [0.1, 0, 0.3], [0.5, 0.3, 0]])
    # Nearest are 0 and 1; the weaker, 0, leaves at 0.1. Then 1 and 2, and 1 leaves at 0.3; 2 is left.
    scores = removal_distances(distance, np.array([1.0, 2.0, 3.0]))
    assert scores[:2].tolist() == [0.1, 0.3] and scores[2] > 0.3


def test_of_an_equal_pair_the_higher_index_leaves_and_dead_units_leave_first() -> None:
    distance = np.array([[0, 0.2, 9], [0.2, 0, 9], [9, 9, 0]])
    scores = removal_distances(distance, np.array([1.0, 1.0, 0.0]))
    assert scores[1] == 0.2 and scores[0] > 0.2 and scores[2] == DEAD


def mlp(seed: int = 0, hidden: tuple[int, ...] = (8, 8)) -> nn.Sequential:
    torch.manual_seed(seed)
    return models.build("mlp", hidden=list(hidden)).double().eval()  # type: ignore[return-value]


def probe(n: int = 200, seed: int = 1, dtype: torch.dtype = torch.float64) -> Tensor:
    return torch.randn(n, 2, generator=torch.Generator().manual_seed(seed), dtype=dtype)


def duplicated(model: nn.Sequential, seed: int = 3) -> nn.Sequential:
    """The same function with every hidden unit there twice, the copy scaled by its own positive factor."""
    generator = torch.Generator().manual_seed(seed)
    linears = [layer for layer in model if isinstance(layer, nn.Linear)]
    layers: list[nn.Module] = []
    factors: Tensor | None = None
    for depth, linear in enumerate(linears):
        weight, bias = linear.weight.detach(), linear.bias.detach()
        if factors is not None:  # split each incoming weight over a unit and its scaled copy
            weight = torch.cat([0.5 * weight, 0.5 * weight / factors], dim=1)
        if depth < len(linears) - 1:
            factors = torch.rand(len(weight), generator=generator, dtype=weight.dtype) * 2 + 0.25
            weight = torch.cat([weight, weight * factors[:, None]])
            bias = torch.cat([bias, bias * factors])
        new = nn.Linear(weight.shape[1], len(weight), dtype=weight.dtype)
        new.load_state_dict({"weight": weight, "bias": bias})
        layers += [new, nn.ReLU()]
    return nn.Sequential(*layers[:-1]).eval()


@pytest.mark.parametrize("form", ["corrected", "joint"])
def test_fold_gives_back_a_network_whose_units_were_all_doubled(form: str) -> None:
    original = mlp()
    double, x = duplicated(original), probe()
    assert torch.allclose(double(x), original(x), atol=1e-12)
    ticket = draw(double, x, "spline", keep=0.5, form=form, scope="layer")
    smaller = sc.cut(double, ticket, refit="fold")
    assert [layer.out_features for layer in smaller if isinstance(layer, nn.Linear)] == [8, 8, 2]
    assert torch.allclose(smaller(x), original(x), atol=1e-5)


def test_least_squares_gives_back_a_network_whose_units_were_all_doubled() -> None:
    original, x = mlp(), probe()
    double = duplicated(original)
    ticket = draw(double, x, "spline", keep=0.5, scope="layer")
    smaller = sc.cut(double, ticket, refit="least_squares", probe=x)
    assert (smaller(x) - original(x)).abs().max() < 0.02 * original(x).abs().max()


@pytest.mark.parametrize("seed", range(4))
def test_removing_a_unit_at_corrected_distance_zero_leaves_the_partition_as_it_was(seed: int) -> None:
    double = duplicated(mlp(seed, (4, 3)), seed)
    window = sc.Slice.square(2.0)
    ticket = draw(double, probe(), "spline", keep=0.5, form="corrected", scope="layer")
    before = sc.subdivide(double, window)
    after = sc.subdivide(sc.cut(double, ticket, refit="fold"), window)
    assert len(before) == len(after)
    assert np.allclose(np.sort(before.areas), np.sort(after.areas), atol=1e-9)


def network(kind: str, seed: int = 0) -> tuple[nn.Module, Tensor]:
    """A small network with non-trivial batch-norm statistics, and inputs for it."""
    generator = torch.Generator().manual_seed(seed)
    options: dict[str, Any] = {"convnet": {"preset": "digits", "width": 0.5}, "preresnet20": {"width": 0.25}}[kind]
    shape = (1, 8, 8) if kind == "convnet" else (3, 32, 32)
    model = models.build(kind, input_shape=shape, seed=seed, **options).double()
    for module in model.modules():
        if isinstance(module, nn.BatchNorm2d):
            module.weight.data.uniform_(0.2, 1.0, generator=generator)
            module.bias.data.normal_(0, 0.3, generator=generator)
            module.momentum = None  # the running statistics become those of the batch below
    x = torch.randn(32, *shape, generator=generator, dtype=torch.float64)
    model.train()(x)
    return model.eval(), x


def naive_errors(covariance: np.ndarray, weight: np.ndarray, ridge: float) -> list[tuple[int, float]]:
    """(unit, error) in leaving order, everything computed anew at each step from the regression itself."""
    covariance = covariance + ridge * np.eye(len(covariance))
    alive, result = list(range(len(covariance))), []
    weight = weight.copy()
    while len(alive) > 1:
        costs = {}
        for unit in alive:
            others = [o for o in alive if o != unit]
            made_of = np.linalg.solve(covariance[np.ix_(others, others)], covariance[others, unit])
            left = covariance[unit, unit] - covariance[unit, others] @ made_of
            costs[unit] = (left * (weight[unit] ** 2).sum(), made_of, others)
        unit = min(costs, key=lambda u: costs[u][0])
        cost, made_of, others = costs[unit]
        weight[others] += np.outer(made_of, weight[unit])
        alive.remove(unit)
        result.append((unit, cost))
    return result


@QUICK
@given(st.integers(2, 9), st.integers(0, 10**6))
def test_errors_updated_as_units_leave_equal_errors_computed_anew(n: int, seed: int) -> None:
    generator = np.random.default_rng(seed)
    rows = generator.normal(size=(50, n)) @ generator.normal(size=(n, n))
    covariance, weight = np.cov(rows.T, bias=True).reshape(n, n), generator.normal(size=(n, 3))
    ridge = 1e-3
    one = joint._Elimination(np.linalg.inv(covariance + ridge * np.eye(n)), weight @ weight.T, 1.0)
    alive = np.arange(n)
    for unit, cost in naive_errors(covariance, weight, ridge):
        errors = one.errors()
        place = int(errors.argmin())
        assert alive[place] == unit
        assert errors[place] == pytest.approx(cost, rel=1e-6)
        one.remove(np.array([place]))
        alive = np.delete(alive, place)


@pytest.mark.parametrize("kind", ["convnet", "preresnet20"])
@pytest.mark.parametrize("form", ["joint", "corrected", "paper"])
@pytest.mark.parametrize("residual", ["tied", "select", "inner"])
def test_every_form_draws_exactly_and_leaves_the_network_as_found(kind: str, form: str, residual: str) -> None:
    model, x = network(kind)
    before = copy.deepcopy(model.state_dict())
    state = torch.get_rng_state()
    ticket = draw(model, x, "spline", keep=0.6, form=form, residual=residual)
    assert ticket.achieved.kept == round(0.6 * ticket.achieved.of)
    assert all(kept.any() for kept in ticket.keep.values())
    assert all(torch.equal(tensor, before[name]) for name, tensor in model.state_dict().items())
    assert torch.equal(torch.get_rng_state(), state) and not model.training
    assert ticket == draw(model, x, "spline", keep=0.6, form=form, residual=residual)


@pytest.mark.parametrize("reduce", ["pca", "fa"])
def test_the_papers_global_routes_draw_across_layers(reduce: str) -> None:
    model, x = network("convnet")
    ticket = draw(model, x, "spline", keep=0.5, form="paper", scope="global", reduce=reduce)
    assert ticket.achieved.kept == round(0.5 * ticket.achieved.of)


@pytest.mark.parametrize("form", ["joint", "corrected", "paper"])
def test_permuting_units_permutes_the_scores(form: str) -> None:
    model, x = mlp(), probe()
    order = torch.randperm(8, generator=torch.Generator().manual_seed(0))
    other = copy.deepcopy(model)
    first, second = (layer for layer in other if isinstance(layer, nn.Linear) and layer.out_features == 8)
    first.weight.data, first.bias.data = first.weight.data[order], first.bias.data[order]
    second.weight.data = second.weight.data[:, order]

    def scores(net: nn.Module) -> np.ndarray:
        found = groups(net, x)
        evidence = Evidence(net, found, x)
        return Spline(form=form, scope="layer").score(evidence, sc.Budget(0.5))[found[0].name]  # type: ignore[arg-type]

    assert np.allclose(scores(other), scores(model)[order.numpy()], rtol=1e-6)


@pytest.mark.parametrize("kind", ["convnet", "preresnet20"])
@pytest.mark.parametrize("residual", ["tied", "select"])
def test_least_squares_brings_the_cut_network_nearer_to_the_whole_one(kind: str, residual: str) -> None:
    model, x = network(kind)
    ticket = draw(model, x, "spline", keep=0.7, residual=residual)
    plain, fitted = sc.cut(model, ticket), sc.cut(model, ticket, refit="least_squares", probe=x)
    whole = model(x)
    assert (fitted(x) - whole).square().mean() < 0.5 * (plain(x) - whole).square().mean()


def test_keeping_everything_refits_to_the_same_network() -> None:
    model, x = network("convnet")
    ticket = draw(model, x, "spline", keep=1.0)
    fitted = sc.cut(model, ticket, refit="fold")
    assert torch.allclose(fitted(x), model(x), atol=1e-12)


def test_recalibrating_gives_batch_norms_the_statistics_of_the_probe() -> None:
    model, x = network("convnet")
    model.train()
    with torch.no_grad():
        expected = model(x)  # train mode normalises by the batch itself
    other = copy.deepcopy(model).eval()
    recalibrate(other, x)
    n = x.shape[0] * 64
    assert torch.allclose(other(x), expected, atol=1e-2, rtol=1e-2)
    assert n > 1000  # so that biased and unbiased variances agree to a thousandth


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"keep": 0.5, "form": "papre"}, "did you mean 'paper'"),
        ({"keep": 0.5, "reduce": "pca"}, "needs scope='global' and form 'paper'"),
        ({"keep": 0.5, "scopee": "layer"}, "unknown option of spline 'scopee'; did you mean 'scope'"),
        ({"keep": 1.5}, "keep must be in"),
        ({}, "give either keep or budget"),
        ({"keep": 0.5, "method": "splin"}, "did you mean 'spline'"),
    ],
)
def test_options_that_cannot_be_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        draw(mlp(), probe(), **options)
