"""From cells to a table: means over probes with 95 % intervals, paired differences, predicted against measured."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import Console
from rich.table import Table

from studies.oneshot.cells import Cell
from studies.support.intervals import interval

BASELINES = ("l2", "l2, layer")  # with the same refit
NUMBERS = ("score", "agreement", "cosine", "divergence", "error", "share", "parameters", "draw seconds", "cut seconds")
FACTOR = 1.5  # by which a prediction may be off


def summary(cells: Sequence[Cell]) -> dict[str, Any]:
    """What a committed result says of a network's cells.

    rows:    for every row and share the mean and half-width of each number over probes, the values of the score, its
             paired difference to each baseline in points and at how many probes it was below it.
    skipped: row -> why.
    """
    done = [cell for cell in cells if "skipped" not in cell]
    by_place = {(cell["row"], cell["keep"], cell["probe"]): cell for cell in done}
    rows = []
    for row, keep in dict.fromkeys((cell["row"], cell["keep"]) for cell in done):
        own = [cell for cell in done if (cell["row"], cell["keep"]) == (row, keep)]
        rows.append(
            {
                "row": row,
                "keep": keep,
                "probes": [cell["probe"] for cell in own],
                "scores": [cell["score"] for cell in own],
                **{name: list(interval([c[name] for c in own])) for name in NUMBERS if name in own[0]},
                **{key: value for name in BASELINES for key, value in _against(name, own, by_place).items()},
                "predicted": [cell["predicted"] for cell in own if cell["predicted"] is not None],
                "errors": [cell["error"] for cell in own if cell["predicted"] is not None],
            }
        )
    return {
        "rows": rows,
        "predictions": predictions(done),
        "skipped": {cell["row"]: cell["skipped"] for cell in cells if "skipped" in cell},
        "warnings": sorted({text for cell in done for text in cell["warnings"]}),
        "commits": sorted({str(cell["commit"]) for cell in done}),
    }


def _against(baseline: str, cells: Sequence[Cell], by_place: Mapping[tuple[str, float, int], Cell]) -> dict[str, Any]:
    """The score less that of the baseline with the same probe, in points; nothing where there is none."""
    places = [(baseline, cell["keep"], cell["probe"]) for cell in cells]
    pairs = [(cell, by_place[place]) for cell, place in zip(cells, places, strict=True) if place in by_place]
    gains = [100 * (cell["score"] - other["score"]) for cell, other in pairs]
    if not gains:
        return {}
    return {f"points over {baseline}": list(interval(gains)), f"below {baseline}": sum(gain < 0 for gain in gains)}


def predictions(cells: Sequence[Cell]) -> dict[str, dict[str, float]]:
    """Row -> how many tickets predicted their error, the share within FACTOR, and the median factor."""
    found = {}
    for row in dict.fromkeys(cell["row"] for cell in cells):
        factors = [
            max(cell["predicted"] / cell["error"], cell["error"] / cell["predicted"])
            for cell in cells
            if cell["row"] == row and cell["predicted"] and cell["error"] > 0
        ]
        if factors:
            within = sum(factor <= FACTOR for factor in factors) / len(factors)
            found[row] = {"tickets": len(factors), "within": within, "median factor": statistics.median(factors)}
    return found


def show(network: str, facts: Mapping[str, Any], found: Mapping[str, Any]) -> None:
    """One line a row, one column a share of the FLOPs: the score in per cent, mean and half-width over probes."""
    keeps = sorted({row["keep"] for row in found["rows"]}, reverse=True)
    table = Table(title=f"{network}: dense {100 * facts['dense']['score']:.1f}", caption="95 % intervals over probes")
    table.add_column("row")
    for keep in keeps:
        table.add_column(f"{keep:g} of FLOPs", justify="right")
    cells = {(row["row"], row["keep"]): row["score"] for row in found["rows"]}
    for name in dict.fromkeys(row["row"] for row in found["rows"]):
        table.add_row(name, *(_text(cells.get((name, keep))) for keep in keeps))
    console = Console(width=120)
    console.print(table)
    for row, reason in found["skipped"].items():
        console.print(f"skipped {row}: {reason}", highlight=False)
    for row, told in found["predictions"].items():
        console.print(f"{row}: {told['within']:.0%} of {told['tickets']} predictions within a factor of {FACTOR:g}")


def _text(score: Sequence[float] | None) -> str:
    if score is None:
        return ""
    mean, half = score
    return f"{100 * mean:.1f}" if half != half else f"{100 * mean:.1f} ± {100 * half:.1f}"
