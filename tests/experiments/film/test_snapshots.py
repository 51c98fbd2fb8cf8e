"""Films of runs: what is stored is the network at those steps, whatever interrupts, and fits where it is looked at."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import splinecut as sc
from splinecut.errors import InputError
from splinecut.experiments import building, measurements, runner
from splinecut.experiments.film import frames
from splinecut.experiments.film.build import frame_of
from splinecut.experiments.film.snapshots import WeightSnapshots
from splinecut.experiments.film.window import center_on_boundary
from splinecut.networks import models
from splinecut.pruning.detect import EarlyBird
from splinecut.training import data
from splinecut.training.config import TrainingConfig
from splinecut.training.hooks import TrainState
from splinecut.training.loop import train
from splinecut.training.progress import ConsoleProgress

TOY: dict[str, Any] = {
    "name": "toy",
    "model": {"name": "mlp", "hidden": [8, 6]},
    "data": {"name": "x-shape", "train_size": 256},
    "training": {"epochs": 3, "batch_size": 64},
    "film": {"steps": [1, 6], "keeps": [0.5]},
}
DIGITS: dict[str, Any] = {
    "name": "digits",
    "model": {"name": "convnet", "preset": "digits", "width": 0.25},
    "data": {"name": "digits", "train_size": 300},
    "training": {"epochs": 2, "batch_size": 64},
    "film": {"steps": [3], "keeps": [0.5], "max_regions": 300},
}


def experiment(recipe: dict[str, Any], **changes: Any) -> sc.Experiment:
    return sc.Experiment.from_dict({**recipe, **changes})


def stored(asked: sc.Experiment, out: Path) -> frames.Frames:
    return frames.load(out / asked.folder / frames.FILE)


class Killed(ConsoleProgress):
    """Pulls the plug after some steps."""

    def __init__(self, step: int) -> None:
        super().__init__()
        self.step = step

    def after_step(self, state: TrainState) -> None:
        if state.step == self.step:
            raise KeyboardInterrupt


def test_takes_hold_the_weights_of_their_steps() -> None:
    dataset, plan = data.load("x-shape", train_size=256), TrainingConfig(epochs=2, batch_size=64)
    takes = WeightSnapshots({4, 99})
    model = models.build("mlp", classes=2, hidden=(8,), seed=0)
    train(model, dataset, plan, hooks=(takes,))
    assert sorted(takes.held) == [0, 4, 8]
    fresh = models.build("mlp", classes=2, hidden=(8,), seed=0)
    for name, value in fresh.state_dict().items():
        assert value.equal(takes.held[0][name])
    for name, value in model.state_dict().items():
        assert value.equal(takes.held[8][name])


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the toy ran without interruption."""
    out = tmp_path_factory.mktemp("whole")
    runner.run(experiment(TOY), out)
    return out


def test_the_last_frame_of_training_is_the_partition_of_the_saved_network(whole: Path) -> None:
    asked = experiment(TOY)
    record, film = runner.run(asked, whole), stored(asked, whole)
    assert [frame.step for frame in film if frame.stage == "train"] == [0, 1, 6, 12]
    assert [frame.keep for frame in film if frame.stage == "prune"] == [0.5]
    assert film.class_names == ("left or right", "above or below") and len(film.points) == len(film.labels) == 256
    model = building.build_model(asked, runner.load_data(asked))
    network = sc.load(whole / asked.folder / "model.safetensors", model)
    last = film.frames[3]
    window = np.stack([last.vertices.min(axis=0), last.vertices.max(axis=0)])
    corners = np.stack([window[[0, 1, 1, 0], 0], window[[0, 0, 1, 1], 1]], axis=1)
    found = frame_of(sc.subdivide(network.eval(), sc.Slice(np.zeros(2), np.eye(2), corners)))
    assert len(found) == len(last)
    np.testing.assert_allclose(found.vertices, last.vertices, atol=1e-9)
    assert last.facts["validation accuracy"] == pytest.approx(record.history[-1]["validation_accuracy"])


