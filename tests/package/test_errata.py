"""The checks behind docs/errata.md that belong to no single module: formulas and tables of You et al. 2022."""

from __future__ import annotations

import itertools
import re
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

ROOT = Path(__file__).parents[2]
ERRATA = ROOT / "docs" / "errata.md"


def test_every_check_named_in_the_errata_exists() -> None:
    named = re.findall(r"`([\w/]+)\.py::(test_\w+)`", ERRATA.read_text(encoding="utf-8"))
    assert len(named) > 10
    for module, function in named:
        assert f"def {function}(" in (ROOT / "tests" / f"{module}.py").read_text(encoding="utf-8"), function


@pytest.mark.parametrize(("alpha", "is_absolute"), [(0.0, False), (0.1, False), (-1.0, True)])
def test_sign_matrices_describe_only_the_absolute_value(alpha: float, is_absolute: bool) -> None:
    rng = np.random.default_rng(0)
    weight, bias, x = rng.normal(size=(5, 3)), rng.normal(size=5), rng.normal(size=3)
    u = weight @ x + bias
    true = np.where(u >= 0, u, alpha * u)
    by_signs = np.diag(np.sign(u)) @ u
    as_printed = np.diag(-np.sign(u)) @ u  # the paper's regions ask u_k s_k <= 0
    by_slopes = np.diag(np.where(u >= 0, 1.0, alpha)) @ u
    assert np.allclose(by_slopes, true)
    assert np.allclose(by_signs, true) == is_absolute
    assert not np.allclose(as_printed, true)


