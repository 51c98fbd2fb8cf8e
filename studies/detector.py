"""When the early bird is drawn: every rule and threshold replayed on one training that is watched to its end.

    python -m studies.detector fcnet-x-shape --out results/detector-fcnet.json
    python -m studies.detector vgg16-cifar10-small --data-dir DATA \\
        --set training.epochs=40 --set data.train_size=8000 --out results/detector-vgg16.json

The network is trained by the recipe with each schedule and its codes are kept after every epoch. A rule looks at
distances alone, so the epoch at which it would have stopped the training can be read off the matrix of all distances.
An interrupted call resumes; a finished training is read from its run folder.
"""

from __future__ import annotations

import argparse
import json
import statistics
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from rich.console import Console
from rich.table import Table

from splinecut.experiments import runner, spec
from splinecut.experiments.building import build_model
from splinecut.files import write_json
from splinecut.locking import locked
from splinecut.pruning.detect import EarlyBird
from splinecut.pruning.detection_rules import DETECTION_RULES
from splinecut.training.config import Schedule
from splinecut.training.hooks import Hook, TrainState
from splinecut.training.loop import train
from splinecut.training.progress import ConsoleProgress
from splinecut.training.seeding import generator
from studies.support.result_file import write

THRESHOLDS = (0.10, 0.15, 0.20, 0.25)
SCHEDULES = ("step", "constant")
PROBE = 256  # training inputs, as many as a run's own detector watches
AROUND = 3  # distances on either side of a drop of the learning rate that are compared

Matrix = Float[np.ndarray, "epochs epochs"]


class Observe(Hook):
    """Shows the network to an early bird after every epoch and never stops the training."""

    name = "detector"

    def __init__(self, detector: EarlyBird) -> None:
        self.detector = detector

    def after_epoch(self, state: TrainState) -> bool:
        self.detector.observe(state.model)
        return False

    def state(self) -> dict[str, Any]:
        return self.detector.state()

    def restore(self, state: dict[str, Any]) -> None:
        self.detector.restore(state)


def observed(experiment: spec.Experiment, out: Path, data_dir: Path | None) -> dict[str, Any]:
    """The distances between all epochs of the experiment's training and its history; read if they are there."""
    folder = out / f"detector-{experiment.folder}"
    file = folder / "observed.json"
    if not file.is_file():
        with locked(folder):
            write_json(file, _watched(experiment, folder, data_dir))
    facts: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
    return facts


def _watched(experiment: spec.Experiment, folder: Path, data_dir: Path | None) -> dict[str, Any]:
    dataset = runner.load_data(experiment, data_dir)
    rows = torch.randperm(len(dataset.train), generator=generator(experiment.seed))[:PROBE]
    detector = EarlyBird(dataset.train.examples(rows), seed=experiment.seed)
    progress = ConsoleProgress()
    history = train(
        build_model(experiment, dataset),
        dataset,
        experiment.training,
        seed=experiment.seed,
        hooks=(Observe(detector), progress),
        checkpoints=folder / "checkpoints",
        say=progress.message,
    )
    return {"matrix": detector.matrix().tolist(), "by_layer": detector.by_layer(), "history": history}


def drawn_epoch(matrix: Matrix, rule: str, threshold: float) -> int | None:
    """The epoch after which `rule` would have stopped the training, counted from 1; None if it never would."""
    window = DETECTION_RULES[rule].window
    for newest in range(window, len(matrix)):
        pairs = PAIRS[rule](newest, window)
        if max(matrix[pair] for pair in pairs) < threshold:
            return newest + 1
    return None


PAIRS = {  # which entries of the matrix a rule looks at, given the newest epoch and its window
    "paper": lambda newest, window: [(i - 1, i) for i in range(newest - window + 1, newest + 1)],
    "authors": lambda newest, window: [(i, newest) for i in range(newest - window, newest)],
}


