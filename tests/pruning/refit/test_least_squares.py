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
from splinecut.networks.program import Norm
from splinecut.pruning.refit.batch_norms import MOST, Statistics
from splinecut.pruning.refit.norm_update import correct_norm

DOUBLE = torch.float64


def draws(rows: int, columns: int, seed: int = 0) -> Tensor:
    return torch.randn(rows, columns, generator=torch.Generator().manual_seed(seed), dtype=DOUBLE)


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
    weights = {"mean": torch.tensor([10.0, 0.0], dtype=DOUBLE), "var": torch.tensor([4.0, 1.0], dtype=DOUBLE)}
    norm = Norm(torch.fx.Graph().placeholder("x"), None, None, "mean", "var", eps=0.0)
    before = torch.tensor([[-1.0, 0.0], [1.0, 2.0]], dtype=DOUBLE)  # means 0 and 1, variances 1 and 1
    after = torch.tensor([[-1.0, 1.0], [5.0, 1.0]], dtype=DOUBLE)  # means 2 and 1, variances 9 and 0
    correct_norm(norm, weights, [(before, after)])
    assert weights["mean"].tolist() == [12.0, 0.0]
    assert weights["var"][0].item() == pytest.approx(4 * 9.004 / 1.004)
    assert weights["var"][1].item() == pytest.approx(1 / MOST)


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


def test_a_layer_that_runs_twice_stays_finite() -> None:
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
