"""Channel scores that need nothing but the weights, to compare with: random, L2."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from splinecut.pruning.budget import Budget
from splinecut.pruning.evidence import Evidence
from splinecut.pruning.method import Method, Scores
from splinecut.pruning.unit_parameters import filter_norm


@dataclass(frozen=True)
class Random(Method):
    """A score drawn at random: what a criterion must beat."""

    reference: ClassVar[str] = "control"
    is_random: ClassVar[bool] = True

    def score(self, evidence: Evidence, budget: Budget) -> Scores:
        generator = np.random.default_rng(evidence.seed)
        return {group.name: generator.random(group.size) for group in evidence.groups}


@dataclass(frozen=True)
class L2(Method):
    """The length of each unit's own filter, batch norm left out; over all layers that make it. Selectors: BN scale."""

    reference: ClassVar[str] = "Li et al. 2017, with the L2 norm"

    def score(self, evidence: Evidence, budget: Budget) -> Scores:
        return {group.name: filter_norm(evidence.model, group) for group in evidence.groups}

    def flops(self, evidence: Evidence, forward_flops: int) -> int:
        """A multiplication and an addition for every weight."""
        return 2 * evidence.groups.parameters()