def share_of_schedule(distances: Sequence[float], drops: Sequence[int]) -> float | None:
    """How much of the fall of the distances comes where the learning rate drops; None when they do not fall.

    distances: between each epoch and the next.  drops: how many epochs were trained before each drop.
    The fall at a drop is the median of the last few distances before it less that of the first few wholly after it;
    the whole fall is from the first distance to the median of the last few.
    """
    at_drops = 0.0
    for epochs in drops:
        before, after = distances[max(0, epochs - 1 - AROUND) : epochs - 1], distances[epochs : epochs + AROUND]
        at_drops += statistics.median(before) - statistics.median(after) if before and after else 0.0
    whole = distances[0] - statistics.median(distances[-AROUND:])
    return at_drops / whole if whole > 0 else None


def drops_of(schedule: Schedule, epochs: int) -> list[int]:
    """After how many epochs a schedule in steps lowers the learning rate; other schedules never do so at once."""
    if schedule.name != "step":
        return []
    factors = [schedule.factor(epoch, epochs, 1) for epoch in range(epochs)]
    return [epoch for epoch in range(1, epochs) if factors[epoch] < factors[epoch - 1]]


def facts_of(experiment: spec.Experiment, seen: dict[str, Any]) -> dict[str, Any]:
    """What a training says about the detector: the drawing epochs, the distances, and what the schedule did."""
    matrix, plan = np.array(seen["matrix"]), experiment.training
    distances = np.diagonal(matrix, 1).tolist()
    drops = drops_of(plan.schedule, plan.epochs)
    rows = [
        {"rule": rule, "threshold": threshold, "epoch": drawn_epoch(matrix, rule, threshold), "of": plan.epochs}
        for rule in DETECTION_RULES
        for threshold in THRESHOLDS
    ]
    return {
        "schedule": plan.schedule.name,
        "drops after epochs": drops,
        "share of the fall at the drops": share_of_schedule(distances, drops),
        "from the first epoch to the last": float(matrix[0, -1]),
        "validation accuracy": seen["history"][-1].get("validation_accuracy"),
        "rows": rows,
        "distances": _line(distances),
        "by_layer": {layer: _line(values) for layer, values in seen["by_layer"].items()},
        "matrix": [_line(row) for row in matrix],
    }


def _line(values: Iterable[float]) -> str:
    """Many numbers on one line, which a reader of the file can take in."""
    return " ".join(f"{value:.4f}" for value in values)


def show(found: list[dict[str, Any]]) -> None:
    """The drawing epoch by rule and threshold, one column a schedule."""
    table = Table(title="epoch at which the early bird is drawn")
    for column in ("rule", "threshold", *(facts["schedule"] for facts in found)):
        table.add_column(column, justify="left" if column == "rule" else "right")
    for rows in zip(*(facts["rows"] for facts in found), strict=True):
        epochs = [f"{row['epoch']} of {row['of']}" if row["epoch"] else "never" for row in rows]
        table.add_row(rows[0]["rule"], f"{rows[0]['threshold']:.2f}", *epochs)
    console = Console()
    console.print(table)
    for facts in found:
        console.print(_sentence(facts), soft_wrap=True, highlight=False)


def _sentence(facts: dict[str, Any]) -> str:
    first, *_, last = facts["distances"].split()
    share, drops = facts["share of the fall at the drops"], facts["drops after epochs"]
    fall = f"{facts['schedule']}: the distance between epochs goes from {first} to {last}"
    if not drops or share is None:
        return f"{fall}, without a drop of the learning rate"
    return f"{fall}; {share:.0%} of its fall comes where the learning rate drops, after epochs {drops}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("recipe")
    parser.add_argument("--set", action="extend", nargs="+", default=[], metavar="KEY=VALUE")
    parser.add_argument("--schedules", nargs="+", default=SCHEDULES, choices=SCHEDULES)
    parser.add_argument("--data-dir", type=Path)
    parser.add_argument("--runs", type=Path, default=Path("runs"))
    parser.add_argument("--out", type=Path)
    args = parser.parse_args()
    rows = []
    for schedule in args.schedules:
        override = f'training.schedule={{ name = "{schedule}" }}'
        experiment = spec.load(args.recipe, [*args.set, override])
        rows.append(facts_of(experiment, observed(experiment, args.runs, args.data_dir)))
    show(rows)
    if args.out:
        asked_for = {"recipe": args.recipe, "overrides": args.set, "probe": PROBE}
        write(args.out, __spec__, args, {**asked_for, "trainings": rows}, first=["recipe"])


if __name__ == "__main__":
    main()
