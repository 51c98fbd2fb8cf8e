"""The study of distance matrices: its parts against slow, obvious versions, and one tiny training watched by three."""

from __future__ import annotations

import argparse
import itertools
from pathlib import Path

import numpy as np
import pytest
import torch

from splinecut.experiments import runner
from splinecut.experiments.spec import Experiment
from splinecut.files import write_json
from splinecut.pruning.detect import EarlyBird
from studies.figures import matrices

TINY = {
    "model": {"name": "convnet", "preset": "digits", "width": 0.25},
    "data": {"name": "digits", "train_size": 200},
    "training": {"epochs": 4, "batch_size": 64},
}


def symmetric(n: int, seed: int) -> np.ndarray:
    half = np.triu(np.random.default_rng(seed).uniform(0.01, 0.5, (n, n)), 1)
    return half + half.T


def test_matrices_in_the_same_order_are_alike_whatever_their_size() -> None:
    matrix = symmetric(6, 0)
    assert matrices.alike(matrix, matrix) == {"rank_correlation": 1.0, "mean_difference": 0.0}
    half = matrices.alike(matrix, matrix / 2)
    assert half["rank_correlation"] == 1.0
    pairs = [matrix[i, j] / 2 for i in range(6) for j in range(i + 1, 6)]
    assert half["mean_difference"] == pytest.approx(np.mean(pairs), abs=1e-4)
    assert matrices.alike(matrix, 1 - matrix)["rank_correlation"] == -1.0


def test_a_matrix_of_gaps_agrees_with_the_gap() -> None:
    epochs = np.arange(7)
    found = matrices.comparisons({"train": abs(epochs[:, None] - epochs) / 20, "test": symmetric(7, 1)})
    assert found["rank correlation with the gap"]["train"] == 1.0
    assert set(found) == {"train and test", "rank correlation with the gap"}


def test_stretching_goes_from_zero_to_one_as_the_detector_stretches() -> None:
    matrix = symmetric(5, 2)
    stretched = matrices.stretched(matrix)
    assert stretched.min() == 0 and stretched.max() == 1
    assert np.allclose(stretched, (matrix - matrix.min()) / np.ptp(matrix))


def test_three_early_birds_see_one_training_each_on_inputs_of_its_own(tmp_path: Path) -> None:
    experiment = Experiment.from_dict(TINY)
    data = runner.load_data(experiment)
    birds, history = matrices.watched(experiment, data, size=32)
    assert len(history) == 4 and set(birds) == {"train", "test", "random"}
    assert all(len(bird.seen) == 5 for bird in birds.values())  # before training, and after each epoch
    shown = [bird.probe for bird in birds.values()]
    assert len({tuple(probe.flatten().tolist()) for probe in shown}) == 3
    noise, images = shown[2], shown[0]
    assert torch.isclose(noise.std(), images.std(), rtol=0.1)
    facts = {name: matrices.facts_of(bird) for name, bird in birds.items()}
    assert all(np.shape(fact["matrix"]) == (5, 5) for fact in facts.values())
    assert all(
        np.mean([layer[epoch] for layer in fact["between_epochs_by_layer"].values()])
        == pytest.approx(fact["between_epochs"][epoch], abs=2e-4)
        for fact in facts.values()
        for epoch in range(4)
    )
    matrices.draw({"tiny": {"probes": facts}, "again": {"probes": facts}}, tmp_path / "drawn.png")
    assert (tmp_path / "drawn.png").read_bytes().startswith(b"\x89PNG")
    matrices.draw({"alone": {"probes": facts}}, tmp_path / "one.png")
    assert (tmp_path / "one.png").read_bytes().startswith(b"\x89PNG")


def test_only_a_training_asked_for_in_the_same_words_is_not_done_again(tmp_path: Path) -> None:
    asked = argparse.Namespace(images=100, epochs=2, seed=0, activation="relu")
    experiments = {name: matrices.asked_for(network, asked) for name, network in matrices.NETWORKS.items()}
    assert matrices.finished(tmp_path / "none.json", experiments) == {}
    done = {name: {"spec": matrices._spec(one)} for name, one in experiments.items() if name != "AlexNet"}
    write_json(tmp_path / "some.json", {"networks": {**done, "LeNet": {"spec": {}}}})
    assert matrices.finished(tmp_path / "some.json", experiments) == done
    asked.activation = "leaky_relu"
    others = {name: matrices.asked_for(network, asked) for name, network in matrices.NETWORKS.items()}
    assert matrices.finished(tmp_path / "some.json", others) == {}


@pytest.mark.parametrize("seed", range(6))
def test_the_epoch_of_the_draw_is_the_one_at_which_a_run_would_have_stopped(seed: int) -> None:
    matrix = symmetric(9, seed)
    threshold = 0.35
    bird = EarlyBird(torch.zeros(1, 2), threshold=threshold)
    expected = None
    for epoch in range(1, 9):  # what a run's own detector has seen by then: the epochs 1 to `epoch`
        seen = list(range(1, epoch + 1))
        recent = [matrix[a, b] for a, b in itertools.pairwise(seen)][-bird.rule.window :]
        if len(recent) == bird.rule.window and max(recent) < threshold:
            expected = epoch
            break
    assert matrices.drawn_epoch(matrix, threshold, bird.rule.window) == expected
