"""`splinecut demo`: five ways to a small network on digits, and a toy; prints a table and writes a report."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

from rich.text import Text

from splinecut.cli.printing import show_pipelines
from splinecut.cli.screen import screen
from splinecut.experiments import runner, spec
from splinecut.experiments.film import frames
from splinecut.experiments.film.frames import Frame, Frames
from splinecut.experiments.records import Record
from splinecut.report.build import write
from splinecut.training.progress import ConsoleProgress

EARLY = "early bird"
LATE: dict[str, Any] = {"detector": None, "film": None}  # train to the end first; store no partitions
PIPELINES: dict[str, tuple[str, dict[str, Any]]] = {  # name -> what it does, how its recipe differs from demo-digits
    "dense": ("train the dense network", LATE | {"method": None}),
    EARLY: ("stop when the partition has settled, cut to half of the FLOPs, refit, train", {}),
    "train, prune, retrain": ("train it all, cut it to half of its FLOPs, refit, train again", LATE),
    "slimming": (
        "the same by another method: push batch-norm scales to zero, cut, train",
        LATE | {"method": "slimming"},
    ),
    "random": ("the same with randomly chosen channels", LATE | {"method": "random"}),
}
REPORT = "report.html"
SHARED = "demo-shared"  # trainings that several pipelines share; removed at the end


def demo(out: Path, device: str) -> Path:
    """Runs every pipeline that is not finished, prints a comparison and writes the report; returns its path."""
    console = screen()
    base, toy = spec.load("demo-digits"), spec.load("demo-x-shape")
    pipelines: dict[str, Record] = {}
    for name, (about, _) in PIPELINES.items():
        console.print(Text.assemble((name, "bold"), f": {about}"))
        pipelines[name] = runner.run(
            _pipeline(base, name), out, device=device, progress=ConsoleProgress(), shared=out / SHARED
        )
    about = "two layers on the plane; its regions during training and pruning"
    console.print(Text.assemble(("toy", "bold"), f": {about}"))
    small = runner.run(toy, out, device=device, progress=ConsoleProgress())
    shutil.rmtree(out / SHARED, ignore_errors=True)
    films = [frames.load(out / experiment.folder / frames.FILE) for experiment in (toy, _pipeline(base, EARLY))]
    page = write(out / REPORT, [*pipelines.values(), small], films, "splinecut demo")
    show_pipelines("Handwritten digits, one small ConvNet, five pipelines", pipelines)
    for line in (_early_line(pipelines[EARLY], base.training.epochs), _cut_line(pipelines), _toy_line(films[0])):
        console.print(line)
    console.print(f"Look at it all: {page}", soft_wrap=True)  # in one piece: a terminal makes a link of a path
    return page


def _pipeline(base: spec.Experiment, name: str) -> spec.Experiment:
    about, changes = PIPELINES[name]
    slug = name.replace(", ", "-").replace(" ", "-")
    return spec.Experiment.from_dict(
        base.model_dump(mode="json") | changes | {"name": f"{base.name}-{slug}", "description": about}
    )


def _early_line(record: Record, epochs: int) -> str:
    drawn = record.pruning
    assert drawn is not None
    before, after = record.test["after cut"]["accuracy"], record.test["last"]["accuracy"]
    return (
        f"Early bird: drawn after epoch {drawn['drawn_epoch']} of {epochs}; {before:.1%} right after the cut and the "
        f"refit, {after:.1%} in the end."
    )


def _cut_line(pipelines: dict[str, Record]) -> str:
    """How the three methods stand right after the cut of a trained network, each with its own refit or none."""
    late = [record for name, record in pipelines.items() if name != EARLY]
    cut = {record.pruning["method"]: record.test["after cut"]["accuracy"] for record in late if record.pruning}
    return (
        f"Right after cutting the trained network: {', '.join(f'{name} {value:.1%}' for name, value in cut.items())}."
    )


def _toy_line(film: Frames) -> str:
    """What pruning does to the toy's partition: the dense network, and the cut nearest to half of its units."""
    dense = [frame for frame in film if frame.stage == "train"][-1]
    half = min((frame for frame in film if frame.stage == "prune"), key=lambda frame: abs(frame.keep - 0.5))
    return f"Toy: {_seen(dense)}; with {half.keep:.0%} of the units {_seen(half)}, without training on."


def _seen(frame: Frame) -> str:
    return f"{len(frame):,} regions ({frame.facts['validation accuracy']:.1%})"
