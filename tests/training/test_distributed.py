"""Two processes under torchrun train the network that one process trains."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

from splinecut.experiments.spec import Experiment

EXPERIMENT = Experiment.from_dict(
    {
        "name": "mlp-digits",
        "model": {"name": "mlp", "hidden": [32, 32]},  # no batch norm: it would see half of each batch
        "data": "digits",
        "training": {
            "epochs": 2,
            "batch_size": 100,  # does not divide the number of images: the last batch is uneven
            "precision": "float64",
            "augment": False,
            "optimizer": {"lr": 0.05},
        },
    }
)


def history(tmp_path: Path, launcher: list[str]) -> list[dict]:
    recipe = tmp_path / "r.toml"
    recipe.write_text(EXPERIMENT.to_toml())
    command = [*launcher, "-m", "splinecut", "run", str(recipe), "--out", str(tmp_path / "runs"), "--device", "cpu"]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=300)
    assert done.returncode == 0, done.stderr
    record = json.loads((tmp_path / "runs" / EXPERIMENT.folder / "record.json").read_text())
    return [*record["history"], record["test"]["last"], record["ledger"]["train"]]


def test_two_processes_reach_the_single_process_loss(tmp_path: Path) -> None:
    (tmp_path / "one").mkdir()
    (tmp_path / "two").mkdir()
    one = history(tmp_path / "one", [sys.executable])
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", "--no-python"]
    two = history(tmp_path / "two", [*torchrun, sys.executable])
    for a, b in zip(one[:2], two[:2], strict=True):
        assert abs(a["train_loss"] - b["train_loss"]) < 1e-6
        assert abs(a["validation_loss"] - b["validation_loss"]) < 1e-6
        assert a["validation_accuracy"] == b["validation_accuracy"]
    assert abs(one[2]["loss"] - two[2]["loss"]) < 1e-6
    assert one[3]["flops"] == two[3]["flops"] and one[3]["images"] == two[3]["images"]
