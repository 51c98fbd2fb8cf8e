"""The detector's study: replayed rules are the detector's own, and the draw depends on nothing but the training."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from splinecut.experiments import runner, spec
from splinecut.pruning.detect import COMPARE, EarlyBird
from splinecut.pruning.detection_rules import DETECTION_RULES
from splinecut.training.config import Schedule
from studies import detector
from studies.detector import drawn_epoch, drops_of, share_of_schedule


@pytest.fixture(scope="module")
def bird() -> EarlyBird:
    """A bird that watched a network move by ever smaller random steps."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(3, 16), nn.ReLU(), nn.Linear(16, 16), nn.ReLU(), nn.Linear(16, 2))
    bird = EarlyBird(torch.randn(60, 3))
    for epoch in range(1, 13):
        with torch.no_grad():
            for parameter in model.parameters():
                parameter += torch.randn_like(parameter) * 0.7 / epoch**1.5
        bird.observe(model)
    return bird


@pytest.mark.parametrize("rule", DETECTION_RULES)
def test_a_replayed_rule_draws_when_the_detector_would(bird: EarlyBird, rule: str) -> None:
    def is_drawn(epoch: int, threshold: float) -> bool:
        distances = COMPARE[rule](bird.seen[:epoch], DETECTION_RULES[rule].window)
        return distances is not None and max(distances) < threshold

    epochs = []
    for threshold in (0.001, 0.03, 0.06, 0.1, 0.2, 0.5):
        epochs.append(next((epoch for epoch in range(1, 13) if is_drawn(epoch, threshold)), None))
        assert drawn_epoch(bird.matrix(), rule, threshold) == epochs[-1]
    assert len(set(epochs)) >= 4 and epochs[0] is None


def test_the_share_of_the_schedule_by_hand() -> None:
    # Six epochs, a drop after the third: distances 0.5 0.4 | 0.3 across it | 0.1 0.1.
    assert share_of_schedule([0.5, 0.4, 0.3, 0.1, 0.1], [3]) == pytest.approx((0.45 - 0.1) / (0.5 - 0.1))
    assert share_of_schedule([0.5, 0.4, 0.3, 0.1, 0.1], []) == 0
    assert share_of_schedule([0.1, 0.2, 0.2, 0.2], [2]) is None


def test_drops_are_counted_in_epochs_trained_before_them() -> None:
    assert drops_of(Schedule(), 40) == [20, 30]
    assert drops_of(Schedule(name="constant"), 40) == drops_of(Schedule(name="cosine"), 40) == []


def test_a_small_study_writes_its_rows_and_reads_them_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    out = tmp_path / "detector.json"
    words = f"study fcnet-x-shape --set training.epochs=5 --set data.train_size=400 --runs {tmp_path} --out {out}"
    monkeypatch.setattr("sys.argv", words.split())
    detector.main()
    first = json.loads(out.read_text())
    monkeypatch.setattr(detector, "train", None)  # a second call must not train
    detector.main()
    assert json.loads(out.read_text())["trainings"] == first["trainings"]
    step, constant = first["trainings"]
    assert (step["schedule"], constant["schedule"]) == ("step", "constant")
    assert len(step["rows"]) == 8 and len(step["matrix"]) == 5 == len(step["matrix"][0].split())
    assert step["drops after epochs"] == [3, 4]


def drawn(tmp_path: Path, *overrides: str) -> dict[str, Any]:
    detect = ["training.epochs=5", "data.train_size=400", "detector=early-bird-spline", "detector.threshold=0.04"]
    record = runner.run(spec.load("fcnet-x-shape", [*detect, *overrides]), tmp_path)
    assert record.pruning is not None and record.pruning["is_early"]
    return record.pruning


def test_the_draw_does_not_depend_on_the_pruning_method_or_on_keep(tmp_path: Path) -> None:
    first = drawn(tmp_path / "a", "method=spline", "budget.keep=0.5")
    for method, keep in (("l2", 0.5), ("spline", 0.2)):
        other = drawn(tmp_path / f"{method}{keep}", f"method={method}", f"budget.keep={keep}")
        assert other["layers"] != first["layers"] or method != "spline"
        for fact in ("drawn_epoch", "drawn_step", "distances"):
            assert other[fact] == first[fact]
