"""The account book adds up, and gives the paper's totals for the paper's dense runs."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from splinecut.errors import InputError
from splinecut.networks import cost, models
from splinecut.training.ledger import FORWARD, Ledger, Phase

CIFAR, IMAGENET = (3, 32, 32), (3, 224, 224)


@pytest.mark.parametrize(
    ("name", "shape", "images", "epochs", "peta"),
    [
        ("vgg16", CIFAR, 50_000, 160, 15.1),
        ("preresnet101", CIFAR, 50_000, 160, 7.4),
        ("resnet18", IMAGENET, 1_281_167, 90, 1259),
        ("resnet50", IMAGENET, 1_281_167, 90, 2840),
    ],
)
def test_the_paper_total_of_a_dense_run_is_the_papers(
    name: str, shape: tuple[int, ...], images: int, epochs: int, peta: float
) -> None:
    classes = 10 if shape is CIFAR else 1000
    flops = cost.forward_flops(models.build(name, classes=classes), shape)
    ledger = Ledger()
    for _ in range(epochs):
        ledger.charge("train", flops, images)
    assert ledger.total.paper_flops == 3 * flops * images * epochs
    assert ledger.total.paper_flops / 1e15 == pytest.approx(peta, rel=0.01)


def test_validating_and_probing_count_in_full_but_not_in_the_papers_total() -> None:
    ledger = Ledger()
    ledger.charge("train", 10, 5)
    ledger.charge("train: validate", 10, 2, FORWARD)
    ledger.charge("search", 10, 4, in_paper=False)
    assert ledger.total.paper_flops == 150
    assert ledger.total.flops == 150 + 20 + 120
    assert ledger.total.images == 11


def test_a_ledger_survives_being_written_down() -> None:
    ledger = Ledger()
    ledger.charge("train", 2**70, 3, seconds=0.1)
    ledger.spend("train", seconds=0.2, joules=5.0)
    assert Ledger.from_dict(ledger.to_dict()).phases == ledger.phases


def test_energy_that_was_not_measured_stays_unmeasured() -> None:
    ledger = Ledger()
    ledger.charge("train", 1, 1, seconds=2.0)
    assert ledger.total.joules is None
    ledger.spend("train", joules=3.0)
    assert ledger.total.joules == 3.0


def test_time_is_left_out_where_work_is_compared() -> None:
    one, two = Ledger(), Ledger()
    one.charge("train", 7, 3, seconds=1.0)
    two.charge("train", 7, 3, seconds=2.0)
    assert one.without_time() == two.without_time()
    assert one.to_dict() != two.to_dict()


def test_phases_of_stored_ledgers_are_read_back_as_they_were_written() -> None:
    golden = json.loads((Path(__file__).parents[2] / "tests" / "data" / "golden.json").read_text(encoding="utf-8"))
    stored = {phase for run in golden["runs"].values() for phase in run["phases"]}
    assert {"train", "train: validate", "round-1: validate", "retrain", "score", "test"} <= stored
    for text in stored:
        phase = Phase.parse(text)
        assert str(phase) == text and Phase.parse(str(phase)) == phase


@pytest.mark.parametrize(
    ("text", "phase", "network"),
    [
        ("train", Phase("train"), "dense"),
        ("train: validate", Phase("train", part="validate"), "dense"),
        ("round-2: validate", Phase("round", "2", "validate"), "between"),
        ("retrain", Phase("retrain"), "pruned"),
        ("reinitialise-3", Phase("reinitialise", "3"), "pruned"),
        ("test", Phase("test"), "pruned"),
        ("centripetal-0.5", Phase("centripetal", "0.5"), "dense"),
        ("centripetal-1e-05", Phase("centripetal", "1e-05"), "dense"),
        ("pruning-net: generate weights", Phase("pruning-net", part="generate weights"), "dense"),
        ("adversarial-1: teacher", Phase("adversarial", "1", "teacher"), "dense"),
        ("one epoch on", Phase("one epoch on"), "dense"),
    ],
)
def test_a_phase_has_one_string(text: str, phase: Phase, network: str) -> None:
    assert Phase.parse(text) == phase and str(phase) == text and Phase.parse(phase) is phase
    assert phase.network == network


@pytest.mark.parametrize("parts", [("",), ("layer-3",), ("train: validate",), ("round", "two")])
def test_a_phase_that_would_be_read_back_as_another_is_refused(parts: tuple[str, ...]) -> None:
    with pytest.raises(InputError, match=r"use Phase\.parse"):
        Phase(*parts)


def test_a_part_is_charged_beside_its_phase_and_counts_with_it() -> None:
    ledger = Ledger()
    ledger.charge(Phase("round", "1"), 5, images=2)
    ledger.charge(Phase("round", "1").with_part("validate"), 5, images=1, passes=FORWARD)
    ledger.charge("score", 7, images=1, passes=FORWARD)
    assert ledger.stages == {Phase("round", "1"), Phase("score")}
    assert ledger.only({Phase("round", "1")}).total.flops == 3 * 5 * 2 + 5
