"""What records say, as rows: one for each run, and one for runs that differ in their seed only, with an interval."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from splinecut.experiments.records import Record
from splinecut.experiments.summaries import Estimate, question, task
from splinecut.pruning.detection_rules import DETECTION_RULES

MOMENTS = ("last", "best", "after cut")  # of the network whose test metrics a record holds


def series(record: Record) -> str:
    """The method as a reader would name it: with the early bird, and with the options the recipe gave."""
    method = record.spec.get("method")
    if method is None:
        return "dense"
    options = [f"{key}={value}" for key, value in method.items() if key != "name" and value is not None]
    name = method["name"] + (f" ({', '.join(options)})" if options else "")
    return f"early bird, {name}" if record.spec.get("detector") else name


def budget(record: Record) -> str:
    """How much was to stay."""
    if record.spec.get("method") is None:
        return "everything"
    asked = record.spec["budget"]
    return f"{asked['keep']:.0%} of {asked['of']}"


def measure(metrics: dict[str, Any] | None) -> float | None:
    """Accuracy where there is one, else the loss; None where nothing was measured."""
    if metrics is None:
        return None
    return metrics["loss"] if metrics["accuracy"] is None else metrics["accuracy"]


def is_accuracy(record: Record) -> bool:
    return record.test["last"]["accuracy"] is not None


def row(record: Record) -> dict[str, Any]:
    """One run in plain numbers."""
    total = record.costs.total
    return {
        "name": record.name,
        "digest": record.digest,
        "task": task(record.spec),
        "series": series(record),
        "budget": budget(record),
        "seed": record.spec.get("seed", 0),
        "test": {state: measure(record.test.get(state)) for state in MOMENTS},
        "is_accuracy": is_accuracy(record),
        "parameters": record.parameters,
        "forward_flops": record.forward_flops,
        "paper_flops": total.paper_flops,
        "full_flops": total.flops,
        "seconds": round(total.seconds, 2),
    }


def grouped(records: Sequence[Record]) -> list[dict[str, Any]]:
    """Runs that differ in their seed only as one row each, with an `Estimate` for every number, by task and series."""
    together: dict[str, list[int]] = {}
    for number, record in enumerate(records):
        together.setdefault(question(record), []).append(number)
    groups = [_group([records[number] for number in numbers], numbers) for numbers in together.values()]
    return sorted(
        groups, key=lambda group: (group["task"], group["series"] != "dense", group["series"], -group["keep"])
    )


def _group(records: list[Record], numbers: list[int]) -> dict[str, Any]:
    rows = [row(record) for record in records]
    first = rows[0]

    def estimate(values: list[float | None]) -> list[float | None] | None:
        known = [value for value in values if value is not None]
        found = Estimate.of(known) if known else None
        return [found.mean, found.half, found.n] if found else None

    numbers_of = ("parameters", "forward_flops", "paper_flops", "full_flops", "seconds")
    return {
        **{key: first[key] for key in ("task", "series", "budget", "is_accuracy")},
        "keep": records[0].spec["budget"]["keep"] if records[0].spec.get("method") else 1.0,
        "test": {state: estimate([each["test"][state] for each in rows]) for state in MOMENTS},
        **{key: estimate([each[key] for each in rows]) for key in numbers_of},
        "runs": numbers,
    }


def bird(record: Record) -> dict[str, Any] | None:
    """What the detector saw, None where there was none: distances by layer, matrices as far as they were stored."""
    pruning, asked = record.pruning, record.spec.get("detector")
    if not pruning or not asked or not pruning.get("distances"):
        return None
    rule = DETECTION_RULES[asked["rule"]].with_overrides(asked["threshold"], asked["window"])
    return {
        "name": record.name,
        "seed": record.spec.get("seed", 0),
        "rule": asked["rule"],
        "threshold": rule.threshold,
        "window": rule.window,
        "every": asked["every"],
        "epochs": record.spec["training"]["epochs"],
        "drawn": len(next(iter(pruning["distances"].values()))) + 1 if pruning["is_early"] else None,
        "layers": list(pruning["distances"]),
        "distances": [[round(value, 6) for value in row] for row in pruning["distances"].values()],
        "matrix": pruning.get("matrix"),
        "matrices": pruning.get("matrices"),
    }
