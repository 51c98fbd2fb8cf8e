"""The default criterion: units are worth what the network's output loses, measured on inputs that no fit has seen."""

from __future__ import annotations

import warnings
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import splinecut as sc
from splinecut.errors import ProbeWarning
from splinecut.pruning.output_error import measure
from splinecut.pruning.output_error.divergence import relative
from splinecut.pruning.output_error.effort import EFFORTS


def inputs(n: int, *shape: int, seed: int = 1) -> Tensor:
    return torch.randn(n, *shape, generator=torch.Generator().manual_seed(seed))


def pooled(wide: int = 120) -> nn.Module:
    """A head of many units behind a global pooling; every second unit of the first layer repeats its neighbour."""
    torch.manual_seed(0)
    model = nn.Sequential(
        *(nn.Conv2d(3, 16, 3, padding=1), nn.ReLU(), nn.Conv2d(16, wide, 3, padding=1), nn.ReLU()),
        *(nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(wide, 10)),
    )
    with torch.no_grad():
        model[0].weight[1::2] = 1.5 * model[0].weight[::2]
        model[0].bias[1::2] = 1.5 * model[0].bias[::2]
    return model.eval()


@pytest.mark.filterwarnings("ignore::splinecut.errors.ProbeWarning")
def test_a_pooled_head_of_which_the_probe_knows_little_is_not_cut_first() -> None:
    model, probe, fresh = pooled(), patterns(64), patterns(200, seed=2)
    # 48 rows explain any 48 of 120 pooled units exactly; on other inputs they explain little.
    budget = sc.Budget(0.55, "flops")
    ticket = sc.draw(model, probe, budget=budget)
    assert ticket.keep["0"].sum() <= 10 and ticket.keep["2"].sum() >= 0.8 * 120
    assert spread_lost(model, sc.cut(model, ticket, refit="least_squares", probe=probe), fresh) < 0.02


def patterns(n: int, seed: int = 1) -> Tensor:
    """Images that differ in colour, contrast and texture, so that pooled features vary."""
    generator = torch.Generator().manual_seed(seed)
    colour = 2 * torch.randn(n, 3, 1, 1, generator=generator)
    contrast = torch.randn(n, 3, 1, 1, generator=generator).exp()
    return colour + contrast * torch.randn(n, 3, 8, 8, generator=generator)


@torch.no_grad()
def spread_lost(model: nn.Module, smaller: nn.Module, x: Tensor) -> float:
    """The squared error as a share of how much the dense outputs vary: a constant network has 1."""
    dense = model(x)
    return float((smaller(x) - dense).square().sum() / (dense - dense.mean(0)).square().sum())


def test_the_ticket_names_layers_limited_by_the_probe_and_how_many_inputs_would_do(tmp_path: Path) -> None:
    with pytest.warns(ProbeWarning, match=r"fewer rows .* at 6: .* 160 inputs or more would do, got 64"):
        ticket = sc.draw(pooled(), inputs(64, 3, 8, 8), budget=sc.Budget(0.9, "flops"))
    assert ticket.facts["limited"] == {"6": 160}
    assert "6: limited by the probe; 160 inputs or more would do" in str(ticket)
    assert sc.Ticket.load(ticket.save(tmp_path / "a.json")).facts == dict(ticket.facts)


@pytest.mark.filterwarnings("ignore::splinecut.errors.ProbeWarning")
def test_copies_of_inputs_change_nothing() -> None:
    model, probe = pooled(), inputs(40, 3, 8, 8)
    once = sc.draw(model, probe, budget=sc.Budget(0.7, "flops"))
    often = sc.draw(model, torch.cat([probe, probe, probe.flip(0)]), budget=sc.Budget(0.7, "flops"))
    assert all(np.array_equal(once.keep[name], often.keep[name]) for name in once.keep)


def of_rank(rank: int) -> nn.Sequential:
    """A layer of 24 units that span `rank` dimensions, read by another."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(10, 24), nn.Linear(24, 6)).double()
    with torch.no_grad():
        model[0].weight.copy_(torch.randn(24, rank) @ torch.randn(rank, 10))
    return model.eval()


def test_a_layer_of_known_rank_is_cut_to_exactly_that_rank_without_loss() -> None:
    model, probe, fresh = of_rank(8), inputs(300, 10).double(), inputs(300, 10, seed=2).double()
    errors = {}
    for n_kept in (9, 8, 7):
        ticket = sc.draw(model, probe, budget=sc.Budget(n_kept / 24))
        assert ticket.keep["0"].sum() == n_kept
        smaller = sc.cut(model, ticket, refit="least_squares", probe=probe)
        errors[n_kept] = spread_lost(model, smaller, fresh)
    assert errors[9] < 1e-8 and errors[8] < 1e-8 and errors[7] > 1e-3


def test_units_that_never_move_leave_without_a_trace() -> None:
    torch.manual_seed(0)
    model, probe = nn.Sequential(nn.Linear(6, 12), nn.ReLU(), nn.Linear(12, 4)).eval(), inputs(200, 6)
    with torch.no_grad():
        model[0].weight[3:6] = 0.0
        model[0].bias[3:6] = torch.tensor([2.0, 0.0, -1.0])  # one is on at all inputs, one at zero, one never
    ticket = sc.draw(model, probe, budget=sc.Budget(0.75))
    assert np.flatnonzero(~ticket.keep["0"]).tolist() == [3, 4, 5]
    smaller = sc.cut(model, ticket, refit="least_squares", probe=probe)
    assert relative(model(probe), smaller(probe)).max() < 1e-6


class Residual(nn.Module):
    """Two residual blocks over a narrow stream; each block's inner layer is wide and repeats itself."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.stem, self.head = nn.Linear(12, 12), nn.Linear(12, 5)
        self.wide = nn.ModuleList(nn.Linear(12, 40) for _ in range(2))
        self.back = nn.ModuleList(nn.Linear(40, 12) for _ in range(2))
        with torch.no_grad():
            for layer in self.wide:
                layer.weight[20:] = layer.weight[:20]
                layer.bias[20:] = layer.bias[:20]

    def forward(self, x: Tensor) -> Tensor:
        x = self.stem(x)
        for wide, back in zip(self.wide, self.back, strict=True):
            x = x + back(wide(x).relu())
        return self.head(x)


