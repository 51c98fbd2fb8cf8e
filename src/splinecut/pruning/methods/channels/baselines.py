"""Channel scores that need nothing but the weights, to compare with: random, L2."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch
from jaxtyping import Float
from torch import nn

from splinecut.networks.groups.values import UnitGroup
from splinecut.pruning.budget import Budget
from splinecut.pruning.evidence import Evidence, selector_scale
from splinecut.pruning.method import Method, Scores


@dataclass(frozen=True)
class Random(Method):
    """A score drawn at random: what a criterion must beat."""

    reference: ClassVar[str] = "control"
    is_random: ClassVar[bool] = True

    def score(self, evidence: Evidence, budget: Budget) -> Scores:
        generator = np.random.default_rng(evidence.seed)
        return {group.name: generator.random(group.size) for group in evidence.groups}

    def flops(self, evidence: Evidence, forward_flops: int) -> int:
        """Drawing numbers is free."""
        return 0


@dataclass(frozen=True)
class L2(Method):
    """The length of each unit's own filter, batch norm left out; over all layers that make it. Selectors: BN scale."""

    reference: ClassVar[str] = "Li et al. 2017, with the L2 norm"

    def score(self, evidence: Evidence, budget: Budget) -> Scores:
        return {group.name: self.of_group(evidence.model, group) for group in evidence.groups}

    def flops(self, evidence: Evidence, forward_flops: int) -> int:
        """A multiplication and an addition for every weight."""
        return 2 * evidence.groups.parameters()

    def of_group(self, model: nn.Module, group: UnitGroup) -> Float[np.ndarray, " units"]:
        if group.kind == "selector":
            return selector_scale(model, group)
        squares = np.zeros(group.size)
        for producer in group.producers:
            assert producer.weight is not None
            weight = model.get_parameter(producer.weight).detach().double().movedim(producer.axis, 0).flatten(1)
            add_rows(squares, group.rows(producer), weight.square().sum(1))
        return np.sqrt(squares)


def add_rows(total: np.ndarray, rows: np.ndarray, values: torch.Tensor) -> None:
    """Adds each row's value to the unit it belongs to."""
    np.add.at(total, rows[rows >= 0], values.cpu().numpy()[rows >= 0])
