"""Records as rows for the page: one per run, and one for runs that differ in their seed only, with intervals."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from splinecut.experiments.records import Record
from splinecut.experiments.spec import DENSE, label
from splinecut.experiments.summaries import TEST_POINTS, Estimate, accuracy_or_loss, by_config, numbers, task
from splinecut.pruning.detection_rules import DETECTION_RULES

SHOWN = tuple(reversed(TEST_POINTS.items()))  # the last weights first
COSTS = ("parameters", "forward_flops", "paper_flops", "full_flops", "seconds")


def series(record: Record) -> str:
    """The method as the page names it: with the early bird, and with the options that the recipe gave."""
    return label(record.spec.get("method"), bool(record.spec.get("detector")))


def budget(record: Record) -> str:
    """How much was to stay."""
    if record.spec.get("method") is None:
        return "everything"
    spec = record.spec["budget"]
    return f"{spec['keep']:.0%} of {spec['of']}"


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
        "test": {
            point: accuracy_or_loss(record.test[point])[1] if point in record.test else None for _, point in SHOWN
        },
        "is_accuracy": accuracy_or_loss(record.test["last"])[0] == "accuracy",
        "parameters": record.parameters,
        "forward_flops": record.forward_flops,
        "paper_flops": total.paper_flops,
        "full_flops": total.flops,
        "seconds": round(total.seconds, 2),
    }


def grouped(records: Sequence[Record]) -> list[dict[str, Any]]:
    """Runs that differ in their seed only as one row each, with an `Estimate` for every number, by task and series."""
    groups = [_group([records[run] for run in runs], runs) for runs in by_config(records)]
    return sorted(groups, key=lambda group: (group["task"], group["series"] != DENSE, group["series"], -group["keep"]))


def _group(records: Sequence[Record], runs: Sequence[int]) -> dict[str, Any]:
    first = row(records[0])
    values = [numbers(record) | {"seconds": row(record)["seconds"]} for record in records]
    kind = "top1" if first["is_accuracy"] else "loss"
    return {
        **{key: first[key] for key in ("task", "series", "budget", "is_accuracy")},
        "keep": records[0].spec["budget"]["keep"] if records[0].spec.get("method") else 1.0,
        "test": {point: Estimate.over(values, f"{short}_{kind}") for short, point in SHOWN},
        **{key: Estimate.over(values, key) for key in COSTS},
        "runs": runs,
    }


def detection(record: Record) -> dict[str, Any] | None:
    """What the detector saw, None where there was none: distances by layer, matrices as far as they were stored."""
    pruning, spec = record.pruning, record.spec.get("detector")
    if not pruning or not spec or not pruning.get("distances"):
        return None
    rule = DETECTION_RULES[spec["rule"]].with_overrides(spec["threshold"], spec["window"])
    return {
        "name": record.name,
        "seed": record.spec.get("seed", 0),
        "rule": spec["rule"],
        "threshold": rule.threshold,
        "window": rule.window,
        "every": spec["every"],
        "epochs": record.spec["training"]["epochs"],
        "drawn": len(next(iter(pruning["distances"].values()))) + 1 if pruning["is_early"] else None,
        "layers": list(pruning["distances"]),
        "distances": [[round(value, 6) for value in row] for row in pruning["distances"].values()],
        "matrix": pruning.get("matrix"),
        "matrices": pruning.get("matrices"),
    }
