"""The report as plain HTML tables: what a reader without JavaScript sees, and what scripts sort and copy."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from html import escape
from typing import Any

from splinecut.errors import SplinecutError
from splinecut.experiments.film.frames import Frames
from splinecut.experiments.records import Record
from splinecut.experiments.summaries import Estimate, percent
from splinecut.report.rows import COSTS

Cell = tuple[str, float | None]
"""What is shown, and the number it is sorted by (None: sorted as text)."""


def table(name: str, caption: str, columns: Sequence[str], rows: Iterable[Sequence[Cell | str]]) -> str:
    """A table with a caption; every text is escaped here."""
    rows = list(rows)
    is_number = [bool(rows) and not isinstance(rows[0][i], str) for i in range(len(columns))]
    marks = ['<th scope="col" class="number">' if numeric else '<th scope="col">' for numeric in is_number]
    head = "".join(f"{mark}{escape(column)}</th>" for mark, column in zip(marks, columns, strict=True))
    body = "\n".join(f"<tr>{''.join(map(_cell, row))}</tr>" for row in rows)
    return (
        f'<div class="scroll" tabindex="0" role="region" aria-label="{escape(caption)}">'
        f'<table id="table-{escape(name)}" class="data"><caption>{escape(caption)}</caption>'
        f"<thead><tr>{head}</tr></thead><tbody>\n{body}\n</tbody></table></div>"
    )


def _cell(cell: Cell | str) -> str:
    text, value = (cell, None) if isinstance(cell, str) else cell
    return f"<td>{escape(text)}</td>" if value is None else f'<td data-value="{value!r}">{escape(text)}</td>'


def comparison(groups: Sequence[dict[str, Any]]) -> str:
    """Methods and budgets side by side, each a mean over seeds."""
    columns = ("task", "method", "keeps", "seeds", "test", "best by validation", "after the cut", "parameters")
    costs = ("FLOPs of a forward pass", "training FLOPs (paper)", "training FLOPs (full)", "seconds")
    rows = [
        [
            group["task"],
            group["series"],
            (group["budget"], group["keep"]),
            (str(len(group["runs"])), len(group["runs"])),
            *(_metric(estimate, group["is_accuracy"]) for estimate in group["test"].values()),
            *(_number(group[key].mean) for key in COSTS),
        ]
        for group in groups
    ]
    return table("comparison", "Methods compared: mean over seeds ± 95 % interval", (*columns, *costs), rows)


def runs(rows: Sequence[dict[str, Any]]) -> str:
    """One row a run."""
    columns = ("run", "task", "method", "keeps", "seed", "test", "parameters", "forward FLOPs", "paper", "full", "s")
    body = [
        [
            each["name"],
            each["task"],
            each["series"],
            each["budget"],
            (str(each["seed"]), each["seed"]),
            _metric(Estimate(each["test"]["last"], None, 1), each["is_accuracy"]),
            *(_number(each[key]) for key in COSTS),
        ]
        for each in rows
    ]
    caption = "Every run; paper, full: training FLOPs as the paper counts them, and all that was executed"
    return table("runs", caption, columns, body)


def detections(detected: Sequence[dict[str, Any]]) -> str:
    """What the detector of each run saw: the share of changed bits from one look to the next."""
    columns = ("run", "seed", "rule", "threshold", "drawn at look", "mean distance between looks 1-2, 2-3, ...")
    rows = []
    for each in detected:
        means = [sum(column) / len(column) for column in zip(*each["distances"], strict=True)]
        rows.append(
            [
                each["name"],
                (str(each["seed"]), each["seed"]),
                each["rule"],
                (f"{each['threshold']:g}", each["threshold"]),
                ("never" if each["drawn"] is None else str(each["drawn"]), each["drawn"] or 1e9),
                " ".join(f"{mean:.3f}" for mean in means),
            ]
        )
    return table("birds", "Early birds", columns, rows)


def partitions(films: Sequence[Frames]) -> str:
    """One row for each stored partition."""
    columns = ("network", "stage", "step", "units kept", "regions", "cuts' edges", "boundary segments", "also measured")
    rows: list[list[Cell | str]] = [
        [
            film.name,
            frame.stage,
            (str(frame.step), frame.step),
            (f"{frame.keep:.0%}", frame.keep),
            (f"{len(frame):,}", len(frame)),
            (f"{int((frame.edge_layer >= 0).sum()) // 2:,}", int((frame.edge_layer >= 0).sum()) // 2),
            (f"{len(frame.boundary):,}", len(frame.boundary)),
            ", ".join(f"{name} {value:.4g}" for name, value in frame.facts.items()),
        ]
        for film in films
        for frame in film
    ]
    return table("partitions", "Stored partitions", columns, rows)


def provenance(records: Sequence[Record]) -> str:
    """For every run what was asked, by which versions, and the command that does it again."""
    return "\n".join(_details(number, record) for number, record in enumerate(records))


def _details(number: int, record: Record) -> str:
    file = f"{record.name}-{record.digest}.toml"
    versions = ", ".join(f"{name} {version}" for name, version in record.versions.items())
    facts = {
        "versions": versions,
        "commit": record.commit or "an installed package",
        "device": record.device,
        "data": f"sha256 {record.data_hash}",
        "digest": record.digest,
    }
    listing = "".join(f"<dt>{escape(name)}</dt><dd>{escape(value)}</dd>" for name, value in facts.items())
    seed = record.spec.get("seed", 0)
    return (
        f'<details id="run-{number}" class="run"><summary>{escape(record.name)} <small>seed {escape(str(seed))}, '
        f"{escape(record.digest)}</small></summary><dl>{listing}</dl>"
        f"<p>Save the recipe as <code>{escape(file)}</code>; the command is</p>"
        f'<pre class="command">splinecut run {escape(_quoted(file))}</pre>'
        f'<pre class="recipe">{escape(_recipe(record))}</pre></details>'
    )


def _quoted(word: str) -> str:
    import shlex

    return shlex.quote(word)


def _recipe(record: Record) -> str:
    """The spec as a recipe that runs; as JSON where this version no longer reads it."""
    from splinecut.experiments.spec import Experiment

    try:
        return Experiment.from_dict(record.spec).to_toml()
    except SplinecutError:
        return json.dumps(record.spec, indent=2)


def _metric(estimate: Estimate | None, is_accuracy: bool) -> Cell:
    if estimate is None:
        return ("–", float("-inf"))
    if is_accuracy:
        return (f"{estimate.text(percent)} %", estimate.mean)
    half = "" if estimate.half is None else f" ± {estimate.half:.2g}"
    return (f"loss {estimate.mean:.4g}{half}", estimate.mean)


def _number(value: float) -> Cell:
    return (f"{value:,.0f}" if value == int(value) and value < 1e8 else f"{value:.4g}", value)
