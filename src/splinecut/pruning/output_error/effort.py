"""What an effort stands for: how much is measured, and what the search costs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

from splinecut.pruning.evidence import Evidence
from splinecut.pruning.output_error.allocation import levels
from splinecut.pruning.refit.propagation import COLUMNS, POSITIONS
from splinecut.pruning.refit.ridge import ridges_for

Effort = Literal["fast", "balanced", "thorough"]


@dataclass(frozen=True)
class Settings:
    """What an effort stands for.

    n_levels: numbers of units at which each group is measured; n_inputs: held-out inputs it is measured on, at most.
    n_rounds: cuts that lead to the budget, each measured on the network as cut so far.
    is_checked: whether the whole cut is refitted and measured before it is returned.
    is_swapped: whether a second cut, in which kept and removed units are swapped, is measured beside it.
    """

    n_levels: int
    n_inputs: int
    n_rounds: int
    is_checked: bool = True
    is_swapped: bool = False

    @property
    def n_checks(self) -> int:
        """Whole cuts that are refitted and measured."""
        return self.is_checked + self.is_swapped

    def forward_passes(self, n_groups: int, n_probe: int) -> float:
        """The search in forward passes of the whole probe: a group's candidates run half of the network on average."""
        measured = self.n_levels * n_groups * 0.5 * min(self.n_inputs, max(1, n_probe // 4)) / max(1, n_probe)
        # One observation; between rounds and at the end both networks run side by side.
        return 1 + self.n_rounds * measured + 2 * (self.n_rounds - 1 + self.n_checks)


EFFORTS: dict[str, Settings] = {
    "fast": Settings(3, 96, 1, is_checked=False),
    "balanced": Settings(5, 384, 1),
    "thorough": Settings(6, 512, 3, is_swapped=True),
}


def output_flops(evidence: Evidence, effort: Effort, forward_flops: int, keep: float = 0.5) -> int:
    """About what `output_scores` executes to keep a share `keep`, a product and a sum counted as two.

    Passes of the probe; second moments of what each reading layer receives; the elimination of its units; and one fit
    for each level, and for the check of the whole cut.
    """
    settings, n_inputs = EFFORTS[effort], evidence.n_inputs
    total = settings.forward_passes(len(evidence.groups), n_inputs) * n_inputs * forward_flops
    shares = [
        *settings.n_rounds * levels(keep, settings.n_levels),
        *(settings.is_checked + settings.is_swapped) * [keep],
    ]
    for group in evidence.groups:
        for member in group.role("consumer"):
            shape = evidence.groups.parameter_shapes.get(member.key, ())
            columns = min(COLUMNS, int(np.prod(shape[1:], dtype=int))) if len(shape) > 1 else 0
            outputs = shape[0] if shape else 0
            rows = n_inputs * min(POSITIONS, evidence.groups.uses.get(member.key, 1))
            total += (
                (settings.n_rounds + settings.is_checked + settings.is_swapped)
                * 2
                * rows
                * columns
                * (columns + outputs)
            )
            # The inverse is columns^3 and the updates that shrink it unit by unit 2/3 of that.
            total += settings.n_rounds * (5 / 3 * columns**3 + 2 * columns**2 * outputs)
            total += sum(_fit_flops(round(share * columns), outputs) for share in shares)
    return int(total)


def _fit_flops(columns: int, outputs: int) -> float:
    """A Cholesky factorisation and its solutions for every ridge that is tried."""
    return len(ridges_for(columns)) * (columns**3 / 3 + 2 * columns**2 * outputs)