@pytest.mark.parametrize("step", [3, 9])
def test_a_killed_run_stores_the_same_frames(step: int, whole: Path, tmp_path: Path) -> None:
    asked = experiment(TOY)
    with pytest.raises(KeyboardInterrupt):
        runner.run(asked, tmp_path, progress=Killed(step))
    runner.run(asked, tmp_path)
    for one, other in zip(stored(asked, whole), stored(asked, tmp_path), strict=True):
        assert one.about() == other.about()
        assert all(np.array_equal(array, other.arrays()[name]) for name, array in one.arrays().items())


def test_images_are_filmed_where_classes_meet_and_within_the_limit(tmp_path: Path) -> None:
    asked = experiment(DIGITS, method="spline", budget={"keep": 0.5}, retrain="none")
    runner.run(asked, tmp_path)
    film = stored(asked, tmp_path)
    trained = [frame for frame in film if frame.stage == "train"]
    assert [frame.step for frame in trained] == [0, 3, 10]
    assert max(map(len, trained)) <= 300
    assert len(trained[-1].boundary) and len(film.points) == 3 and len(set(film.labels.tolist())) == 3


def test_a_window_is_moved_to_a_place_where_classes_meet() -> None:
    model = models.build("mlp", classes=3, hidden=(8,), seed=1).eval()
    whole = sc.Slice.square(4.0)
    line = sc.subdivide(model, whole).boundary()
    assert len(line)  # else there is nothing to find
    moved = center_on_boundary(model, whole)
    middle = moved.window.mean(axis=0)
    a, b = line.ends[:, 0], line.ends[:, 1]
    along = np.clip(((middle - a) * (b - a)).sum(1) / ((b - a) ** 2).sum(1), 0, 1)[:, None]
    assert np.linalg.norm(a + along * (b - a) - middle, axis=1).min() < 8 / 60
    np.testing.assert_allclose(np.ptp(moved.window, axis=0), 8)


def test_the_plane_may_go_through_chosen_inputs(tmp_path: Path) -> None:
    film = {"through": [0, 5, 9], "max_regions": 100}
    asked = experiment(DIGITS, film=film, training={"epochs": 1, "batch_size": 64})
    runner.run(asked, tmp_path)
    dataset = runner.load_data(asked)
    assert stored(asked, tmp_path).labels.tolist() == dataset.train.targets[[0, 5, 9]].tolist()
    with pytest.raises(InputError, match="names rows"):
        runner.run(experiment(DIGITS, film={"through": [0, 5, 999999]}), tmp_path)


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"data": "sawtooth", "model": {"name": "mlp", "hidden": [4]}}, "leave \\[film\\] out"),
        ({"method": "snip"}, "snip prunes before any training"),
    ],
)
def test_what_cannot_be_filmed_is_refused_before_training(changes: dict[str, Any], reason: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=reason):
        runner.run(experiment(TOY, **changes), tmp_path)


def test_a_run_without_a_film_keeps_its_old_digest_and_record(tmp_path: Path) -> None:
    plain = experiment({key: value for key, value in TOY.items() if key != "film"})
    assert plain.digest != experiment(TOY).digest
    assert "film" not in runner.run(plain, tmp_path).spec
    assert not (tmp_path / plain.folder / frames.FILE).exists()


def test_a_filmed_experiment_survives_its_recipe() -> None:
    import tomllib

    asked = experiment(TOY)
    assert sc.Experiment.from_dict(tomllib.loads(asked.to_toml())) == asked


def test_matrices_by_layer_average_to_the_matrix_of_the_network() -> None:
    dataset = data.load("x-shape", train_size=64)
    bird = EarlyBird(dataset.train.examples(list(range(50))))
    for seed in range(3):
        bird.observe(models.build("mlp", classes=2, hidden=(8, 6), seed=seed))
    by_layer = measurements.matrices(bird)
    assert len(by_layer) == 2
    np.testing.assert_allclose(np.mean(list(by_layer.values()), axis=0), bird.matrix(), atol=1e-5)
    steps = {layer: [matrix[0][1], matrix[1][2]] for layer, matrix in by_layer.items()}
    for layer, distances in bird.by_layer().items():
        np.testing.assert_allclose(distances, steps[layer], atol=1e-5)
