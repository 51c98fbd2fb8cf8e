"""`splinecut run`: one experiment, from a recipe to a record."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from splinecut.cli.options import DataDir, Device, Out, Set


def run(
    recipe: Annotated[str, typer.Argument(help="A TOML file, or the name of a recipe that ships with splinecut.")],
    set_: Set = None,
    out: Out = Path("runs"),
    data_dir: DataDir = None,
    device: Device = "auto",
) -> None:
    """Run the experiment in a recipe; resumes from the last checkpoint."""
    from splinecut.cli.printing import show_record
    from splinecut.experiments import runner, spec

    experiment = spec.load(recipe, set_ or ())
    record = runner.run(experiment, out, data_dir, device)
    show_record(record, out / experiment.folder)
