"""The account book adds up, and gives the paper's totals for the paper's dense runs."""

from __future__ import annotations

import pytest

from splinecut.networks import cost, models
from splinecut.training.ledger import FORWARD, Ledger

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
