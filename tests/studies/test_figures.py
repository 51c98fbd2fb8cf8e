"""The studies behind Figs. 2, 3 and 4: their parts against slow, obvious versions, and a small study whole."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

import splinecut as sc
from splinecut.experiments.film.window import graph_of
from splinecut.geometry.partition import subdivide
from splinecut.training import data
from splinecut.training.config import Optimizer, TrainingConfig
from splinecut.training.data import TensorSplit
from studies.figures import pruned_pictures, trajectory
from studies.support import panels, tasks
from studies.support import partition_facts as shapes
from studies.support.tasks import Task

SQUARE = np.array([[-1.0, -1.0], [1.0, -1.0], [1.0, 1.0], [-1.0, 1.0]])


def short(hidden: tuple[int, ...] = (6, 5), epochs: int = 6) -> Task:
    """FCNet trained for a moment, with steps large enough to move its cuts."""
    plan = TrainingConfig(epochs=epochs, optimizer=Optimizer(lr=0.1, weight_decay=0.0))
    return replace(tasks.fcnet(hidden), plan=plan, steps=6 * epochs)


@pytest.fixture(scope="module")
def follow() -> trajectory.Follow:
    return trajectory.followed(short(), seed=0)


@pytest.fixture(scope="module")
def cuts() -> list[pruned_pictures.Cut]:
    return pruned_pictures.cuts_of(short((8,)), 0, keeps=(1.0, 0.5, 0.25))


def test_the_first_picture_is_the_partition_of_the_untrained_network(follow: trajectory.Follow, tmp_path: Path) -> None:
    task = short()
    rows = trajectory.pictures(task, follow, tmp_path / "film.json", ())
    assert [row["step"] for row in rows] == [0, 2, 7, 18, 36]
    assert rows[0]["regions"] == len(sc.subdivide(task.build(0).eval(), task.region))
    assert (tmp_path / "film.svg").read_text().rstrip().endswith("</svg>")


def test_a_layer_is_at_no_distance_from_its_own_end(follow: trajectory.Follow) -> None:
    codes = list(follow.seen.values())
    ends = trajectory.to_the_end(codes)
    for layer, values in ends.items():
        bits = [each.bits(layer) for each in codes]
        assert values[-1] == 0 < values[0]
        assert values == pytest.approx([float((each != bits[-1]).mean()) for each in bits])
    assert list(trajectory.onward(codes)) == list(ends)


def test_training_stops_at_the_last_step_asked_for() -> None:
    task = replace(short(epochs=6), steps=20)
    assert max(trajectory.followed(task, seed=0).seen) == 20


def test_arrival_is_when_the_distance_stays_small_by_hand() -> None:
    steps, distances = [0, 10, 20, 30, 40], [0.4, 0.1, 0.3, 0.02, 0.0]
    assert trajectory.arrived(steps, distances, 0.5) == 30  # at step 10 it was there, and went off again
    assert trajectory.arrived(steps, distances, 0.2) == 10
    assert trajectory.arrived(steps, [0.0] * 5, 0.9) == 0
    assert trajectory.covered(steps, distances, 10) == pytest.approx(0.75)


def test_a_share_of_one_keeps_every_unit_and_other_shares_what_they_say(cuts: list[pruned_pictures.Cut]) -> None:
    assert [each.facts["achieved keep"] for each in cuts] == [1.0, 0.5, 0.25]
    assert [each.facts["units"] for each in cuts] == [8, 4, 2]
    assert cuts[0].facts["relative FLOPs"] == 1.0 > cuts[1].facts["relative FLOPs"]
    # One hidden layer: 2 multiply-adds a unit and input or output, so FLOPs go with the units up to biases.
    assert cuts[1].facts["relative FLOPs"] == pytest.approx(0.5, abs=0.05)


def test_regions_stay_below_the_planar_bound(cuts: list[pruned_pictures.Cut]) -> None:
    for each in cuts:
        facts, units = each.facts, each.facts["units"]
        assert facts["regions"] <= 1 + units + units * (units - 1) // 2
        assert 10 ** facts["log10 of the planar bound"] == pytest.approx(1 + units + units * (units - 1) // 2)
        assert facts["units that make a kink"] <= facts["units that cut"] <= units


def test_removed_and_kept_units_share_all_cuts_and_all_turning() -> None:
    task = short((8,))
    model = task.build(0).eval()
    graph = graph_of(model, task.region)
    whole = subdivide(graph, task.region)
    ticket = sc.draw(model, task.load(0).train.examples(list(range(100))), keep=0.5)
    mirrored = replace(ticket, keep={name: ~kept for name, kept in ticket.keep.items()})
    found = [shapes.removed(graph, whole, each) for each in (ticket, mirrored)]
    assert len(whole.kinks()) > 0
    for fact in ("share of the cuts", "share of the turning"):
        assert found[0][fact] + found[1][fact] == pytest.approx(1)
    (kept,) = ticket.keep.values()
    assert np.array_equal(shapes.is_removed(graph, ticket, 0), ~kept)


def test_every_place_of_a_removed_channel_is_removed() -> None:
    torch.manual_seed(0)
    model = torch.nn.Sequential(
        torch.nn.Conv2d(1, 4, 3), torch.nn.ReLU(), torch.nn.Flatten(), torch.nn.Linear(16, 2)
    ).eval()
    ticket = sc.draw(model, torch.randn(32, 1, 4, 4), method="l2", keep=0.5)
    graph = graph_of(model, sc.Slice(np.zeros((1, 4, 4)), np.random.default_rng(0).normal(size=(2, 1, 4, 4)), SQUARE))
    (kept,) = ticket.keep.values()
    assert np.array_equal(shapes.is_removed(graph, ticket, 0).reshape(4, 4), np.tile(~kept[:, None], (1, 4)))


def shoelace(corners: np.ndarray) -> float:
    x, y = corners.T
    return float(np.abs(x @ np.roll(y, -1) - y @ np.roll(x, -1)) / 2)


def test_tints_cover_the_window_once_and_name_the_class_that_wins() -> None:
    task = short((12,))
    model = task.build(1).eval()
    partition = sc.subdivide(model, task.region)
    pieces, colours = panels.tinted(partition)
    areas = [shoelace(piece) for piece in pieces]
    assert sum(areas) == pytest.approx(task.region.area)
    large = [place for place, area in enumerate(areas) if area > 1e-3]
    middles = torch.tensor(np.array([pieces[place].mean(axis=0) for place in large]), dtype=torch.float32)
    with torch.no_grad():
        winners = model(middles).argmax(1).tolist()
    assert [colours[place] for place in large] == [panels.TINTS[winner] for winner in winners]
    assert len(set(winners)) == 2


def test_a_second_look_is_about_the_boundary() -> None:
    task = short((12,))
    graph = graph_of(task.build(1), task.region)
    partition = subdivide(graph, task.region)
    near = panels.near_boundary(graph, partition, 1 / 8)
    assert near.slice.area == pytest.approx(task.region.area / 64)
    middle = near.slice.window.mean(axis=0)
    assert np.isclose(partition.boundary().ends.mean(axis=1), middle).all(axis=1).any()


def test_only_two_classes_are_left_and_numbered_anew() -> None:
    whole = data.load("digits")
    pair = tasks.only(whole, (6, 9))
    assert (pair.outputs, pair.class_names) == (2, ("6", "9")) and pair.hash != whole.hash
    assert isinstance(whole.train, TensorSplit) and isinstance(pair.train, TensorSplit)
    nines = whole.train.inputs[whole.train.targets == 9]
    assert torch.equal(pair.train.inputs[pair.train.targets == 1], nines)
    assert len(pair.train) == int(((whole.train.targets == 6) | (whole.train.targets == 9)).sum())


@pytest.mark.parametrize("study", [trajectory, pruned_pictures], ids=["trajectory", "pruned_pictures"])
def test_a_small_study_writes_its_result_and_its_pictures_whole(
    study: object, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    task = replace(short((20,), epochs=2), zoom=1 / 4)
    monkeypatch.setitem(tasks.TASKS, "fcnet", lambda data_dir: task)
    monkeypatch.setattr("sys.argv", ["study", "--task", "fcnet", "--seeds", "1", "--out", str(tmp_path / "small.json")])
    study.main()  # type: ignore[attr-defined]
    result = json.loads((tmp_path / "small.json").read_text())
    assert len(result["by seed"]) == 1 and "--task fcnet --seeds 1" in result["command"]
    for picture in ("small.svg", "small-near.svg"):
        assert (tmp_path / picture).read_text().rstrip().endswith("</svg>")
    assert not list(tmp_path.glob(".*"))  # nothing half written is left
    if study is pruned_pictures:
        assert "achieved keep 0.050" in capsys.readouterr().out
        assert [row["achieved keep"] for row in result["rows"]] == list(pruned_pictures.KEEPS)
        assert [row["regions"]["mean"] for row in result["rows"]][-1] == 2  # one unit cuts the window once


def test_many_regions_make_an_image_of_few_colours(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from PIL import Image

    monkeypatch.setattr(panels, "MOST_IN_SVG", 10)
    partition = sc.subdivide(short((12,)).build(1).eval(), short().region)
    written = panels.sheet({"untrained": partition}, (), tmp_path / "sheet.json", columns=1)
    assert written == tmp_path / "sheet.png"
    with Image.open(written) as image:
        image.load()
        assert image.mode == "P" and min(image.size) > 300
