"""`splinecut table`: means and intervals over seeds as a table, and as a file to commit."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated

import typer

from splinecut.cli.screen import fitted, screen, stacked
from splinecut.cli.text_tables import FORMATS, TextTable
from splinecut.errors import InputError, unknown
from splinecut.experiments.summaries import Estimate, Row, baseline_row, merged, percent, rows


def table(
    runs: Annotated[
        list[Path], typer.Argument(help="Run folders, folders that contain them, or tables written with --json.")
    ],
    format_: Annotated[str, typer.Option("--format", help="text, markdown, csv or latex.")] = "text",
    baseline: Annotated[
        str | None,
        typer.Option(metavar="ROW", help="Baseline row: adds seed-paired differences with 95 % intervals."),
    ] = None,
    against: Annotated[str | None, typer.Option(hidden=True)] = None,
    columns: Annotated[
        str | None, typer.Option(help="Comma-separated column names, or `all`. CSV always has every column.")
    ] = None,
    json: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Also write every number of every seed to FILE, which `table` can read."),
    ] = None,
) -> None:
    """Print finished runs side by side: mean and 95 % interval over seeds, with the paper's numbers if known."""
    from splinecut.experiments import table_file as committed
    from splinecut.experiments.records import find

    if format_ not in FORMATS:
        raise unknown("format", format_, FORMATS)
    files = [place for place in runs if place.suffix == ".json"]
    folders = [place for place in runs if place.suffix != ".json"]
    records, skipped = find(folders)
    shown = merged([*rows(records), *(row for file in files for row in committed.load(file))])
    if not shown:
        for line in skipped:
            if not any(line.startswith(f"{place} holds no") for place in folders):  # the error says that
                print(f"skipped: {line}", file=sys.stderr)
        raise InputError(_nothing(runs, json))
    other = baseline or against  # --against is the name of 0.1
    output = raw_table(shown, other) if format_ == "csv" else text_table(shown, other, _chosen(columns, shown))
    if format_ == "text" and sys.stdout.isatty():
        _show_on_terminal(output, is_all=columns is not None)
    else:
        print(FORMATS[format_](output), end="")
    for line in skipped:
        print(f"skipped: {line}", file=sys.stderr)
    if json is not None:
        committed.save(json, records, folders, files)


def _nothing(runs: Sequence[Path], json: Path | None) -> str:
    missing = [str(place) for place in runs if not place.exists()]
    remedy = f"there is no {missing[0]}" if missing else "run an experiment there first"
    kept = f"; {json} is left as it is" if json is not None else ""
    return f"no finished run in {', '.join(map(str, runs))}; {remedy}{kept}"


def _count(value: float) -> str:
    return f"{value:.4g}" if value >= 1e7 else f"{value:,.0f}"


COLUMNS: dict[str, tuple[str, Callable[[float], str]]] = {  # number -> heading, how it is written
    "kept": ("kept %", percent),
    "parameters": ("parameters", _count),
    "forward_flops": ("FLOPs", _count),
    "paper_flops": ("training FLOPs, paper", "{:.3g}".format),
    "full_flops": ("training FLOPs, full", "{:.3g}".format),
    "sparse_flops": ("training FLOPs, ideal sparse", "{:.3g}".format),
    "cut_top1": ("after cut", percent),
    "best_top1": ("best by validation", percent),
    "last_top1": ("last", percent),
    "cut_top5": ("top-5 after cut", percent),
    "best_top5": ("top-5 best", percent),
    "last_top5": ("top-5 last", percent),
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
# Shown without an interval: seeds differ little or not at all.
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


# Columns shown first where not all fit: accuracy, then cost. Headings, or how they begin.
FIRST = ("last", "loss last", "last - ", "FLOPs", "training FLOPs, full", "after cut", "kept %", "paper, full scale")


def _show_on_terminal(output: TextTable, is_all: bool) -> None:
    """Prints the columns that fit, and how to see the others; with `is_all` every column, in several tables."""
    console = screen()
    if is_all:
        for table in stacked(output, console):
            console.print(table, end="\n\n")
    else:
        first = [i for begin in FIRST for i, heading in enumerate(output.headings) if _is_it(heading, begin)]
        table, n_left = fitted(output, console, first)
        console.print(table)
        if n_left:
            console.print(f"+ {n_left} columns: --columns all", style="dim")
    console.print(output.caption, style="dim")


def _is_it(heading: str, begin: str) -> bool:
    return heading == begin or (begin.endswith(" - ") and heading.startswith(begin))


def text_table(table: Sequence[Row], baseline: str | None = None, columns: Sequence[str] = USUAL) -> TextTable:
    """Rows as a person reads them: accuracies in per cent, and the paper's where it has any for one of these rows."""
    has_published = any(row.published for row in table)
    headings = [*WORDS, *(COLUMNS[name][0] for name in columns)]
    headings += [f"last - {baseline}"] * bool(baseline) + ["paper, full scale"] * has_published
    write_difference = percent if _measure_of(table) == "top1" else "{:.4g}".format
    body = []
    for row in table:
        keep = f"{row.keep:g} of {row.of}" if row.of else "all"
        cells = [row.task, row.name, keep, str(len(row.by_seed))]
        cells += [_cell(row.estimate(name), name) for name in columns]
        if baseline:
            difference = _difference(row, table, baseline)
            cells.append(difference.signed(write_difference) if difference else "")
        if has_published:
            cells.append(f"{row.published['top1']:.2f}" if "top1" in row.published else "")
        body.append(cells)
    note = "mean ± half of the 95 % interval over seeds; accuracies in %; FLOPs count multiply and add as two"
    return TextTable(headings, body, n_words=2, caption=note, n_fixed=len(WORDS))


def raw_table(table: Sequence[Row], baseline: str | None = None) -> TextTable:
    """Every number unrounded, each mean with half of its interval: for a spreadsheet or a script."""
    words = ("task", "method", "keep", "of", "seeds")
    extra = ("published_top1", "published_top5", "published_petaflops")
    compared = ("difference", "difference_half") if baseline else ()
    pairs = [part for name in COLUMNS for part in (name, f"{name}_half")]
    body = []
    for row in table:
        cells = [row.task, row.name, f"{row.keep:g}", row.of, str(len(row.by_seed))]
        for name in COLUMNS:
            cells += _raw(row.estimate(name))
        if baseline:
            cells += _raw(_difference(row, table, baseline))
        cells += [str(row.published.get(name.removeprefix("published_"), "")) for name in extra]
        body.append(cells)
    return TextTable([*words, *pairs, *compared, *extra], body, n_words=2)


def _cell(estimate: Estimate | None, name: str) -> str:
    if estimate is None:
        return "not measured" if name == "joules" else ""
    write = COLUMNS[name][1]
    return write(estimate.mean) if name in EXACT else estimate.text(write)


def _difference(row: Row, table: Sequence[Row], baseline: str) -> Estimate | None:
    other = baseline_row(row, table, baseline)
    return row.difference(other, f"last_{_measure_of(table)}") if other else None


def _raw(estimate: Estimate | None) -> list[str]:
    if estimate is None:
        return ["", ""]
    return [repr(estimate.mean), "" if estimate.half is None else repr(estimate.half)]
