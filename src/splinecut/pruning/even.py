"""The same share of every group: for methods whose scores mean nothing across layers."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from jaxtyping import Float

from splinecut.networks.groups.values import Groups
from splinecut.pruning.budget import Budget, Keep, select


def select_evenly(scores: Mapping[str, Float[np.ndarray, " units"]], budget: Budget, groups: Groups) -> Keep:
    """The best units of every group, as many as the budget allows when all groups lose the same share.

    Scores are replaced by ranks: the r-th worst of n units gets (r - 1/2) / n. So the budget is met as exactly as by
    any other scores, counts do not depend on them, and rounds that cut one group each agree on the counts of all.
    """
    return select({name: _ranks(np.asarray(values)) for name, values in scores.items()}, budget, groups)


def even_keep(groups: Groups, budget: Budget) -> Keep:
    """A keep map with the counts that `select_evenly` gives, whatever the scores; the first units stay."""
    return select_evenly({group.name: np.zeros(group.size) for group in groups}, budget, groups)


def _ranks(scores: Float[np.ndarray, " units"]) -> Float[np.ndarray, " units"]:
    n = len(scores)
    ranks = np.empty(n)
    ranks[np.argsort(-scores, kind="stable")] = (n - np.arange(n) - 0.5) / n
    return ranks
