"""The measured cost of candidates: how far the outputs move when one group is cut and its readers are refitted.

The network is run up to the group's first reader once, and from there on for every candidate: all that comes before is
the same. Costs are measured on held-out inputs.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from splinecut.files import write_json
from splinecut.networks.inputs import Arguments
from splinecut.networks.program import Program, Values, Weights
from splinecut.progress_bar import Report
from splinecut.pruning.output_error.divergence import Divergence

Store = Callable[[str, Callable[[], list[float]]], list[float]]
"""(key, compute) -> the result stored under `key`, or else computed and stored: an interrupted search resumes."""


def compute_always(key: str, compute: Callable[[], list[float]]) -> list[float]:
    """The store that keeps nothing."""
    return compute()


def store_in(path: Path) -> Store:
    """A store that keeps every result in a JSON file, written atomically after each."""

    def get_or_compute(key: str, compute: Callable[[], list[float]]) -> list[float]:
        known = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}
        if key not in known:
            path.parent.mkdir(parents=True, exist_ok=True)
            known[key] = compute()
            write_json(path, known)
        return known[key]

    return get_or_compute


@dataclass(frozen=True, eq=False)
class Candidate:
    """One group with only `n_kept` units left: the first step that changes, and the weights that do."""

    group: str
    n_kept: int
    start: int
    weights: Mapping[str, Tensor]


@torch.no_grad()
def measured_costs(
    program: Program,
    arguments: Arguments,
    base: Weights,
    candidates: Sequence[Candidate],
    distance: Divergence,
    store: Store = compute_always,
    report: Report = lambda share, what="": None,
) -> tuple[np.ndarray, float]:
    """(the mean divergence from the dense outputs of each candidate, that of the network with the weights `base`)."""
    ordered = sorted(range(len(candidates)), key=lambda i: candidates[i].start)
    totals, n_inputs = np.zeros(len(candidates) + 1), 0
    chunks = list(program.chunks(arguments))
    for number, (n_rows, values) in enumerate(chunks):

        def measure(number: int = number, n_rows: int = n_rows, values: Values = values) -> list[float]:
            dense = program.outputs(dict(values), 0, program.weights)
            sums, at = [0.0] * (len(candidates) + 1), 0
            for done, i in enumerate(ordered):
                one = candidates[i]
                report((number + done / len(ordered)) / len(chunks), f"{one.group}, {one.n_kept} units")
                program.run(values, at, one.start, base)
                at = one.start
                cut = program.outputs(dict(values), at, {**base, **one.weights})
                sums[i] = _total(distance, dense, cut, n_rows)
            sums[-1] = _total(distance, dense, program.outputs(values, at, base), n_rows)
            return sums

        totals += store(f"chunk {number}", measure)
        n_inputs += n_rows
    means = totals / max(1, n_inputs)
    return means[:-1], float(means[-1])


def _total(distance: Divergence, dense: Tensor, cut: Tensor, n_rows: int) -> float:
    """The sum over the inputs that count; enormous where an output is not finite."""
    value = float(distance(dense[:n_rows], cut[:n_rows]).sum())
    # A finite number, since it is stored as JSON: nothing costs more.
    return value if np.isfinite(value) else np.finfo(np.float32).max.item()
