"""Rows over seeds, for tables and pages: runs that differ in their seed only, with a 95 % interval per number."""

from __future__ import annotations

import hashlib
import json
import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from splinecut.errors import unknown
from splinecut.experiments.paper_numbers import published
from splinecut.experiments.records import Record

CONFIDENCE = 0.95
TEST_POINTS = {"cut": "after cut", "best": "best", "last": "last"}  # in names of numbers -> key of a record's `test`


class Estimate(NamedTuple):
    """A mean, half the width of its 95 % interval (None for a single value), and the number of values."""

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

    @classmethod
    def over(cls, runs: Iterable[Mapping[str, float]], number: str) -> Estimate | None:
        """Of the runs that have this number; None where none has."""
        values = [numbers[number] for numbers in runs if number in numbers]
        return cls.of(values) if values else None

    def text(self, write: Callable[[float], str]) -> str:
        """The mean and, where there is one, the half-width: "1.5 ± 0.2"."""
        return write(self.mean) + ("" if self.half is None else f" ± {write(self.half)}")

    def signed(self, write: Callable[[float], str]) -> str:
        """The same for a difference, with a sign in front of the mean."""
        return ("+" if self.mean >= 0 else "") + self.text(write)

    @property
    def excludes_zero(self) -> bool:
        """Whether zero lies outside the interval."""
        return self.half is not None and abs(self.mean) > self.half


@dataclass(frozen=True)
class Row:
    """Runs that differ in their seed only. `by_seed`: seed -> name -> number, for each number those runs have.

    asked: a digest of the configuration that the runs share; rows with the same one can be merged.
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
        return Estimate.over(self.by_seed.values(), number)

    def difference(self, other: Row, number: str) -> Estimate | None:
        """This row's number minus the other's, paired by seed, so that the variation between seeds cancels."""
        pairs = [(mine, other.by_seed[seed]) for seed, mine in self.by_seed.items() if seed in other.by_seed]
        gains = [mine[number] - theirs[number] for mine, theirs in pairs if number in mine and number in theirs]
        return Estimate.of(gains) if gains else None


def rows(records: Sequence[Record]) -> list[Row]:
    """One row for all runs that differ in their seed only; in each task dense runs first, then by name and budget."""
    return _ordered([_row([records[run] for run in runs]) for runs in by_config(records)])


def by_config(records: Sequence[Record]) -> list[list[int]]:
    """Positions of the records that differ in their seed only, together."""
    together: dict[str, list[int]] = {}
    for position, record in enumerate(records):
        together.setdefault(config_key(record), []).append(position)
    return list(together.values())


def merged(separate: Sequence[Row]) -> list[Row]:
    """Rows of the same configuration as one, with the seeds of all; of a seed that two have, the first is taken."""
    together: dict[str, Row] = {}
    for row in separate:
        first = together.setdefault(row.asked, row)
        together[row.asked] = replace(first, by_seed={**row.by_seed, **first.by_seed})
    return _ordered(list(together.values()))


def _ordered(unordered: Sequence[Row]) -> list[Row]:
    return sorted(unordered, key=lambda row: (row.task, row.of != "", row.name.casefold(), -row.keep))


def baseline_row(row: Row, table: Sequence[Row], name: str) -> Row | None:
    """The row called `name` that `row` is compared with: same task and budget, or that task's only one.

    None for the baseline itself, and where the task does not have it.
    """
    if name not in {other.name for other in table}:
        raise unknown("row", name, {other.name for other in table}, "give --baseline one of these")
    candidates = [other for other in table if other.name == name and other.task == row.task]
    alike = [other for other in candidates if (other.keep, other.of) == (row.keep, row.of)]
    chosen = next(iter(alike or (candidates if len(candidates) == 1 else [])), None)
    return None if chosen is row else chosen


def numbers(record: Record) -> dict[str, float]:
    """Every number of a run that a table may show; what was not measured is left out."""
    total = record.costs.total
    achieved = (record.pruning or {}).get("achieved", {})
    values: dict[str, float | None] = {
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
    for short, point in TEST_POINTS.items():
        metrics = record.test.get(point, {})
        values |= {f"{short}_top1": metrics.get("accuracy"), f"{short}_top5": metrics.get("top5")}
        values[f"{short}_loss"] = metrics.get("loss")
    return {name: float(value) for name, value in values.items() if value is not None}


def task(spec: dict[str, Any]) -> str:
    """What a run is about: runs of one task may be compared."""
    model, data = spec["model"], spec["data"]
    width = "" if model.get("width", 1.0) == 1.0 else f" x{model['width']:g}"
    size = "" if data.get("train_size") is None else f" ({data['train_size']:,} images)"
    return f"{model['name']}{width} on {data['name']}{size}"


def accuracy_or_loss(metrics: Mapping[str, Any]) -> tuple[str, float]:
    """The metric that a table shows, with its name: the accuracy, or the loss of a task that has none."""
    name = "loss" if metrics["accuracy"] is None else "accuracy"
    return name, metrics[name]


def percent(share: float) -> str:
    """A share as a percentage with two decimals."""
    return f"{100 * share:.2f}"


def variant_of(name: str) -> str:
    """What a sweep varied beside methods and budgets, as in a row's name: "adam" of "dense [adam]"."""
    match = re.search(r" \[([^\[\]]*)\]$", name)
    return match[1] if match else ""


def short_names(names: Iterable[str]) -> dict[str, str]:
    """Names without the options of their methods, where they stay distinct."""
    short = {name: name.partition(" (")[0] for name in names}
    counts = Counter(short.values())
    return {name: bare if counts[bare] == 1 else name for name, bare in short.items()}


def config_key(record: Record) -> str:
    """The configuration as text, without what does not change the result, and without the seed."""
    settings = {key: value for key, value in record.spec.items() if key not in ("seed", "name", "description", "film")}
    return json.dumps(settings, sort_keys=True)


def _row(records: Sequence[Record]) -> Row:
    spec = records[0].spec
    is_pruned = spec.get("method") is not None
    quantities = {name: published(spec, name) for name in ("top1", "top5", "petaflops")}
    return Row(
        asked=hashlib.sha256(config_key(records[0]).encode()).hexdigest()[:12],
        task=task(spec),
        name=records[0].name,
        keep=spec["budget"]["keep"] if is_pruned else 1.0,
        of=_budget_unit(records[0]) if is_pruned else "",
        by_seed={record.spec["seed"]: numbers(record) for record in records},
        published={name: value for name, value in quantities.items() if value is not None},
    )


def _budget_unit(record: Record) -> str:
    """What the budget counted: weights where the method removes weights, whatever `budget.of` says."""
    pruning = record.pruning or {}
    return "weights" if pruning.get("units") == "weights" else str(record.spec["budget"]["of"])
