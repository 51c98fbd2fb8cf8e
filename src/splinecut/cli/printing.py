"""Records printed on a terminal: the facts of one run, and several runs side by side."""

from __future__ import annotations

from pathlib import Path

from rich.table import Table

from splinecut.cli.screen import fitted, screen
from splinecut.cli.text_tables import TextTable
from splinecut.experiments.records import Record
from splinecut.experiments.summaries import accuracy_or_loss


def show_record(record: Record, folder: Path) -> None:
    """Prints the facts of one run."""
    console = screen()
    facts = Table(title=record.name, title_style="bold", show_header=False)
    for name, value in _facts(record):
        facts.add_row(name, value)
    console.print(facts)
    console.print(f"record: {folder / 'record.json'}", soft_wrap=True)


def _facts(record: Record) -> list[tuple[str, str]]:
    total, last, best = record.costs.total, record.test["last"], record.test.get("best")
    rows = [(f"test {accuracy_or_loss(last)[0]}", _metric(last))]
    if best is not None:
        rows.append(("  at the best validation epoch", f"{_metric(best)} (epoch {best['epoch']})"))
    if record.pruning is not None:
        kept = record.pruning["achieved"]
        rows.append(("  right after the cut", _metric(record.test["after cut"])))
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


def _metric(metrics: dict[str, float]) -> str:
    name, value = accuracy_or_loss(metrics)
    return f"{value:.2%}" if name == "accuracy" else f"{value:.4g}"


def show_pipelines(title: str, pipelines: dict[str, Record]) -> None:
    """Prints several runs side by side, with FLOPs relative to the first."""
    first, rows = next(iter(pipelines.values())), []
    for name, record in pipelines.items():
        after = record.test.get("after cut")
        facts = [_metric(after) if after else "", _metric(record.test["last"]), f"{record.parameters:,}"]
        pass_, all_ = record.forward_flops / first.forward_flops, record.costs.total.flops / first.costs.total.flops
        rows.append([name, *facts, f"{pass_:.2f}x", f"{all_:.2f}x"])
    headings = ["pipeline", "after cut", "in the end", "parameters", "FLOPs of a pass", "FLOPs of training"]
    console = screen()
    console.print(title, style="bold")
    console.print(fitted(TextTable(headings, rows), console, (2, 1, 5, 4))[0])
    console.print(f"x: times those of {next(iter(pipelines))}", style="dim")
