"""`splinecut table`: records as tables on a terminal, and as a summary to commit."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.table import Table

if TYPE_CHECKING:
    from splinecut.experiments.records import Record


def table(
    runs: Annotated[list[Path], typer.Argument(help="Run folders, or folders that hold some.")],
    json: Annotated[Path | None, typer.Option(help="Also write a summary of every run to this file.")] = None,
) -> None:
    """Print the records of finished runs side by side."""
    from splinecut.experiments.records import find, summary
    from splinecut.files import write_json

    records, skipped = find(runs)
    show_records(records, skipped)
    if json is not None:
        today = datetime.now(UTC).date().isoformat()
        write_json(json, {"date": today, "runs": [summary(record) for record in records]})


def show_record(record: Record, folder: Path) -> None:
    """The facts of one run."""
    console = Console()
    facts = Table(title=record.name, title_style="bold", show_header=False)
    for name, value in _facts(record):
        facts.add_row(name, value)
    console.print(facts)
    console.print(f"record: {folder / 'record.json'}", highlight=False)


def _facts(record: Record) -> list[tuple[str, str]]:
    total, last, best = record.costs.total, record.test["last"], record.test.get("best")
    rows = [("test " + _measure(last)[0], _measure(last)[1])]
    if best is not None:
        rows.append(("  at the best validation epoch", f"{_measure(best)[1]} (epoch {best['epoch']})"))
    if record.pruning is not None:
        kept = record.pruning["achieved"]
        rows.append(("  right after the cut", _measure(record.test["after cut"])[1]))
        share = f", {kept['flops'] / kept['all_flops']:.1%} of FLOPs" if kept["flops"] else f" ({kept['density']:.2%})"
        rows.append(("kept", f"{kept['kept']:,} of {kept['of']:,} {record.pruning.get('units', 'units')}{share}"))
        when = "early bird" if record.pruning["is_early"] else "end of training"
        when = when if record.pruning["drawn_step"] else "untrained"
        rows.append(("drawn", f"epoch {record.pruning['drawn_epoch']} ({when})"))
    joules = record.energy["measured_joules"]
    return [
        *rows,
        ("parameters", f"{record.parameters:,}"),
        ("FLOPs of one forward pass", f"{record.forward_flops:,}"),
        ("training FLOPs, as the paper counts", f"{total.paper_flops:.4g}"),
        ("training FLOPs, all that was executed", f"{total.flops:.4g}"),
        ("seconds", f"{total.seconds:.1f}"),
        ("energy", f"{joules:.0f} J" if joules is not None else "not measured"),
    ]


def _measure(metrics: dict[str, float]) -> tuple[str, str]:
    if metrics["accuracy"] is None:
        return "loss", f"{metrics['loss']:.4g}"
    return "accuracy", f"{metrics['accuracy']:.2%}"


def show_records(records: list[Record], skipped: list[str]) -> None:
    """One row a run, and what could not be read."""
    table = Table()
    for name in ("run", "seed", "test", "parameters", "FLOPs", "paper", "full"):
        table.add_column(name, justify="left" if name == "run" else "right", overflow="fold")
    table.caption = "paper, full: training FLOPs as the paper counts, and all that was executed"
    for record in records:
        total = record.costs.total
        table.add_row(
            record.name,
            str(record.spec["seed"]),
            _measure(record.test["last"])[1],
            f"{record.parameters:,}",
            f"{record.forward_flops:,}",
            f"{total.paper_flops:.4g}",
            f"{total.flops:.4g}",
        )
    console = Console()
    console.print(table)
    for line in skipped:
        console.print(f"skipped: {line}", highlight=False, markup=False)


def show_routes(title: str, routes: dict[str, Record]) -> None:
    """Several routes to a trained network side by side; training cost is relative to the first one."""
    table = Table(title=title, title_style="bold")
    for name in ("route", "accuracy", "parameters", "FLOPs", "latency", "training", "seconds"):
        table.add_column(name, justify="left" if name == "route" else "right")
    table.caption = "latency: ms for batches of 1 / 128; training: FLOPs spent in all, and against the first route"
    first = next(iter(routes.values())).costs.total.flops
    for name, record in routes.items():
        total = record.costs.total
        table.add_row(
            name,
            _measure(record.test["last"])[1],
            f"{record.parameters:,}",
            f"{record.forward_flops:,}",
            " / ".join(f"{1000 * seconds:.2g}" for seconds in record.latency.values()),
            f"{total.flops:.2g} {total.flops / first:.2f}x",
            f"{total.seconds:.1f}",
        )
    Console().print(table)
