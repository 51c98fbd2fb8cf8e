"""A committed table as a picture: `python -m studies.charts results/digits-table.json`.

One row a method, one colour a budget: accuracy with its 95 % interval beside the whole network's, and on a panel of
its own the FLOPs of all training on the way, the whole network's being 1. With `--tradeoff` one line a method instead,
a point a budget: accuracy against those FLOPs. Written beside the table, as SVG.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from splinecut.experiments import table_file as committed
from splinecut.experiments.summaries import Row, short_names
from studies.support.result_file import figure

# Dark keeps most; the first four are told apart without seeing red or green, lines by their markers too.
COLOURS = ("#440154", "#31688e", "#35b779", "#e8a013", "#d1495b")
MARKERS = ("o", "s", "^", "D", "v")
STEP = 0.28  # inches a row
TIMES = (0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 50)


def draw(table: Path) -> Path:
    """Draws the table's picture beside it; the path of the picture."""
    rows = committed.load(table)
    tasks = list(dict.fromkeys(row.task for row in rows))
    names = list(dict.fromkeys((row.of, row.name) for row in sorted(rows, key=lambda row: row.of) if row.of))
    keeps = sorted({row.keep for row in rows if row.of}, reverse=True)
    path = table.with_suffix(".svg")
    with figure(path, (2.6 + 3.4 * 2 * len(tasks), 1.2 + STEP * len(names)), columns=2 * len(tasks)) as axes:
        for task, left, right in zip(tasks, axes[::2], axes[1::2], strict=True):
            _panels(left, right, [row for row in rows if row.task == task], names, keeps)
            left.set_title(task, fontsize=10)
        shown = short_names(name for _, name in names)
        axes[0].set_yticks(range(len(names)), [f"{shown[name]} ({of})" for of, name in names], fontsize=8)
        handles, labels = axes[0].get_legend_handles_labels()
        axes[0].figure.legend(handles, labels, loc="outside lower center", ncols=len(labels), frameon=False)
    return path


def _panels(
    left: Any, right: Any, rows: Sequence[Row], names: Sequence[tuple[str, str]], keeps: Sequence[float]
) -> None:
    """Accuracy on the left, training FLOPs on the right, for one task."""
    dense = next((row for row in rows if not row.of), None)
    whole = dense.estimate("last_top1") if dense else None
    base = dense.estimate("full_flops") if dense else None
    if whole:
        low, high = (100 * (whole.mean + sign * (whole.half or 0)) for sign in (-1, 1))
        left.axvspan(low, high, color="#dddddd", lw=0, label="whole network")
    costs: list[float] = []
    lowest = highest = 100.0 * whole.mean if whole else 50.0
    for place, keep in enumerate(keeps):
        colour = COLOURS[place % len(COLOURS)]
        lift = 0.16 * (place - (len(keeps) - 1) / 2)
        here = {(row.of, row.name): row for row in rows if row.of and row.keep == keep}
        found = [(height + lift, here[name]) for height, name in enumerate(names) if name in here]
        accuracies = [(estimate, height) for height, row in found if (estimate := row.estimate("last_top1"))]
        spent = [(estimate, height) for height, row in found if (estimate := row.estimate("full_flops"))]
        means = [100 * estimate.mean for estimate, _ in accuracies]
        halves = [100 * (estimate.half or 0) for estimate, _ in accuracies]
        heights = [height for _, height in accuracies]
        lowest = min([lowest, *(mean - half for mean, half in zip(means, halves, strict=True))])
        highest = max([highest, *(mean + half for mean, half in zip(means, halves, strict=True))])
        left.errorbar(means, heights, xerr=halves, fmt="o", ms=3, lw=0.8, color=colour, label=f"keep {keep:g}")
        if base:
            times = [estimate.mean / base.mean for estimate, _ in spent]
            right.plot(times, [height for _, height in spent], "o", ms=3, color=colour)
            costs += times
    left.set_xlim(max(0, lowest - 1), min(100.5, highest + 1))  # an interval may pass 100 %, no network does
    left.set_xlabel("accuracy at the end, %")
    right.axvline(1, color="#bbbbbb", lw=1)
    if costs and max(costs) > 3 * min(costs):
        right.set_xscale("log")
        least, most = right.get_xlim()
        right.set_xticks([time for time in TIMES if least <= time <= most], minor=False)
        right.set_xticks([], minor=True)
        right.xaxis.set_major_formatter("{x:g}")
    right.set_xlabel("all training FLOPs (whole network = 1)")
    for axes in (left, right):
        axes.set_ylim(len(names) - 0.5, -0.5)
        axes.set_yticks(range(len(names)), [])
        axes.grid(axis="y", color="#eeeeee")
        axes.set_axisbelow(True)


def tradeoff(table: Path) -> Path:
    """Draws accuracy against training FLOPs beside the table, one panel a task; the path of the picture."""
    rows = committed.load(table)
    tasks = list(dict.fromkeys(row.task for row in rows))
    names = list(dict.fromkeys(row.name for row in rows if row.of))
    path = table.with_name(f"{table.stem}-tradeoff.svg")
    with figure(path, (1.2 + 4.6 * len(tasks), 4.2), columns=len(tasks)) as panels:
        for task, axes in zip(tasks, panels if len(tasks) > 1 else [panels], strict=True):
            _lines(axes, [row for row in rows if row.task == task], names)
            axes.set_title(task, fontsize=10)
            handles, labels = axes.get_legend_handles_labels()
        axes.figure.legend(handles, labels, loc="outside lower center", ncols=3, frameon=False, fontsize=8)
    return path


def _lines(axes: Any, rows: Sequence[Row], names: Sequence[str]) -> None:
    """One line a method through its budgets, each marked with its keep, and the whole network as a star."""
    dense = next((row for row in rows if not row.of), None)
    base = dense.estimate("full_flops") if dense else None
    unit = base.mean if base else 1.0
    for place, name in enumerate(names):
        points = [row for row in sorted(rows, key=lambda row: -row.keep) if row.of and row.name == name]
        found = [(row.keep, row.estimate("full_flops"), row.estimate("last_top1")) for row in points]
        told = [(keep, cost.mean / unit, right) for keep, cost, right in found if cost and right]
        means = [100 * right.mean for *_, right in told]
        halves = [100 * (right.half or 0) for *_, right in told]
        marker = MARKERS[place % len(MARKERS)]
        colour = COLOURS[place % len(COLOURS)]
        times = [cost for _, cost, _ in told]
        axes.errorbar(times, means, yerr=halves, fmt=f"{marker}-", ms=5, lw=1, capsize=2, color=colour, label=name)
        for (keep, cost, _), mean in zip(told, means, strict=True):
            axes.annotate(f"{keep:g}", (cost, mean), xytext=(4, 4), textcoords="offset points", fontsize=7)
    if dense and (whole := dense.estimate("last_top1")):
        axes.errorbar(
            [1], [100 * whole.mean], yerr=[100 * (whole.half or 0)], fmt="*", ms=9, color="grey", label="whole network"
        )
    axes.set_xlabel(f"all training FLOPs{' (whole network = 1)' if base else ''}; numbers: share kept")
    axes.set_ylabel("accuracy at the end, %")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tables", nargs="+", type=Path)
    parser.add_argument("--tradeoff", action="store_true", help="accuracy against FLOPs, one line a method")
    args = parser.parse_args()
    for table in args.tables:
        (tradeoff if args.tradeoff else draw)(table)


if __name__ == "__main__":
    main()
