"""The app and its entry point. Commands import what they need when called, so `--help` does not load torch."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Annotated

import typer

from splinecut.cli.listing import list_
from splinecut.cli.options import Device, Out
from splinecut.cli.partition import partition
from splinecut.cli.prune import prune
from splinecut.cli.report import report
from splinecut.cli.run import run
from splinecut.cli.sweep import sweep
from splinecut.cli.table import table
from splinecut.errors import SplinecutError

app = typer.Typer(
    name="splinecut",
    help="Deep networks as max-affine splines: view partitions, detect when to prune, prune, compare.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)


def _print_version(is_given: bool) -> None:
    if is_given:
        from splinecut import __version__

        print(f"splinecut {__version__}")
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    """Options before any command."""


@app.command()
def demo(out: Out = Path("runs"), device: Device = "auto") -> None:
    """Train and prune a small ConvNet on digits in five ways, and a toy network; compare them and write a report."""
    from splinecut.cli import demo as command

    command.demo(out, device)


for command in (run, prune, partition, sweep, table, report):
    app.command()(command)
app.command("list")(list_)


def main() -> None:
    """The entry point: an error of ours is one line and exit code 2, never a traceback."""
    here = os.getcwd()
    if here not in sys.path and not sys.flags.safe_path:
        sys.path.insert(0, here)  # as `python -m` does, so that a user's mine:Net is found in this folder
    try:
        app()
    except SplinecutError as error:
        print(f"splinecut: {' '.join(str(error).split())}", file=sys.stderr)
        sys.exit(2)
    except KeyboardInterrupt:
        print("splinecut: interrupted; the same command resumes from the last checkpoint", file=sys.stderr)
        sys.exit(130)


if __name__ == "__main__":
    main()
