"""`splinecut report`: finished runs and stored partitions as one HTML page."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from splinecut.errors import InputError


def report(
    runs: Annotated[
        list[Path], typer.Argument(help="Run folders, folders that contain them, or files of stored frames.")
    ],
    out: Annotated[Path, typer.Option("--output", "-o", metavar="FILE", help="The HTML page.")] = Path("report.html"),
    title: Annotated[str, typer.Option(help="Title of the page.")] = "splinecut report",
) -> None:
    """Write one self-contained HTML page: costs, early birds, partitions, redundancy, tables, recipes."""
    from splinecut.cli.screen import screen
    from splinecut.experiments import records
    from splinecut.experiments.film import frames
    from splinecut.report.build import write

    missing = [str(place) for place in runs if not place.exists()]
    if missing:
        raise InputError(f"{missing[0]} not found; expected a folder of runs")
    run_records, unread = records.find([place for place in runs if _may_hold_records(place)])
    films, broken = frames.find(runs)
    if not run_records and not films:
        raise InputError(
            f"no run and no stored partition in {', '.join(map(str, runs))}; run an experiment there first"
        )
    skipped = [f"skipped: {line}" for line in (*unread, *broken)]
    write(out, run_records, films, title, skipped)
    console = screen()
    for line in skipped:
        console.print(line)
    n_frames = sum(len(film) for film in films)
    size = f"{out.stat().st_size / 1e6:.1f} MB"
    console.print(f"wrote {out}: {len(run_records)} runs, {n_frames} stored partitions, {size}")


def _may_hold_records(place: Path) -> bool:
    """A folder of frames alone holds no record and need not; any other folder should."""
    from splinecut.experiments import records
    from splinecut.experiments.film import frames

    return place.is_dir() and (any(place.rglob(records.FILE)) or not any(place.rglob(frames.FILE)))