def test_pruning_an_entry_that_is_zero_changes_neither_maps_nor_partition() -> None:
    net = nn.Sequential(nn.Linear(2, 3), nn.ReLU()).double()
    with torch.no_grad():
        net[0].weight[0, 1] = 0.0
    x = torch.randn(50, 2, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    before = net(x)
    with torch.no_grad():
        net[0].weight.mul_(torch.tensor([[1.0, 0.0], [1.0, 1.0], [1.0, 1.0]]))
    assert torch.equal(net(x), before)


def test_networks_with_equal_codes_can_decide_differently() -> None:
    x = torch.randn(200, 2, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    hidden = torch.relu(x @ torch.tensor([[1.0, 0.5], [-0.3, 1.0]], dtype=torch.float64))
    first, second = hidden[:, 0] - 1.0, hidden[:, 1] - 0.5  # two last layers over the same hidden codes
    assert ((first > 0) != (second > 0)).any()


def test_codes_change_when_units_are_merely_permuted() -> None:
    code = torch.tensor([1, 0, 0, 1, 1])
    assert (code != code[[1, 0, 2, 3, 4]]).float().mean() == 0.4


def test_unrelated_networks_differ_in_half_of_their_bits() -> None:
    """So distances of 0.54-0.78 between epochs of one run cannot be shares of differing bits."""

    def code(seed: int) -> torch.Tensor:
        torch.manual_seed(seed)
        net = nn.Sequential(nn.Conv2d(3, 64, 3, bias=False), nn.BatchNorm2d(64))  # in train mode: batch statistics
        return net(images) > 0

    images = torch.randn(32, 3, 12, 12, generator=torch.Generator().manual_seed(0))
    shares = [float((code(2 * i) != code(2 * i + 1)).float().mean()) for i in range(5)]
    assert all(0.45 < share < 0.55 for share in shares)


def test_printed_early_bird_epochs_contradict_the_printed_flops() -> None:
    preresnet, vgg = 3 * 0.31e9 * 50_000 * 160 / 1e15, 3 * 0.63e9 * 50_000 * 160 / 1e15  # dense runs, in P
    assert round(preresnet, 2) == 7.44
    assert round(vgg, 2) == 15.12
    assert 61 / 160 * preresnet > 2.74  # the search alone exceeds the printed total of EB Spline at 70 %
    assert 19.4 - 24 / 160 * vgg > vgg  # 160 pruned epochs would cost more than 160 dense ones


@pytest.mark.parametrize(
    ("dense", "spline", "early_bird", "epoch"),
    [
        (6322 / 2, (4897, 4382, 3995), (2322, 1808, 1421), 29.7),
        (746.2 / 2, (643.5, 603.4, 538.1), (476.1, 436.1, 370.7), 88.2),
        (6095 / 2, (4980, 4413, 4008), (2388, 1821, 1416), 23.9),
        (741.2 / 2, (688.3, 605.2, 555.0), (512.2, 429.1, 378.9), 84.0),
    ],
)
def test_printed_energies_imply_their_own_early_bird_epoch(dense, spline, early_bird, epoch) -> None:
    saved = np.subtract(spline, early_bird)
    assert np.ptp(saved) <= 1.0  # the same for every pruning ratio
    assert abs(160 * (1 - saved.mean() / dense) - epoch) < 0.1


def test_centred_pca_breaks_collinearity_and_uncentred_keeps_it() -> None:
    rng = np.random.default_rng(0)
    filters = rng.normal(size=(64, 27)) + 0.3
    filters[1] = 2 * filters[0]

    def cosine_after(centre: np.ndarray) -> float:
        _, _, basis = np.linalg.svd(filters - centre, full_matrices=False)
        a, b = (filters[:2] - centre) @ basis[:16].T
        return float(abs(a @ b) / np.linalg.norm(a) / np.linalg.norm(b))

    assert cosine_after(np.zeros(27)) > 1 - 1e-12
    assert cosine_after(filters.mean(axis=0)) < 1 - 1e-3


def test_few_dimensions_make_random_vectors_look_redundant() -> None:
    rng = np.random.default_rng(0)

    def nearest(dim: int) -> float:
        vectors = rng.normal(size=(1000, dim))
        vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
        cosine = np.abs(vectors @ vectors.T)
        np.fill_diagonal(cosine, 0)
        return float(1 - cosine.max())

    distances = [nearest(dim) for dim in (8, 16, 64, 576)]
    assert distances == sorted(distances)
    assert distances[0] < 0.05 < 0.5 < distances[-1]


def test_speed_ups_use_the_weaker_baseline() -> None:
    assert round(8.65 / 2.46, 1) == 3.5  # against ThiNet, as printed
    assert round(7.40 / 2.46, 1) == 3.0  # against SNIP, the cheapest of the table
    assert round(1901 / 1421, 1) == 1.3  # printed 1.4x
    assert [round(7.40 / flops, 1) for flops in (4.26, 2.74)] == [1.7, 2.7]  # printed 2.5x and 3.2x


@pytest.mark.parametrize(
    ("outgoing", "values"), [([1, -2, 1, -2], [0, 0, 1, 0, 0, -2]), ([1, -2, 2, -2], [0, 0, 1, 0, 1, 0])]
)
def test_sawtooth_needs_alternating_twos(outgoing, values) -> None:
    printed_rule = [1] + [(-2) ** ((k - 1) % 2) for k in (2, 3, 4)]
    assert printed_rule == [1, -2, 1, -2]
    x = np.arange(6)
    assert sum(w * np.maximum(x - k, 0) for k, w in enumerate(outgoing, start=1)).tolist() == values


def test_one_hidden_unit_solves_at_most_five_eighths_of_the_x_task() -> None:
    """Its boundary is one line at most; over half-planes y cos t - x sin t > c the best accuracy is 62.5 %."""
    side = np.linspace(-1, 1, 401)[:-1] + 1 / 400
    x, y = np.meshgrid(side, side)
    label = np.abs(y) > np.abs(x)
    best = 0.0
    for angle, offset in itertools.product(np.linspace(0, np.pi, 37), np.linspace(-1.4, 1.4, 57)):
        agreement = float(((y * np.cos(angle) - x * np.sin(angle) > offset) == label).mean())
        best = max(best, agreement, 1 - agreement)
    assert abs(best - 0.625) < 2e-3


def test_four_hidden_units_solve_the_x_task_exactly() -> None:
    points = np.random.default_rng(0).uniform(-5, 5, size=(500, 2))
    x, y = points.T
    four_units = np.maximum(y, 0) + np.maximum(-y, 0) - np.maximum(x, 0) - np.maximum(-x, 0)
    assert ((four_units > 0) == (np.abs(y) > np.abs(x))).all()
