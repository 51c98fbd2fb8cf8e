"""The least-squares refit of one layer, and the statistics of batch norms after a cut."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import splinecut as sc
from splinecut.errors import ProbeWarning
from splinecut.networks.groups.values import Groups
from splinecut.pruning.refit.batch_norms import MOST, Statistics, correct
from splinecut.pruning.refit.regression import fit_layer

DOUBLE = torch.float64


def draws(rows: int, columns: int, seed: int = 0) -> Tensor:
    return torch.randn(rows, columns, generator=torch.Generator().manual_seed(seed), dtype=DOUBLE)


def test_a_unit_that_is_a_sum_of_kept_ones_is_handed_to_both() -> None:
    cut = draws(400, 2)
    dense = torch.cat([cut, cut.sum(1, keepdim=True)], 1)
    kept = torch.tensor([True, True, False])
    fit = fit_layer(dense, cut, kept, torch.eye(3, dtype=DOUBLE), torch.arange(400) % 4 == 3, "nothing")
    assert fit is not None and fit.error is not None and fit.unfitted is not None
    assert torch.allclose(fit.coefficients, torch.tensor([[1, 0], [0, 1], [1, 1]], dtype=DOUBLE), atol=1e-4)
    assert fit.error < 1e-6 * fit.unfitted


def test_a_unit_that_kept_ones_do_not_explain_leaves_the_weights_as_they_are() -> None:
    dense = draws(12, 9)  # eight regressors of nine rows: anything fits, nothing holds
    kept = torch.arange(9) < 8
    assert fit_layer(dense, dense[:, kept], kept, torch.eye(9, dtype=DOUBLE), torch.arange(12) % 4 == 3, "norm") is None


def test_few_rows_shrink_the_fit_towards_units_that_stand_for_themselves() -> None:
    cut, none_held = draws(9, 8), torch.zeros(9, dtype=torch.bool)
    dense = torch.cat([cut, draws(9, 1, seed=5)], 1)
    fit = fit_layer(dense, cut, torch.arange(9) < 8, torch.eye(9, dtype=DOUBLE), none_held, "norm")
    assert fit is not None  # a ridge towards zero shrinks the ones on the diagonal
    assert torch.allclose(fit.coefficients[:8], torch.eye(8, dtype=DOUBLE), atol=1e-9)


def test_a_bias_takes_up_a_constant() -> None:
    cut = draws(200, 1)
    dense = torch.cat([cut, torch.full((200, 1), 3.0, dtype=DOUBLE)], 1)
    kept, outgoing = torch.tensor([True, False]), torch.eye(2, dtype=DOUBLE)
    fit = fit_layer(dense, cut, kept, outgoing, torch.arange(200) % 4 == 3, "bias")
    assert fit is not None
    assert torch.allclose(fit.offset, torch.tensor([0, 3.0], dtype=DOUBLE), atol=1e-9)


def trained(seed: int = 0) -> tuple[nn.Sequential, Tensor]:
    """A network whose statistics are those of many inputs, and a few of them."""
    torch.manual_seed(seed)
    model = nn.Sequential(
        *(nn.Linear(6, 24), nn.BatchNorm1d(24), nn.ReLU(), nn.Linear(24, 16, bias=False), nn.BatchNorm1d(16)),
        *(nn.ReLU(), nn.Linear(16, 4)),
    ).double()
    for norm in (model[1], model[4]):
        norm.momentum = None
    many = draws(5000, 6, seed + 1)
    model.train()(many)
    return model.eval(), many


def test_statistics_follow_the_cut_and_not_the_probe() -> None:
    model, many = trained()
    ticket = sc.draw(model, many[:400], method="l2", budget=sc.Budget(0.75, scope="layer"))
    few = many[:48] * 3 + 1  # a probe that is not like the inputs the network has seen
    smaller = sc.cut(model, ticket, refit="least_squares", probe=few)
    # Nothing was cut before the first norm, so what reaches it has not changed.
    kept = torch.tensor(ticket.keep["0"])
    for name in ("running_mean", "running_var"):
        assert torch.allclose(getattr(smaller[1], name), getattr(model[1], name)[kept], rtol=1e-9, atol=1e-12)  # type: ignore[index]


def test_corrected_statistics_by_hand() -> None:
    norm = nn.BatchNorm1d(2, eps=0.0).double()
    norm.running_mean.copy_(torch.tensor([10.0, 0.0]))  # type: ignore[union-attr]
    norm.running_var.copy_(torch.tensor([4.0, 1.0]))  # type: ignore[union-attr]
    before = Statistics()
    before.add(torch.tensor([[-1.0, 5.0, 0.0], [1.0, 5.0, 2.0]], dtype=DOUBLE))  # means 0, 5, 1; variances 1, 0, 1
    # Unit 1 has left. The others: 0 moves from mean 0 to 2 and variance 1 to 9, 2 from 1 to 1 and to a constant.
    after = torch.tensor([[-1.0, 1.0], [5.0, 1.0]], dtype=DOUBLE)
    correct(norm, before, torch.tensor([True, False, True]), after)
    assert norm.running_mean.tolist() == [12.0, 0.0]  # type: ignore[union-attr]
    assert norm.running_var[0].item() == pytest.approx(4 * 9.004 / 1.004)  # type: ignore[index]
    assert norm.running_var[1].item() == pytest.approx(1 / MOST)  # type: ignore[index]


def test_statistics_of_batches_are_those_of_the_whole() -> None:
    x = draws(90, 5) * torch.tensor([1, 10, 1e-6, 3, 1]) + torch.tensor([0, 5, 1e4, -3, 0])
    seen = Statistics()
    for part in x.split(37):
        seen.add(part)
    assert torch.allclose(torch.as_tensor(seen.mean), x.mean(0), rtol=1e-12)
    assert torch.allclose(seen.var, x.var(0, correction=0), rtol=1e-6)


def test_a_layer_that_a_refit_would_harm_keeps_its_weights_and_is_named() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(64, 64, bias=False), nn.Linear(64, 3, bias=False)).double()
    with torch.no_grad():
        model[0].weight.copy_(torch.eye(64))
    probe = draws(16, 64)  # units are independent: none explains another, and 16 rows of 32 seem to
    ticket = sc.draw(model, draws(400, 64, 3), method="l2", keep=0.5)
    with pytest.warns(ProbeWarning, match="do better as they are: 1;"):
        smaller = sc.cut(model, ticket, refit="least_squares", probe=probe)
    assert torch.equal(smaller[1].weight, sc.cut(model, ticket)[1].weight)  # type: ignore[index]


def test_a_layer_that_runs_twice_is_fitted_to_what_it_is_sent_first() -> None:
    class Twice(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.second, self.again = nn.Linear(5, 8), nn.Linear(5, 8), nn.Linear(8, 3)

        def forward(self, x: Tensor) -> Tensor:
            return self.again(self.first(x).relu()) - self.again(self.second(x).relu())

    torch.manual_seed(0)
    model, x = Twice().eval(), torch.randn(150, 5)
    ticket = sc.draw(model, x, keep=0.6)
    assert sc.cut(model, ticket, refit="least_squares", probe=x)(x).isfinite().all()


class Dense(nn.Module):
    """Every layer reads all before it."""

    def __init__(self, layers: int = 6) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(4 + 8 * i, 8) for i in range(layers))
        self.last = nn.Linear(4 + 8 * layers, 2)

    def forward(self, x: Tensor) -> Tensor:
        for layer in self.layers:
            x = torch.cat([x, layer(x).relu()], 1)
        return self.last(x)


def test_what_leaves_is_worked_out_once_however_many_layers_read(monkeypatch: pytest.MonkeyPatch) -> None:
    torch.manual_seed(0)
    model, x = Dense().eval(), torch.randn(200, 4)
    ticket = sc.draw(model, x, keep=0.5)
    counts, slices = [0], Groups.slices

    def counted(groups: Groups, keep: Any) -> Any:
        counts[0] += 1
        return slices(groups, keep)

    monkeypatch.setattr(Groups, "slices", counted)
    plain = sc.cut(model, ticket)
    of_cut, counts[0] = counts[0], 0
    fitted = sc.cut(model, ticket, refit="least_squares", probe=x)
    assert counts[0] == of_cut + 1
    whole = model(x)
    assert (fitted(x) - whole).square().mean() < (plain(x) - whole).square().mean()


def test_the_whole_network_and_the_random_state_are_left_as_found() -> None:
    model, many = trained()
    before, state = copy.deepcopy(model.state_dict()), torch.get_rng_state()
    ticket = sc.draw(model, many[:100], keep=0.5)
    sc.cut(model, ticket, refit="least_squares", probe=many[:100])
    assert all(torch.equal(tensor, before[name]) for name, tensor in model.state_dict().items())
    assert torch.equal(torch.get_rng_state(), state)
    assert not any(module._forward_pre_hooks for module in model.modules())
    assert np.array_equal(ticket.keep["0"], sc.draw(model, many[:100], keep=0.5).keep["0"])
