"""`splinecut table`: records as tables with intervals, and as a summary to commit."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.table import Table

from splinecut.cli.screen import fitted, screen, stacked
from splinecut.cli.text_tables import FORMATS, PLUS_MINUS, Sheet
from splinecut.errors import InputError, unknown

if TYPE_CHECKING:
    from splinecut.experiments.records import Record
    from splinecut.experiments.summaries import Estimate, Row


def table(
    runs: Annotated[
        list[Path], typer.Argument(help="Run folders, folders that hold some, or tables written with --json.")
    ],
    format_: Annotated[str, typer.Option("--format", help="text, markdown, csv or latex.")] = "text",
    against: Annotated[
        str | None, typer.Option(help="A row's name: adds differences to it, paired by seed, with intervals.")
    ] = None,
    columns: Annotated[
        str | None, typer.Option(help="Comma-separated names, or `all`; a wrong name lists them. csv always has all.")
    ] = None,
    json: Annotated[
        Path | None, typer.Option(help="Also write every number of every seed to this file, which can be read again.")
    ] = None,
) -> None:
    """Print finished runs side by side: mean and 95 % interval over seeds, and the paper's numbers where there are."""
    from splinecut.experiments import table_file as committed
    from splinecut.experiments.records import find
    from splinecut.experiments.summaries import merged, rows

    if format_ not in FORMATS:
        raise unknown("format", format_, FORMATS)
    files = [place for place in runs if place.suffix == ".json"]
    folders = [place for place in runs if place.suffix != ".json"]
    records, skipped = find(folders)
    found = merged([*rows(records), *(row for file in files for row in committed.load(file))])
    if not found:
        for line in skipped:
            if not any(line.startswith(f"{place} holds no") for place in folders):  # the error says that
                print(f"skipped: {line}", file=sys.stderr)
        raise InputError(_nothing(runs, json))
    made = raw_sheet(found, against) if format_ == "csv" else sheet(found, against, _chosen(columns, found))
    if format_ == "text" and sys.stdout.isatty():
        _show_on_terminal(made, is_all=columns is not None)
    else:
        print(FORMATS[format_](made), end="")
    for line in skipped:
        print(f"skipped: {line}", file=sys.stderr)
    if json is not None:
        committed.save(json, records, folders, files)


def _nothing(runs: Sequence[Path], json: Path | None) -> str:
    missing = [str(place) for place in runs if not place.exists()]
    remedy = f"there is no {missing[0]}" if missing else "run an experiment there first"
    kept = f"; {json} is left as it is" if json is not None else ""
    return f"no finished run in {', '.join(map(str, runs))}; {remedy}{kept}"


def _percent(value: float) -> str:
    return f"{100 * value:.2f}"


def _count(value: float) -> str:
    return f"{value:.4g}" if value >= 1e7 else f"{value:,.0f}"


COLUMNS: dict[str, tuple[str, Callable[[float], str]]] = {  # number -> heading, how it is written
    "kept": ("kept %", _percent),
    "parameters": ("parameters", _count),
    "forward_flops": ("FLOPs", _count),
    "paper_flops": ("training FLOPs, paper", "{:.3g}".format),
    "full_flops": ("training FLOPs, full", "{:.3g}".format),
    "sparse_flops": ("training FLOPs, ideal sparse", "{:.3g}".format),
    "cut_top1": ("after cut", _percent),
    "best_top1": ("best by validation", _percent),
    "last_top1": ("last", _percent),
    "cut_top5": ("top-5 after cut", _percent),
    "best_top5": ("top-5 best", _percent),
    "last_top5": ("top-5 last", _percent),
    "cut_loss": ("loss after cut", "{:.4g}".format),
    "best_loss": ("loss best", "{:.4g}".format),
    "last_loss": ("loss last", "{:.4g}".format),
    "drawn_epoch": ("drawn", "{:.3g}".format),
    "latency_1": ("ms, batch 1", lambda seconds: f"{1000 * seconds:.3g}"),
    "latency_128": ("ms, batch 128", lambda seconds: f"{1000 * seconds:.3g}"),
    "seconds": ("seconds", "{:.3g}".format),
    "joules": ("joules", "{:.3g}".format),
    "tx2_joules": ("joules, TX2 estimate", "{:.3g}".format),
}
USUAL = ("kept", "parameters", "forward_flops", "paper_flops", "full_flops", "cut_top1", "best_top1", "last_top1")
# No interval for these: seeds differ little or not at all.
EXACT = ("parameters", "forward_flops", "paper_flops", "full_flops", "sparse_flops")
WORDS = ("task", "method", "keep", "seeds")


def _chosen(columns: str | None, table: Sequence[Row]) -> tuple[str, ...]:
    if columns is None:
        kind = _measure_of(table)
        return tuple(name.replace("top1", kind) for name in USUAL)
    names = tuple(COLUMNS) if columns == "all" else tuple(name.strip() for name in columns.split(","))
    for name in names:
        if name not in COLUMNS:
            raise unknown("column", name, COLUMNS)
    return names


def _measure_of(table: Sequence[Row]) -> str:
    """What is compared: accuracy, or the loss where no run has an accuracy."""
    return "top1" if not table or any(row.estimate("last_top1") for row in table) else "loss"


