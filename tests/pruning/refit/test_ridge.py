"""Moments of rows, and the least-squares fit of one layer, against numpy on the rows themselves."""

from __future__ import annotations

from itertools import permutations

import numpy as np
import pytest
import torch
from torch import Tensor

from splinecut.errors import InputError
from splinecut.pruning.refit import ridge
from splinecut.pruning.refit.moments import Moments
from splinecut.pruning.refit.ridge import Fit, fit

DOUBLE = torch.float64


def drawn(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=DOUBLE)


def moments(x: Tensor, y: Tensor, size: int = 10**9) -> Moments:
    """Of rows x (groups, rows, columns), y (groups, rows, outputs), `size` rows at a time."""
    seen = Moments.zero(len(x), x.shape[2], y.shape[2])
    for start in range(0, x.shape[1], size):
        seen.add(x[:, start : start + size], y[:, start : start + size])
    return seen


def correlated(n_groups: int, rows: int, columns: int, seed: int = 0, mean: float = 0.0) -> Tensor:
    return drawn(n_groups, rows, columns, seed=seed) @ drawn(n_groups, columns, columns, seed=seed + 90) + mean


def assert_same(a: Moments, b: Moments) -> None:
    """As mean products, whatever the origins."""
    assert a.n_rows == b.n_rows
    for name, expected in vars(b.centred()).items():
        assert (getattr(a.centred(), name) - expected).abs().max() <= 1e-10 * expected.abs().max(), name


@pytest.mark.parametrize("mean", [0.0, 1e4])
@pytest.mark.parametrize("size", [1, 7, 10**9])
def test_centred_moments_of_batches_are_the_covariances_of_all_rows(mean: float, size: int) -> None:
    x, y = correlated(2, 100, 4, mean=mean), drawn(2, 100, 3, seed=5)
    seen = moments(x, y, size).centred()
    for group, rows in enumerate(torch.cat([x, y], 2).numpy()):
        expected = np.cov(rows.T, bias=True)
        assert np.allclose(seen.xx[group], expected[:4, :4], rtol=1e-8, atol=1e-7)
        assert np.allclose(seen.xy[group], expected[:4, 4:], rtol=1e-8, atol=1e-7)
        assert np.allclose(seen.yy[group], expected.diagonal()[4:])
        assert np.allclose(torch.cat([seen.mean_x[group], seen.mean_y[group]]), rows.mean(0))


def test_variances_of_float32_rows_and_targets_survive_a_mean_of_1e4() -> None:
    x = (correlated(1, 4096, 4) / 10 + 1e4).float()
    seen = moments(x, x[:, :, :2], 256).centred()
    expected = np.cov(x[0].double().numpy().T, bias=True)
    assert np.allclose(seen.xx[0], expected, rtol=1e-4, atol=1e-4 * expected.max())
    assert np.allclose(seen.xy[0], expected[:, :2], rtol=1e-2, atol=1e-2 * expected.max())
    assert np.allclose(seen.yy[0], expected.diagonal()[:2], rtol=1e-2)


def test_merged_moments_are_those_of_all_rows_in_whatever_order() -> None:
    x, y = correlated(2, 90, 5), drawn(2, 90, 3, seed=5)
    x[:, 30:60] += 20  # each part has an origin of its own
    x[:, 60:] -= 300
    parts = [moments(x[:, i : i + 30], y[:, i : i + 30]) for i in (0, 30, 60)]
    whole, nothing = moments(x, y), Moments.zero(2, 5, 3)
    for first, second, third in permutations(parts):
        assert_same(first.merged(second).merged(third), whole)
    assert nothing.merged(whole) is whole and whole.merged(nothing) is whole


@pytest.mark.parametrize("has_constant", [True, False])
def test_the_error_of_weights_is_what_a_loop_over_rows_finds(has_constant: bool) -> None:
    x, y, weight = correlated(2, 40, 5, mean=3), drawn(2, 40, 3, seed=5) + 2, drawn(2, 5, 3, seed=6)
    seen, about = moments(x, y), moments(x[:, :25] * 2, y[:, :25] + 1)
    mean_x, mean_y = (x[:, :25] * 2).mean(1), (y[:, :25] + 1).mean(1)
    if not has_constant:
        mean_x, mean_y = torch.zeros_like(mean_x), torch.zeros_like(mean_y)
    expected = torch.zeros(2, 3, dtype=DOUBLE)
    for group, row in np.ndindex(2, 40):
        made = (x[group, row] - mean_x[group]) @ weight[group]
        expected[group] += (y[group, row] - mean_y[group] - made) ** 2 / 40
    torch.testing.assert_close(seen.centred(about, has_constant).error(weight), expected, rtol=1e-9, atol=1e-9)