def test_a_residual_stream_stays_whole_where_cutting_inside_is_better() -> None:
    model, probe = Residual().eval(), inputs(400, 12)
    ticket = sc.draw(model, probe, budget=sc.Budget(0.6, "flops"), residual="auto")
    stream = next(group.name for group in ticket.groups if len(group.producers) > 1)  # type: ignore[union-attr]
    assert ticket.keep[stream].all()
    assert ticket.predicted is not None and ticket.predicted < 1e-6


@pytest.mark.parametrize("keep", [0.9, 0.6, 0.35])
@pytest.mark.parametrize("of", ["flops", "weights", "channels"])
def test_budgets_are_met_exactly(keep: float, of: str) -> None:
    torch.manual_seed(1)
    model = nn.Sequential(nn.Linear(8, 20), nn.ReLU(), nn.Linear(20, 30), nn.ReLU(), nn.Linear(30, 4)).eval()
    ticket = sc.draw(model, inputs(200, 8), budget=sc.Budget(keep, of), effort="fast")  # type: ignore[arg-type]
    kept = ticket.achieved
    assert kept.flops and kept.all_flops and kept.parameters and kept.all_parameters
    if of == "channels":
        assert kept.kept == round(keep * 50)
    else:
        share = kept.flops / kept.all_flops if of == "flops" else kept.parameters / kept.all_parameters
        assert keep - 0.06 < share <= keep


def test_predicted_error_is_that_of_other_inputs() -> None:
    torch.manual_seed(2)
    model = nn.Sequential(
        *(nn.Conv2d(3, 12, 3, padding=1), nn.BatchNorm2d(12), nn.ReLU(), nn.Conv2d(12, 16, 3, stride=2)),
        *(nn.BatchNorm2d(16), nn.ReLU(), nn.AdaptiveAvgPool2d(2), nn.Flatten(), nn.Linear(64, 6)),
    )
    model.train()(inputs(500, 3, 10, 10, seed=5))
    probe, fresh = inputs(400, 3, 10, 10), inputs(600, 3, 10, 10, seed=3)
    for keep in (0.8, 0.6, 0.4):
        ticket = sc.draw(model.eval(), probe, budget=sc.Budget(keep, "flops"))
        smaller = sc.cut(model, ticket, refit="least_squares", probe=probe)
        measured = float(relative(model(fresh), smaller(fresh), is_scores=True).mean())
        assert ticket.predicted is not None
        assert measured / 1.5 < ticket.predicted < measured * 1.5


def test_an_interrupted_draw_resumes_with_what_it_had_measured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model, probe = of_rank(12).float(), inputs(600, 10)
    budget = sc.Budget(0.5)
    expected = sc.draw(model, probe, budget=budget)
    run, calls = measure._total, [0]

    def counted(*arguments: object) -> float:
        calls[0] += 1
        if calls[0] == 9:  # in the second batch
            raise KeyboardInterrupt
        return run(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(measure, "_total", counted)
    with pytest.raises(KeyboardInterrupt):
        sc.draw(model, probe, budget=budget, cache=tmp_path)
    [file] = tmp_path.glob("output-error-*.json")
    stored = file.read_text()
    monkeypatch.setattr(measure, "_total", run)
    assert sc.draw(model, probe, budget=budget, cache=tmp_path).keep["0"].tolist() == expected.keep["0"].tolist()
    assert stored.rstrip("}\n ") in file.read_text()  # what was measured is kept as it was
    sc.draw(model, probe * 2, budget=budget, cache=tmp_path)
    assert len(list(tmp_path.glob("*.json"))) == 2  # other inputs are another question


def test_efforts_cost_what_they_say_and_leave_the_network_as_found() -> None:
    model, probe = of_rank(12), inputs(300, 10).double()
    before, state = model[0].weight.clone(), torch.get_rng_state()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        tickets = {effort: sc.draw(model, probe, keep=0.5, effort=effort) for effort in EFFORTS}
    assert tickets["fast"].predicted is None and tickets["thorough"].predicted is not None
    assert torch.equal(model[0].weight, before) and torch.equal(torch.get_rng_state(), state)
    passes = [setting.forward_passes(20, 2048) for setting in EFFORTS.values()]
    assert passes == sorted(passes)


def test_by_layer_the_order_alone_decides() -> None:
    model, probe = of_rank(8), inputs(300, 10).double()
    ticket = sc.draw(model, probe, budget=sc.Budget(1 / 3, scope="layer"))
    smaller = sc.cut(model, ticket, refit="least_squares", probe=probe)
    assert ticket.keep["0"].sum() == 8
    assert relative(model(probe), smaller(probe)).mean() < 1e-8