# What is shown first where not all columns fit: how good it is, then what it costs. Headings, or how they begin.
FIRST = ("last", "loss last", "last - ", "FLOPs", "training FLOPs, full", "after cut", "kept %", "paper, full scale")


def _show_on_terminal(made: Sheet, is_all: bool) -> None:
    """The columns that fit, and how to see the others; `is_all`: every column, in tables below each other."""
    console = screen()
    if is_all:
        for table in stacked(made, console):
            console.print(table, end="\n\n")
    else:
        first = [i for begin in FIRST for i, heading in enumerate(made.headings) if _is_it(heading, begin)]
        table, n_left = fitted(made, console, first)
        console.print(table)
        if n_left:
            console.print(f"+ {n_left} columns: --columns all", style="dim")
    console.print(made.caption, style="dim")


def _is_it(heading: str, begin: str) -> bool:
    return heading == begin or (begin.endswith(" - ") and heading.startswith(begin))


def sheet(table: Sequence[Row], against: str | None = None, columns: Sequence[str] = USUAL) -> Sheet:
    """Rows as a person reads them; accuracies in per cent, the paper's beside ours where one of these rows has any."""
    has_published = any(row.published for row in table)
    headings = [*WORDS, *(COLUMNS[name][0] for name in columns)]
    headings += [f"last - {against}"] * bool(against) + ["paper, full scale"] * has_published
    body = []
    for row in table:
        cells = [*_words(row), *(_cell(row.estimate(name), name) for name in columns)]
        if against:
            cells.append(_difference(row, table, against))
        if has_published:
            cells.append(f"{row.published['top1']:.2f}" if "top1" in row.published else "")
        body.append(cells)
    note = "mean ± half of the 95 % interval over seeds; accuracies in %; FLOPs count multiply and add as two"
    return Sheet(headings, body, n_words=2, caption=note, n_fixed=len(WORDS))


def raw_sheet(table: Sequence[Row], against: str | None = None) -> Sheet:
    """Everything as plain numbers, each mean with half of its interval: for a spreadsheet or a script."""
    from splinecut.experiments.summaries import baseline

    words = ("task", "method", "keep", "of", "seeds")
    extra = ("published_top1", "published_top5", "published_petaflops")
    compared = ("difference", "difference_half") if against else ()
    pairs = [part for name in COLUMNS for part in (name, f"{name}_half")]
    body = []
    for row in table:
        cells = [row.task, row.name, f"{row.keep:g}", row.of, str(len(row.by_seed))]
        for name in COLUMNS:
            cells += _raw(row.estimate(name))
        if against:
            other = baseline(row, table, against)
            cells += _raw(row.difference(other, f"last_{_measure_of(table)}") if other else None)
        cells += [str(row.published.get(name.removeprefix("published_"), "")) for name in extra]
        body.append(cells)
    return Sheet([*words, *pairs, *compared, *extra], body, n_words=2)


def _words(row: Row) -> list[str]:
    keep = f"{row.keep:g} of {row.of}" if row.of else "all"
    return [row.task, row.name, keep, str(len(row.by_seed))]


def _cell(estimate: Estimate | None, name: str) -> str:
    if estimate is None:
        return "not measured" if name == "joules" else ""
    show = COLUMNS[name][1]
    if estimate.half is None or name in EXACT:
        return show(estimate.mean)
    return f"{show(estimate.mean)} {PLUS_MINUS} {show(estimate.half)}"


def _difference(row: Row, table: Sequence[Row], against: str) -> str:
    from splinecut.experiments.summaries import baseline

    other, kind = baseline(row, table, against), _measure_of(table)
    found = row.difference(other, f"last_{kind}") if other else None
    if found is None:
        return ""
    show = "{:.2f}".format if kind == "top1" else "{:.4g}".format
    scale = 100 if kind == "top1" else 1
    half = "" if found.half is None else f" {PLUS_MINUS} {show(scale * found.half)}"
    return f"{'+' if found.mean >= 0 else ''}{show(scale * found.mean)}{half}"


def _raw(estimate: Estimate | None) -> list[str]:
    if estimate is None:
        return ["", ""]
    return [repr(estimate.mean), "" if estimate.half is None else repr(estimate.half)]


def show_record(record: Record, folder: Path) -> None:
    """The facts of one run."""
    console = screen()
    facts = Table(title=record.name, title_style="bold", show_header=False)
    for name, value in _facts(record):
        facts.add_row(name, value)
    console.print(facts)
    console.print(f"record: {folder / 'record.json'}", soft_wrap=True)


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


def show_routes(title: str, routes: dict[str, Record]) -> None:
    """Several routes to a trained network side by side; what they compute is relative to the first one."""
    first, rows = next(iter(routes.values())), []
    for name, record in routes.items():
        after = record.test.get("after cut")
        facts = [_measure(after)[1] if after else "", _measure(record.test["last"])[1], f"{record.parameters:,}"]
        pass_, all_ = record.forward_flops / first.forward_flops, record.costs.total.flops / first.costs.total.flops
        rows.append([name, *facts, f"{pass_:.2f}x", f"{all_:.2f}x"])
    headings = ["route", "after cut", "in the end", "parameters", "FLOPs of a pass", "FLOPs of training"]
    console = screen()
    console.print(title, style="bold")
    console.print(fitted(Sheet(headings, rows), console, (2, 1, 5, 4))[0])
    console.print(f"x: times those of {next(iter(routes))}", style="dim")
