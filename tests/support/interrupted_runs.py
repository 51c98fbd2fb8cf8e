"""Runs that are killed and taken up again, and what must not depend on it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

from splinecut.experiments.spec import Experiment
from splinecut.training.ledger import Ledger

VICTIM = Path(__file__).with_name("crash_run.py")
EXPERIMENT = {
    "model": {"name": "convnet", "preset": "digits", "width": 0.5},
    "data": "digits",
    # A checkpoint every 30 ms: kills then fall before, between and inside their writes.
    "training": {"epochs": 12, "batch_size": 64, "checkpoint_minutes": 0.0005},
}


def victim(out: Path, *kills: str, experiment: dict = EXPERIMENT) -> list[dict]:
    """Runs the experiment in `out`, killed as `kills` says and taken up each time, then to its end."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    command = [sys.executable, str(VICTIM), str(out), json.dumps(experiment), *kills]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=500)
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


def outcome(out: Path, experiment: dict = EXPERIMENT) -> tuple[dict, dict[str, bytes]]:
    """Everything of a finished run that must not depend on how it got there."""
    folder = out / Experiment.from_dict(experiment).folder
    record = json.loads((folder / "record.json").read_text())
    ledger = Ledger.from_dict(record.pop("ledger")).without_time()
    weights = {file.name: file.read_bytes() for file in folder.glob("*.safetensors")}
    for measured in ("energy", "latency", "commit"):  # measurements differ; a commit may fall between two runs
        record.pop(measured)
    return {**record, "ledger": ledger}, weights
