"""Whether a criterion is worth anything: accuracy of each single-weight method beside random masks.

    python -m studies.criteria.weights --seeds 5 --out results/beats-random-weights.json

Three controls tell where a gain comes from. `uniform` keeps the same share of every layer: beating it may be due to
the allocation alone. `erk` allocates well and chooses at random. A method's own twin has its count in every layer
and chooses at random: beating that one is the criterion's merit.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import track
from rich.table import Table

from splinecut.experiments import runner, spec
from splinecut.experiments.building import run_context
from splinecut.experiments.measurements import measure
from splinecut.pruning.ticket import Ticket, random_twin
from splinecut.pruning.weight_mask import WeightMaskHook
from splinecut.training import devices
from splinecut.training.progress import ConsoleProgress
from studies.support.intervals import plus_minus
from studies.support.pairing import Comparison, arguments, gains
from studies.support.result_file import write

METHODS = ("uniform", "erk", "grasp", "snip", "synflow", "magnitude", "lottery", "rigl")
HAVE_TWINS = ("grasp", "snip", "synflow", "lottery")  # their masks are drawn for the untrained network
MUST_BEAT = {  # control -> the methods that are to beat it
    "uniform": ("erk", "grasp", "snip", "synflow", "magnitude", "lottery", "rigl"),
    "erk": ("lottery", "rigl"),
}
OPTIONS: dict[str, list[str]] = {"rigl": ["method.every=10"]}  # 152 steps in all: every 100 would move the mask once


def accuracies(recipe: str, seed: int, runs: Path) -> dict[str, float]:
    """Test accuracy after the last epoch of every method, and of the random twins."""
    by_arm = {}
    for method in METHODS:
        experiment = spec.load(recipe, [f"seed={seed}", f"method={method}", *OPTIONS.get(method, [])])
        record = runner.run(experiment, runs, device="cpu")
        by_arm[method] = record.test["last"]["accuracy"]
        if method in HAVE_TWINS:
            ticket = Ticket.load(runs / experiment.folder / "ticket.safetensors")
            by_arm[f"{method} (twin)"] = masked_accuracy(experiment, random_twin(ticket, seed))
    return by_arm


def masked_accuracy(experiment: spec.Experiment, ticket: Ticket) -> float:
    """Test accuracy of the experiment's network, trained from its start under the ticket's mask."""
    dataset = runner.load_data(experiment)
    context = run_context(experiment, Path(), dataset, devices.choose("cpu"), devices.SINGLE_PROCESS, ConsoleProgress())
    context = replace(context, folder=None)  # nothing is left behind
    model = context.train(context.build(context.seed), "twin", [WeightMaskHook(ticket.keep)]).model
    return float(measure(context, model)["last"]["accuracy"])


def comparisons(by_seed: list[dict[str, float]]) -> list[Comparison]:
    """Every method against the controls it is to beat, then against its twin."""
    pairs = [(method, control) for control, methods in MUST_BEAT.items() for method in methods]
    pairs += [(method, f"{method} (twin)") for method in HAVE_TWINS]
    return [Comparison.of(by_seed, *pair) for pair in pairs]


def show(by_seed: list[dict[str, float]]) -> None:
    """Mean accuracies with their intervals, then the paired differences."""
    means = Table("mask", "accuracy, %", title=f"{len(by_seed)} seeds, 95 % intervals")
    for name in sorted(by_seed[0], key=lambda name: sum(seed[name] for seed in by_seed)):
        means.add_row(name, plus_minus([100 * seed[name] for seed in by_seed]))
    table = Table("method", "control", "gain, points", "seeds won", "one-sided p")
    for pair in comparisons(by_seed):
        table.add_row(pair.first, pair.second, *pair.cells)
    Console().print(means)
    Console().print(table)


def summary(by_seed: list[dict[str, float]]) -> dict[str, Any]:
    """What a committed result says: accuracies of every seed, and each comparison."""
    pairs = {f"{pair.first} over {pair.second}": pair for pair in comparisons(by_seed)}
    return {"accuracy by seed": by_seed, "gains in points": gains(pairs)}


def main() -> None:
    parser = arguments(__doc__, "digits-weights")
    parser.add_argument("--runs", type=Path, default=Path("runs"))
    args = parser.parse_args()
    by_seed = [accuracies(args.recipe, seed, args.runs) for seed in track(range(args.seeds), "seeds")]
    show(by_seed)
    if args.out:
        write(args.out, __spec__, args, summary(by_seed))


if __name__ == "__main__":
    main()
