"""What the early bird and refitting are worth: accuracy and total training FLOPs against three other routes.

    python -m studies.headline headline-vgg16 --data-dir DATA --out results/headline-vgg16.json

Routes, for each seed and each share of FLOPs that stays:

    early bird             train until the partition has settled, cut, refit, train
    train, prune, retrain  train to the end, cut, refit, train
    from scratch           the network that the early bird's cut made, with fresh weights and no credit for knowing it:
                           its cost is that of its own training alone
    dense                  the dense network, trained once

and the early bird with other lengths of retraining: 26 epochs of a network with 0.3 of the FLOPs cost 0.6 of the dense
training in all, as the target for that size allows; 13 of them, or 19 of one with 0.2, cost 0.4. Looking at the
partition every 28 steps instead of every 57, an epoch, draws sooner, which leaves 0.4 for all 20 epochs.

Runs are kept in `--runs` and resumed; trainings that routes have in common are done once and charged to each. Runs
that an earlier result holds are read from it with `--known`: seeds can be added on another machine.
"""

from __future__ import annotations

import argparse
import itertools
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from splinecut.experiments import runner, spec
from splinecut.experiments.records import Record
from splinecut.training.ledger import Phase
from studies.refit import whole
from studies.support.intervals import interval
from studies.support.result_file import write

KEEPS = (0.7, 0.5, 0.3)
ROUTES: dict[str, tuple[list[str], tuple[float, ...]]] = {  # what differs from the recipe, and for which shares
    "early bird": ([], KEEPS),
    "train, prune, retrain": (["detector"], KEEPS),
    "from scratch": (["retrain.weights=reinit"], KEEPS),
    "early bird, 26 epochs": (["retrain.epochs=26"], (0.3,)),
    "early bird, 19 epochs": (["retrain.epochs=19"], (0.2,)),
    "early bird, 13 epochs": (["retrain.epochs=13"], (0.3,)),
    "early bird, two looks an epoch": (["detector.every=28"], (0.3,)),
}


def experiments(recipe: str, seeds: list[int], routes: list[str], keeps: Sequence[float]) -> list[spec.Experiment]:
    """Every run of the study: the dense one of each seed first, since others share its training."""
    runs = []
    for seed in seeds:
        base = spec.load(recipe, [f"seed={seed}"])
        runs.append(whole(base))
        for keep, route in itertools.product(keeps, routes):
            different, wanted = ROUTES[route]
            if keep not in wanted:
                continue
            changes = [change for change in different if "=" in change]
            one = spec.load(recipe, [f"seed={seed}", f"budget.keep={keep}", *changes])
            dropped = {change: None for change in different if "=" not in change}
            name = f"{base.name}-{route.replace(', ', '-').replace(' ', '-')}-{keep:g}"
            runs.append(one.model_copy(update={"name": name, **dropped}))
    return runs


def fact(record: Record) -> dict[str, Any]:
    """What the study keeps of a run. Of a network from scratch only its own training counts."""
    spent = record.costs
    if record.spec["retrain"]["weights"] == "reinit":
        own = [charge for phase, charge in spent if Phase.parse(phase).kind in ("retrain", "test")]
        paper, full = sum(c.paper_flops for c in own), sum(c.flops for c in own)
    else:
        paper, full = spent.total.paper_flops, spent.total.flops
    pruned = record.pruning or {}
    return {
        "name": record.name,
        "digest": record.digest,
        "seed": record.spec["seed"],
        "accuracy": record.test["last"]["accuracy"],
        "accuracy best by validation": record.test.get("best", {}).get("accuracy"),
        "accuracy after the cut": record.test.get("after cut", {}).get("accuracy"),
        "forward_flops": record.forward_flops,
        "parameters": record.parameters,
        "paper_flops": paper,
        "full_flops": full,
        "drawn_epoch": pruned.get("drawn_epoch"),
        "drawn_step": pruned.get("drawn_step"),
        "achieved": pruned.get("achieved"),
        "data_hash": record.data_hash,
    }


def compared(facts: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """For each route and share: accuracy, its paired difference to dense, FLOPs relative to dense; 95 % intervals."""
    dense = {fact["seed"]: fact for fact in facts if fact["name"].endswith("-dense")}
    rows = []
    for name in dict.fromkeys(fact["name"] for fact in facts):
        own = [fact for fact in facts if fact["name"] == name]
        accuracy, half = interval([100 * fact["accuracy"] for fact in own])
        difference = interval([100 * (fact["accuracy"] - dense[fact["seed"]]["accuracy"]) for fact in own])
        spent = [fact["full_flops"] / dense[fact["seed"]]["full_flops"] for fact in own]
        kept = [fact["forward_flops"] / dense[fact["seed"]]["forward_flops"] for fact in own]
        rows.append(
            {
                "route": name,
                "seeds": len(own),
                "accuracy": [accuracy, half],
                "against dense": list(difference),
                "training flops": sum(spent) / len(spent),
                "kept flops": sum(kept) / len(kept),
                "drawn epochs": [fact["drawn_epoch"] for fact in own],
            }
        )
    return rows


def show(rows: list[dict[str, Any]]) -> None:
    """The comparison, for people."""
    table = Table(title="accuracy on the test images, and total training FLOPs (the dense run is 1)")
    for column in ("route", "seeds", "accuracy %", "against dense", "training", "kept FLOPs", "drawn"):
        table.add_column(column, justify="left" if column == "route" else "right")
    for row in rows:
        (mean, half), (gap, wide) = row["accuracy"], row["against dense"]
        drawn = ", ".join("-" if epoch is None else str(epoch) for epoch in row["drawn epochs"])
        table.add_row(
            row["route"],
            str(row["seeds"]),
            f"{mean:.1f} +- {half:.1f}",
            f"{gap:+.1f} +- {wide:.1f}",
            f"{row['training flops']:.2f}",
            f"{row['kept flops']:.2f}",
            drawn,
        )
    Console(width=140).print(table)


def held(path: Path) -> dict[str, dict[str, Any]]:
    """Runs of an earlier result, by the digest of what was run."""
    try:
        runs = json.loads(path.read_text(encoding="utf-8"))["runs"]
        return {run["digest"]: run for run in runs}
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise SystemExit(f"--known {path}: expected a result of this study, got {error!r}") from None


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("recipe")
    parser.add_argument("--data-dir", type=Path)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--routes", nargs="+", choices=list(ROUTES), default=list(ROUTES))
    parser.add_argument("--keeps", type=float, nargs="+", default=[0.7, 0.5, 0.3, 0.2])
    parser.add_argument("--runs", type=Path, default=Path("runs"))
    parser.add_argument("--known", type=Path, help="an earlier result, whose runs are not done again")
    parser.add_argument("--out", type=Path)
    args = parser.parse_args()
    finished = held(args.known) if args.known else {}
    args.known = None  # the command beside the result does everything anew
    facts = []
    for experiment in experiments(args.recipe, args.seeds, args.routes, args.keeps):
        if experiment.digest not in finished:
            record = runner.run(experiment, args.runs, args.data_dir, shared=args.runs / "shared")
            finished[experiment.digest] = fact(record)
        facts.append(finished[experiment.digest])
        print(f"{experiment.name} seed {experiment.seed}: {facts[-1]['accuracy']:.2%}", flush=True)
    rows = compared(facts)
    show(rows)
    if args.out:
        write(args.out, __spec__, args, {"recipe": args.recipe, "rows": rows, "runs": facts}, first=["recipe"])


if __name__ == "__main__":
    main()
