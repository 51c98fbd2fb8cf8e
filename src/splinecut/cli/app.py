"""The command line: parse, call, print. Each command imports what it needs when it is called."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Annotated

import typer

from splinecut.cli.partition import partition
from splinecut.cli.prune import prune
from splinecut.cli.report import report
from splinecut.cli.sweep import sweep
from splinecut.cli.table import table
from splinecut.errors import SplinecutError, unknown

app = typer.Typer(
    name="splinecut",
    help="Deep networks as max-affine splines: see them, detect when to prune, prune for real, compare honestly.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)

Out = Annotated[Path, typer.Option("--out", help="Where run folders go.")]
DataDir = Annotated[
    Path | None,
    typer.Option("--data-dir", envvar="SPLINECUT_DATA", help="Folder with data sets: parquet files or class folders."),
]
Device = Annotated[str, typer.Option("--device", help="auto, cpu, cuda or mps.")]
Set = Annotated[list[str] | None, typer.Option("--set", help="Override a key of the recipe: --set training.epochs=3")]


def _print_version(is_asked: bool) -> None:
    if is_asked:
        from splinecut import __version__

        print(f"splinecut {__version__}")
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    """Options that stand before any command."""


@app.command()
def demo(out: Out = Path("runs"), device: Device = "auto") -> None:
    """Train and prune a small ConvNet on digits by five routes and a toy, compare them, and write a report."""
    from splinecut.cli import demo as command

    command.demo(out, device)


@app.command()
def run(
    recipe: Annotated[str, typer.Argument(help="A TOML file, or the name of a recipe that ships with splinecut.")],
    set_: Set = None,
    out: Out = Path("runs"),
    data_dir: DataDir = None,
    device: Device = "auto",
) -> None:
    """Run the experiment in a recipe; a run that was interrupted goes on where it stood."""
    from splinecut.cli.table import show_record
    from splinecut.experiments import runner, spec

    experiment = spec.load(recipe, set_ or ())
    record = runner.run(experiment, out, data_dir, device)
    show_record(record, out / experiment.folder)


app.command()(prune)
app.command()(partition)
app.command()(sweep)
app.command()(table)
app.command()(report)


@app.command("list")
def list_(kind: Annotated[str, typer.Argument(help="models, data, methods or recipes")]) -> None:
    """List the models, data sets, pruning methods or recipes there are."""
    from rich.table import Table

    from splinecut.cli.screen import screen

    table = Table(box=None, pad_edge=False, show_header=False)
    for row in _listing(kind):
        table.add_row(*row)
    screen().print(table)


def _listing(kind: str) -> list[tuple[str, ...]]:
    """The rows that `splinecut list KIND` prints."""
    if kind == "recipes":
        from splinecut.experiments import spec

        return [(name, spec.read(path).get("description", "")) for name, path in spec.recipes().items()]
    if kind == "models":
        from splinecut.networks.models import MODELS, describe

        return [(name, describe(name)) for name in MODELS]
    if kind == "data":
        from splinecut.training.data import DATA

        return list(DATA.items())
    if kind == "methods":
        from splinecut.pruning.methods.catalogue import METHODS

        return [(name, kind.units, kind.state, kind.reference) for name, kind in METHODS.items()]
    raise unknown("listing", kind, ("models", "data", "methods", "recipes"))


def main() -> None:
    """The entry point: an error of ours is one line and exit code 2, never a traceback."""
    here = os.getcwd()
    if here not in sys.path and not sys.flags.safe_path:
        sys.path.insert(0, here)  # as `python -m` does: a network of one's own, mine:Net, is found in this folder
    try:
        app()
    except SplinecutError as error:
        print(f"splinecut: {' '.join(str(error).split())}", file=sys.stderr)
        sys.exit(2)
    except KeyboardInterrupt:
        print("splinecut: interrupted; the same command goes on from the last checkpoint", file=sys.stderr)
        sys.exit(130)


if __name__ == "__main__":
    main()
