"""Records that differ in their seed only, as one row: a mean for every number, with its 95 % interval."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from splinecut.errors import unknown
from splinecut.experiments.paper_numbers import published
from splinecut.experiments.records import Record

CONFIDENCE = 0.95
MOMENTS = {"cut": "after cut", "best": "best", "last": "last"}  # short name -> of which network a record's test speaks


@dataclass(frozen=True)
class Estimate:
    """A mean, half the width of its 95 % interval (None for a single value), and how many values it is of."""

    mean: float
    half: float | None
    n: int

    @classmethod
    def of(cls, values: Sequence[float]) -> Estimate:
        """Student's interval: the mean, and t(n - 1) times its standard error."""
        mean = sum(values) / len(values)
        if len(values) == 1:
            return cls(mean, None, 1)
        from scipy.special import stdtrit

        n = len(values)
        variance = sum((value - mean) ** 2 for value in values) / (n - 1)
        return cls(mean, float(stdtrit(n - 1, 0.5 + CONFIDENCE / 2)) * (variance / n) ** 0.5, n)

    @property
    def excludes_zero(self) -> bool:
        """Whether zero lies outside the interval."""
        return self.half is not None and abs(self.mean) > self.half


@dataclass(frozen=True)
class Row:
    """Runs that differ in their seed only. `by_seed`: seed -> name -> number, for each number those runs have.

    asked: a digest of all that the runs have in common; rows with the same one may be joined.
    """

    asked: str
    task: str
    name: str
    keep: float
    of: str
    by_seed: dict[int, dict[str, float]]
    published: dict[str, float]

    def estimate(self, number: str) -> Estimate | None:
        """The number's mean over the seeds that have it; None where none has."""
        values = [numbers[number] for numbers in self.by_seed.values() if number in numbers]
        return Estimate.of(values) if values else None

    def difference(self, other: Row, number: str) -> Estimate | None:
        """This row's number minus the other's, paired by seed: what the seeds have in common cancels."""
        pairs = [
            (mine[number], other.by_seed[seed][number])
            for seed, mine in self.by_seed.items()
            if number in mine and number in other.by_seed.get(seed, {})
        ]
        return Estimate.of([mine - theirs for mine, theirs in pairs]) if pairs else None


def rows(records: Sequence[Record]) -> list[Row]:
    """One row for all runs of the same question; the whole network first in each task, then by name and budget."""
    together: dict[str, list[Record]] = {}
    for record in records:
        together.setdefault(question(record), []).append(record)
    return _ordered([_row(group) for group in together.values()])


def merged(found: Sequence[Row]) -> list[Row]:
    """Rows of the same question as one, with the seeds of all; a seed that two have is the first one's."""
    together: dict[str, Row] = {}
    for row in found:
        known = together.setdefault(row.asked, row)
        together[row.asked] = replace(known, by_seed={**row.by_seed, **known.by_seed})
    return _ordered(list(together.values()))


def _ordered(found: Sequence[Row]) -> list[Row]:
    return sorted(found, key=lambda row: (row.task, row.of != "", row.name.casefold(), -row.keep))


def baseline(row: Row, table: Sequence[Row], name: str) -> Row | None:
    """The row called `name` that `row` is compared with: same task and budget, or that task's only one.

    None for the baseline itself, and where the task does not have it.
    """
    if name not in {other.name for other in table}:
        raise unknown("row", name, {other.name for other in table}, "give --against one of these")
    candidates = [other for other in table if other.name == name and other.task == row.task]
    alike = [other for other in candidates if (other.keep, other.of) == (row.keep, row.of)]
    chosen = next(iter(alike or (candidates if len(candidates) == 1 else [])), None)
    return None if chosen is row else chosen


def numbers(record: Record) -> dict[str, float]:
    """Every number of a run that a table may show; what was not measured is left out."""
    total = record.costs.total
    achieved = (record.pruning or {}).get("achieved", {})
    found: dict[str, float | None] = {
        "kept": achieved.get("density", 1.0),
        "drawn_epoch": (record.pruning or {}).get("drawn_epoch"),
        "parameters": record.parameters,
        "forward_flops": record.forward_flops,
        "paper_flops": total.paper_flops,
        "full_flops": total.flops,
        "sparse_flops": total.sparse_flops,
        "seconds": total.seconds,
        "joules": record.energy.get("measured_joules"),
        "tx2_joules": record.energy.get("estimate_tx2_joules"),
        **{f"latency_{batch}": seconds for batch, seconds in record.latency.items()},
    }
    for short, state in MOMENTS.items():
        metrics = record.test.get(state, {})
        found |= {f"{short}_top1": metrics.get("accuracy"), f"{short}_top5": metrics.get("top5")}
        found[f"{short}_loss"] = metrics.get("loss")
    return {name: float(value) for name, value in found.items() if value is not None}


def task(spec: dict[str, Any]) -> str:
    """What a run is about: runs of one task may be compared."""
    model, data = spec["model"], spec["data"]
    width = "" if model.get("width", 1.0) == 1.0 else f" x{model['width']:g}"
    size = "" if data.get("train_size") is None else f" ({data['train_size']:,} images)"
    return f"{model['name']}{width} on {data['name']}{size}"


def question(record: Record) -> str:
    """What was asked, whatever the seed and the name."""
    asked = {key: value for key, value in record.spec.items() if key not in ("seed", "name", "description", "film")}
    return json.dumps(asked, sort_keys=True)


def _row(records: Sequence[Record]) -> Row:
    spec = records[0].spec
    is_pruned = spec.get("method") is not None
    quantities = {name: published(spec, name) for name in ("top1", "top5", "petaflops")}
    return Row(
        asked=hashlib.sha256(question(records[0]).encode()).hexdigest()[:12],
        task=task(spec),
        name=records[0].name,
        keep=spec["budget"]["keep"] if is_pruned else 1.0,
        of=_currency(records[0]) if is_pruned else "",
        by_seed={record.spec["seed"]: numbers(record) for record in records},
        published={name: value for name, value in quantities.items() if value is not None},
    )


def _currency(record: Record) -> str:
    """What the budget was a share of: single weights, whatever the recipe says of channels, where weights left."""
    pruning = record.pruning or {}
    return "weights" if pruning.get("units") == "weights" else str(record.spec["budget"]["of"])
