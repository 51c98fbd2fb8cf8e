"""The command line: parse, call, print. Each command imports what it needs when it is called."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from splinecut.commands.partition import partition
from splinecut.errors import SplinecutError, unknown

if TYPE_CHECKING:
    from splinecut.experiments.records import Record

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
    """Train a small ConvNet on handwritten digits and show what it costs."""
    from splinecut.experiments import spec

    _run(spec.load("demo-digits"), out, None, device)


@app.command()
def run(
    recipe: Annotated[str, typer.Argument(help="A TOML file, or the name of a recipe that ships with splinecut.")],
    set_: Set = None,
    out: Out = Path("runs"),
    data_dir: DataDir = None,
    device: Device = "auto",
) -> None:
    """Run the experiment in a recipe; a run that was interrupted goes on where it stood."""
    from splinecut.experiments import spec

    _run(spec.load(recipe, set_ or ()), out, data_dir, device)


app.command()(partition)


@app.command("list")
def list_(kind: Annotated[str, typer.Argument(help="models, data, methods or recipes")]) -> None:
    """List the models, data sets, pruning methods or recipes there are."""
    from rich.console import Console
    from rich.table import Table

    table = Table(box=None, pad_edge=False, show_header=False)
    for row in _listing(kind):
        table.add_row(*row)
    Console().print(table)


def _listing(kind: str) -> list[tuple[str, ...]]:
    """The rows that `splinecut list KIND` prints."""
    if kind == "recipes":
        from splinecut.experiments import spec

        return [(name, spec.load(path).description) for name, path in spec.recipes().items()]
    if kind == "models":
        from splinecut.networks.models import MODELS, describe

        return [(name, describe(name)) for name in MODELS]
    if kind == "data":
        from splinecut.training.data import DATA

        return list(DATA.items())
    if kind == "methods":
        return [("dense", "no pruning: the network as it is")]
    raise unknown("listing", kind, ("models", "data", "methods", "recipes"))


def _run(experiment: object, out: Path, data_dir: Path | None, device: str) -> None:
    from splinecut.experiments import runner
    from splinecut.experiments.spec import Experiment

    assert isinstance(experiment, Experiment)
    record = runner.run(experiment, out, data_dir, device)
    _show(record, out / experiment.folder)


def _show(record: Record, folder: Path) -> None:
    """The facts of a record as a table."""
    from rich.console import Console
    from rich.table import Table

    total = record.costs.total
    last = record.test["last"]
    facts = Table(title=record.name, title_style="bold", show_header=False)
    if last["accuracy"] is not None:
        facts.add_row("test accuracy", f"{last['accuracy']:.2%}")
    else:
        facts.add_row("test loss", f"{last['loss']:.4g}")
    if "best" in record.test and record.test["best"]["accuracy"] is not None:
        best = record.test["best"]
        facts.add_row("  at the best validation epoch", f"{best['accuracy']:.2%} (epoch {best['epoch']})")
    facts.add_row("parameters", f"{record.parameters:,}")
    facts.add_row("FLOPs of one forward pass", f"{record.forward_flops:,}")
    facts.add_row("training FLOPs, as the paper counts", f"{total.paper_flops:.4g}")
    facts.add_row("training FLOPs, all that was executed", f"{total.flops:.4g}")
    facts.add_row("seconds", f"{total.seconds:.1f}")
    joules = record.energy["measured_joules"]
    facts.add_row("energy", f"{joules:.0f} J" if joules is not None else "not measured")
    console = Console()
    console.print(facts)
    console.print(f"record: {folder / 'record.json'}", highlight=False)


def main() -> None:
    """The entry point: an error of ours is one line and exit code 2, never a traceback."""
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
