"""A run killed at any moment and taken up again ends as if nothing had happened."""

from __future__ import annotations

import os
import random
import subprocess
import sys
from pathlib import Path

import pytest

from splinecut.experiments.spec import Experiment
from support.interrupted_runs import EXPERIMENT, outcome, victim

PRUNED = {
    **EXPERIMENT,
    "detector": {"name": "early-bird-spline", "probe": 64},
    "method": "spline",
    "probe": 64,
    "training": {"epochs": 6, "batch_size": 64, "checkpoint_minutes": 0.0005},
}


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> tuple[dict, dict[str, bytes]]:
    out = tmp_path_factory.mktemp("undisturbed")
    assert victim(out) == [{"kill": "none", "status": 0}]
    return outcome(out)


def test_twenty_kills_leave_weights_metrics_and_ledger_bit_identical(tmp_path: Path, undisturbed: tuple) -> None:
    after_a_while = [f"steps:{random.Random(i).uniform(1, 25):.3f}" for i in range(8)]
    inside_a_write = [f"fsync:{n}" for n in (1, 2, 5, 6)] + [f"half-written:{n}" for n in (1, 2, 3)]
    around_a_rename = [f"before-rename:{n}" for n in (1, 2)] + [f"after-rename:{n}" for n in (1, 3)]
    at_an_epochs_end = ["epoch:1"]
    kills = inside_a_write + after_a_while + around_a_rename + at_an_epochs_end
    assert len(kills) == 20
    ends = victim(tmp_path, *kills)
    killed = [end for end in ends if end["status"] == -9]
    assert len(killed) == 20, f"the run ended before all kills were done: {ends}"
    assert ends[-1] == {"kill": "none", "status": 0}
    record, weights = outcome(tmp_path)
    expected_record, expected_weights = undisturbed
    assert record == expected_record
    assert weights == expected_weights


def test_a_pruned_run_killed_in_every_stage_ends_as_if_it_had_not_been(tmp_path: Path) -> None:
    assert victim(tmp_path / "whole", experiment=PRUNED) == [{"kill": "none", "status": 0}]
    expected = outcome(tmp_path / "whole", PRUNED)
    drawn = expected[0]["pruning"]["drawn_epoch"]
    # In the search, just after the epoch in which the bird is drawn, and several times while retraining.
    kills = ["steps:10.5", "epoch:1", f"epoch:{drawn - 1}", "fsync:4", "steps:30.2", "epoch:1", "half-written:2"]
    ends = victim(tmp_path / "killed", *kills, experiment=PRUNED)
    assert [end["status"] for end in ends] == [-9] * len(kills) + [0]
    assert outcome(tmp_path / "killed", PRUNED) == expected
    assert expected[0]["pruning"]["is_early"]


def test_a_truncated_newest_checkpoint_falls_back_and_says_so(tmp_path: Path, undisturbed: tuple) -> None:
    victim(tmp_path, "epoch:4", "stop-here")
    folder = tmp_path / Experiment.from_dict(EXPERIMENT).folder
    newest = max(folder.glob("checkpoints/train/*.safetensors"))
    newest.write_bytes(newest.read_bytes()[:-100])
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    recipe = folder / "recipe.toml"
    command = [sys.executable, "-m", "splinecut", "run", str(recipe), "--out", str(tmp_path), "--device", "cpu"]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=300)
    assert done.returncode == 0, done.stderr
    said = " ".join(done.stderr.split())
    assert "is truncated or altered; going back to the one before it" in said
    assert "resuming train at epoch" in said
    assert outcome(tmp_path) == undisturbed


def test_a_second_process_on_the_same_folder_is_refused_with_one_line(tmp_path: Path) -> None:
    from splinecut.locking import locked

    recipe = tmp_path / "r.toml"
    recipe.write_text(Experiment.from_dict(EXPERIMENT).to_toml())
    with locked(tmp_path / Experiment.from_dict(EXPERIMENT).folder):
        command = [sys.executable, "-m", "splinecut", "run", str(recipe), "--out", str(tmp_path)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1
    assert f"is in use by process {os.getpid()}" in done.stderr


def test_a_finished_run_is_read_not_run_again(tmp_path: Path) -> None:
    from splinecut.experiments import runner

    experiment = Experiment.from_dict({**EXPERIMENT, "training": {"epochs": 1}})
    first = runner.run(experiment, tmp_path, device="cpu")
    folder = tmp_path / experiment.folder
    before = {file: file.stat().st_mtime_ns for file in folder.iterdir()}
    assert runner.run(experiment, tmp_path, device="cpu") == first
    assert {file: file.stat().st_mtime_ns for file in folder.iterdir()} == before
    assert not list(folder.glob("checkpoints/*"))
