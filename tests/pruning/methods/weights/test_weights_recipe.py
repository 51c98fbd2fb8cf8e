"""Single-weight methods from a recipe, and the study that holds them against random masks."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from splinecut.experiments import runner, spec
from splinecut.pruning.ticket import Ticket
from studies.criteria import weights as beats_random

QUICK = ["training.epochs=1", "data.train_size=200"]
RESULT = Path(__file__).parents[4] / "results" / "beats-random-weights.json"


@pytest.mark.parametrize("method", ["snip", "rigl"])
def test_a_recipe_runs_with_the_name_of_a_method(method: str, tmp_path: Path) -> None:
    experiment = spec.load("digits-weights", [f"method={method}", *QUICK])
    record = runner.run(experiment, tmp_path, device="cpu")
    assert record.pruning is not None
    kept = record.pruning["achieved"]
    assert kept["kept"] == round(0.03 * kept["of"]) >= record.pruning["nonzero"]
    ticket = Ticket.load(tmp_path / experiment.folder / "ticket.safetensors")
    assert ticket.kind == "weights" and ticket.achieved.kept == kept["kept"]
    retrain = record.costs.phases["retrain"]
    assert 0 < retrain.sparse_flops < 0.3 * retrain.flops == 0.3 * retrain.paper_flops


def test_a_twin_trains_under_its_own_mask(tmp_path: Path) -> None:
    experiment = spec.load("digits-weights", ["method=snip", *QUICK])
    runner.run(experiment, tmp_path, device="cpu")
    ticket = Ticket.load(tmp_path / experiment.folder / "ticket.safetensors")
    accuracy = beats_random.masked_accuracy(experiment, ticket)
    # The ticket itself instead of a twin: what is trained is what the run trained.
    assert accuracy == runner.run(experiment, tmp_path).test["last"]["accuracy"]


def test_comparisons_are_paired_by_seed() -> None:
    names = {name for pair in beats_random.MUST_BEAT.items() for name in (pair[0], *pair[1])}
    names |= {f"{name} (twin)" for name in beats_random.HAVE_TWINS}
    rows = [dict.fromkeys(names, 0.5 + 0.1 * seed) for seed in range(3)]
    for seed, gain in enumerate((0.01, 0.02, 0.03)):
        rows[seed]["lottery"] += gain
    pair = next(c for c in beats_random.comparisons(rows) if (c.first, c.second) == ("lottery", "erk"))
    assert pair.differences == pytest.approx((1.0, 2.0, 3.0)) and pair.wins == 3
    assert pair.p == pytest.approx(0.0371, abs=1e-4)  # t = 2 / (1 / sqrt 3) = 3.46 with 2 degrees of freedom


def test_in_the_committed_result_each_method_beats_the_masks_it_must() -> None:
    rows = json.loads(RESULT.read_text(encoding="utf-8"))["accuracy by seed"]
    assert len(rows) >= 5
    for control, methods in beats_random.MUST_BEAT.items():
        for method in methods:
            pair = next(c for c in beats_random.comparisons(rows) if (c.first, c.second) == (method, control))
            assert pair.p < 0.1 and sum(pair.differences) > 0, (method, control)
