"""Options that several commands share."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

Out = Annotated[Path, typer.Option("--out", metavar="FOLDER", help="Where run folders go.")]
DataDir = Annotated[
    Path | None,
    typer.Option(
        "--data-dir",
        envvar="SPLINECUT_DATA",
        metavar="FOLDER",
        help="Folder with data sets: parquet files or class folders.",
    ),
]
Device = Annotated[str, typer.Option("--device", help="auto, cpu, cuda or mps.")]
Set = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="KEY=VALUE", help="Override a key of the recipe: --set training.epochs=3"),
]
