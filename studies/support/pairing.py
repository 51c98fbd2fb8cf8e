"""Paired comparisons over seeds: a criterion against its controls, and the main function of studies that make them."""

from __future__ import annotations

import argparse
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib.machinery import ModuleSpec
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import track
from rich.table import Table

from studies.support.intervals import plus_minus
from studies.support.result_file import write

Accuracies = dict[str, float]  # of one seed, by arm and moment: "slimming, keep 0.5 twin | recalibrated"
CONTROLS = (" twin", " uniform", " cut before training")


@dataclass(frozen=True)
class Comparison:
    """Paired differences of accuracy over seeds, first less second."""

    first: str
    second: str
    differences: tuple[float, ...]

    @classmethod
    def of(cls, by_seed: Sequence[Accuracies], first: str, second: str) -> Comparison:
        """In points, of two places in the results of each seed."""
        return cls(first, second, tuple(100 * (seed[first] - seed[second]) for seed in by_seed))

    @property
    def p(self) -> float:
        """One-sided p of a paired t-test: how likely such a gain is if there is none."""
        from scipy.stats import ttest_1samp

        return float(ttest_1samp(self.differences, 0.0, alternative="greater").pvalue)

    @property
    def wins(self) -> int:
        return sum(difference > 0 for difference in self.differences)

    @property
    def cells(self) -> tuple[str, str, str]:
        """Gain with its interval, seeds won and p, for a table."""
        return plus_minus(self.differences, "+.1f"), f"{self.wins}", f"{self.p:.2g}"


def gains(pairs: Mapping[str, Comparison]) -> dict[str, dict[str, float]]:
    """What a committed result says of each comparison."""
    return {
        name: {"gain": statistics.fmean(pair.differences), "wins": pair.wins, "p": pair.p}
        for name, pair in pairs.items()
    }


def with_controls(by_seed: Sequence[Accuracies]) -> dict[str, Comparison]:
    """Every arm against those named after it with one of CONTROLS, at every moment."""
    accuracies = {}
    for place in by_seed[0]:
        row, _, state = place.partition(" | ")
        for control in CONTROLS:
            other = f"{row}{control} | {state}"
            if other in by_seed[0]:
                accuracies[f"{row} over its{control}, {state}"] = Comparison.of(by_seed, place, other)
    return accuracies


def show(by_seed: Sequence[Accuracies]) -> None:
    """Mean accuracies and paired differences, in points."""
    table = Table("comparison", "accuracy, %", "control, %", "gain", "seeds won", "one-sided p")
    for name, pair in with_controls(by_seed).items():
        means = (100 * statistics.fmean(seed[place] for seed in by_seed) for place in (pair.first, pair.second))
        table.add_row(name, *(f"{mean:.1f}" for mean in means), *pair.cells)
    dense = plus_minus([100 * seed["dense"] for seed in by_seed])
    table.caption = f"dense: {dense} ({len(by_seed)} seeds, 95 % intervals)"
    Console(width=140).print(table)


def arguments(description: str | None, recipe: str) -> argparse.ArgumentParser:
    """The options of a study over seeds."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--recipe", default=recipe)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--out", type=Path)
    return parser


def compare(
    description: str | None,
    module: ModuleSpec | None,
    one_seed: Callable[[str, int], Accuracies],
    more: Callable[[Sequence[Accuracies]], dict[str, Any]] = lambda by_seed: {},
) -> None:
    """The main function of a study: `one_seed(recipe, seed)` for each seed, then `show`, and the result as a file.

    more: further facts for the result, which are printed too.
    """
    args = arguments(description, "digits-channels").parse_args()
    by_seed = [one_seed(args.recipe, seed) for seed in track(range(args.seeds), "seeds")]
    facts = more(by_seed)
    show(by_seed)
    for name, value in facts.items():
        Console().print(f"{name}: {value:.2f}")
    if args.out:
        result = {"accuracy by seed": by_seed, "gains in points": gains(with_controls(by_seed))}
        write(args.out, module, args, {**result, **facts})