def test_rows_that_are_not_finite_are_refused_by_name() -> None:
    x = torch.full((1, 8, 2), torch.nan)
    with pytest.raises(InputError, match=r"layer4\.conv1"):
        moments(x, x).check("layer4.conv1")


def problem(n_groups: int = 2, rows: int = 240, has_constant: bool = True) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """(x, y, the weights as they are, the columns that stay): eight correlated columns, of which six stay."""
    x, old = correlated(n_groups, rows, 8, mean=2), drawn(n_groups, 8, 3, seed=7)
    y = x @ old + 0.5 * drawn(n_groups, rows, 3, seed=8) + (4 if has_constant else 0)
    return x, y, old, torch.tensor([0, 1, 3, 4, 6, 7])


def split_fit(x: Tensor, y: Tensor, old: Tensor, columns: Tensor, n_held: int = 60, **options: bool) -> Fit:
    return fit(moments(x[:, n_held:], y[:, n_held:]), moments(x[:, :n_held], y[:, :n_held]), columns, old, **options)


def shrunk(x: Tensor, y: Tensor, old: Tensor, ridge: float, has_constant: bool) -> tuple[np.ndarray, np.ndarray]:
    """(weights, constant) of a ridge regression towards `old`, by least squares with one more row for each weight."""
    x, y = x.numpy(), y.numpy()
    mean_x, mean_y = (x.mean(0), y.mean(0)) if has_constant else (np.zeros(x.shape[1]), np.zeros(y.shape[1]))
    x, y = x - mean_x, y - mean_y
    root = np.sqrt(ridge * len(x) * (x**2).mean()) * np.eye(x.shape[1])
    weight = np.linalg.lstsq(np.vstack([x, root]), np.vstack([y, root @ old.numpy()]), rcond=None)[0]
    return weight, mean_y - mean_x @ weight


@pytest.mark.parametrize("has_constant", [True, False])
@pytest.mark.parametrize("on_all", [True, False])
def test_the_fit_is_the_ridge_regression_towards_the_old_weights(has_constant: bool, on_all: bool) -> None:
    x, y, old, columns = problem(has_constant=has_constant)
    fitted = split_fit(x, y, old, columns, has_constant=has_constant, on_all=on_all)
    assert fitted.ridge in ridge.RIDGES and fitted.error < fitted.unfitted < fitted.power
    seen = slice(None) if on_all else slice(60, None)
    for group in range(2):
        rows = x[group, seen][:, columns], y[group, seen], old[group, columns]
        weight, constant = shrunk(*rows, fitted.ridge, has_constant)
        assert np.allclose(fitted.weight[group], weight, rtol=1e-7, atol=1e-8)
        assert np.allclose(fitted.offset[group], constant, rtol=1e-7, atol=1e-7)


@pytest.mark.parametrize("has_constant", [True, False])
def test_the_ridge_is_the_one_that_does_best_on_held_out_rows(has_constant: bool) -> None:
    x, y, old, columns = problem(n_groups=1, rows=80, has_constant=has_constant)
    fitted, errors = split_fit(x, y, old, columns, has_constant=has_constant), []
    for one in ridge.RIDGES:
        weight, constant = shrunk(x[0, 60:][:, columns], y[0, 60:], old[0, columns], one, has_constant)
        errors.append(((y[0, :60].numpy() - x[0, :60][:, columns].numpy() @ weight - constant) ** 2).mean(0).sum())
    assert fitted.ridge == ridge.RIDGES[int(np.argmin(errors))] and 0 < np.argmin(errors) < len(errors) - 1
    assert fitted.error == pytest.approx(min(errors), rel=1e-8)


def test_what_is_linear_in_the_kept_columns_is_recovered() -> None:
    kept, mixed = drawn(1, 400, 5), drawn(5, 3, seed=3)
    x, old = torch.cat([kept, kept @ mixed], 2), drawn(1, 8, 4, seed=4)
    fitted = split_fit(x, x @ old + 3, old, torch.arange(5))
    assert fitted.ridge == min(ridge.RIDGES) and fitted.error < 1e-8 * fitted.unfitted
    torch.testing.assert_close(fitted.weight[0], old[0, :5] + mixed @ old[0, 5:], rtol=0, atol=1e-3)
    torch.testing.assert_close(fitted.offset, torch.full((1, 4), 3.0, dtype=DOUBLE), rtol=0, atol=1e-3)


def test_weights_stay_where_nothing_can_be_learned() -> None:
    x, old = drawn(1, 16, 12), drawn(1, 12, 3, seed=4)  # few rows, and the kept columns know nothing of the others
    fitted = split_fit(x, x @ old, old, torch.arange(9), n_held=4)
    assert fitted.ridge is None and torch.equal(fitted.weight, old[:, :9]) and fitted.error == fitted.unfitted > 0


def test_held_out_rows_only_choose_the_ridge_unless_asked_for() -> None:
    x, y, old, columns = problem(n_groups=1)
    seen, found = moments(x[:, 60:], y[:, 60:]), set[float | None]()
    for strength in (0.0, 0.3, 1.0, 3.0):  # the last: held-out targets that no fit comes near
        other = y[:, :60] + strength * (x[:, :60] @ old - y[:, :60]) * 20
        fitted = fit(seen, moments(x[:, :60], other), columns, old, on_all=False)
        expected = old[0, columns], (y[0, 60:] - x[0, 60:][:, columns] @ old[0, columns]).mean(0)
        if fitted.ridge is not None:
            expected = shrunk(x[0, 60:][:, columns], y[0, 60:], old[0, columns], fitted.ridge, True)
        assert np.allclose(fitted.weight[0], expected[0], rtol=1e-7) and np.allclose(fitted.offset[0], expected[1])
        found.add(fitted.ridge)
    assert len(found) > 1


def test_groups_are_problems_of_their_own() -> None:
    x, y, old, columns = problem()
    both = split_fit(x, y, old, columns)
    changed = split_fit(x, torch.stack([y[0], 2 * y[1] + x[1, :, :3]]), old, columns)
    assert both.ridge == changed.ridge and not torch.allclose(both.weight[1], changed.weight[1])
    assert torch.equal(both.weight[0], changed.weight[0]) and torch.equal(both.offset[0], changed.offset[0])


def test_outputs_that_do_not_count_do_not_choose_the_ridge() -> None:
    x, y, old, columns = problem(n_groups=1, rows=80)
    seen, held, counts = moments(x[:, 20:], y[:, 20:]), moments(x[:, :20], y[:, :20]), torch.tensor([[1.0, 0, 1]])
    wrong = moments(x[:, :20], y[:, :20] + 50 * drawn(1, 20, 3, seed=9) * (1 - counts))
    some, noisy = (fit(seen, part, columns, old, counts=counts) for part in (held, wrong))
    assert fit(seen, held, columns, old).ridge != fit(seen, wrong, columns, old).ridge
    assert some.error == pytest.approx(noisy.error, rel=1e-12) and some.ridge == noisy.ridge


def test_columns_that_never_move_give_finite_weights() -> None:
    x, y, old, columns = problem()
    fitted = split_fit(x * (torch.arange(8) != 3), y, old, columns)
    assert torch.isfinite(fitted.weight).all() and torch.equal(fitted.weight[:, 2], old[:, 3])
    nothing = split_fit(torch.zeros_like(x), y, old, columns)
    assert torch.equal(nothing.weight, old[:, columns]) and torch.isfinite(nothing.offset).all()


def test_without_held_out_rows_the_ridge_is_a_large_one() -> None:
    x, y, old, columns = problem(n_groups=1)
    fitted = fit(moments(x, y), Moments.zero(1, 8, 3), columns, old)
    expected = shrunk(x[0][:, columns], y[0], old[0, columns], ridge.UNCHECKED, True)
    assert fitted.ridge == ridge.UNCHECKED and np.allclose(fitted.weight[0], expected[0], rtol=1e-7)
