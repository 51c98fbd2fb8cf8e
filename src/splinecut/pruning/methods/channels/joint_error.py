"""The joint error: how much of the next layer's input is lost when a unit leaves and the others are refitted.

Let x be what a group's units send to a layer with weights W (one block w_i of outgoing weights for each unit), and G
the covariance of x. If unit i leaves, the best the others can do for it is the regression x_i ~ sum_k c_k x_k, and the
layer's input is off by |w_i|^2 times what that regression leaves unexplained:

    error_i = |w_i|^2 / H_ii,     H = G^-1,     c = -H_i. / H_ii

This is the closed form of least-squares refitting, and of Optimal Brain Surgeon (Hassibi & Stork 1993) for a group of
weights. As units leave, H loses a row and a column (a Schur complement) and W takes over the weights of the removed
units, so that the next error is again exact. Divided by the variance of all that the layer receives, errors of layers
of any fan-in mean the same thing, which cosines of weight vectors do not.

These errors are of the inputs that G was taken from, and too small where G has few rows. So they decide only the order
in which units of a group leave; what it costs is measured on held-out inputs (`pruning.refit.held_out`).
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Int64
from threadpoolctl import threadpool_limits

from splinecut.networks.groups.values import UnitGroup
from splinecut.pruning.activations import consumer_layers
from splinecut.pruning.evidence import Evidence
from splinecut.pruning.refit.held_out import ConsumerStatistics, consumer_statistics, removal_costs
from splinecut.pruning.refit.symmetric import inverse, solve

RIDGE = 1e-4  # of the mean variance: units that the probe never moves still need an inverse
BLOCK = 64  # a group is emptied in about so many rounds, or one unit a round if it is smaller


@dataclass
class _Elimination:
    """One consumer of a group while units leave: H, the inverse covariance, and B = W^T W, the outgoing products.

    Removing the units g with c = -H_gg^-1 H_g. adds H_g.^T c to H and c^T y + y^T c to B, y = B_g. + B_gg c / 2.
    Choosing needs only the diagonals of both, and a row when its unit leaves. So H and B stay as they are, beside the
    factors of what is to be added, and are brought up to date each time half of the units have left: O(units^3) in
    all, in few large products instead of two rank-one updates of whole matrices a removal.
    """

    inverse: Float[np.ndarray, "units units"]
    outgoing: Float[np.ndarray, "units units"]
    received: float

    def __post_init__(self) -> None:
        self.inverse_now, self.outgoing_now = self.inverse.diagonal().copy(), self.outgoing.diagonal().copy()
        self.alive, self.n_gone = np.arange(len(self.inverse)), 0
        self._factors = [np.empty_like(self.inverse) for _ in range(3)]

    @classmethod
    def of(cls, statistics: ConsumerStatistics) -> _Elimination:
        ridged = statistics.fit + RIDGE * np.eye(len(statistics.fit))
        return cls(inverse(ridged), statistics.outgoing, statistics.received)

    def errors(self) -> Float[np.ndarray, " alive"]:
        """The error of removing each unit now, as a share of what the layer receives."""
        return self.outgoing_now[self.alive] / self.inverse_now[self.alive] / self.received

    def remove(self, places: Int64[np.ndarray, " gone"]) -> None:
        """Removes the units at these places among those alive; the others take over their outgoing weights."""
        gone = self.alive[places]
        rows, outgoing = self._rows(gone, slice(None))
        # All removed units at once, not one after the other: H_gg couples them, and their weights go to the rest only.
        coefficients = -solve(rows[:, gone], rows)
        shared = outgoing + 0.5 * outgoing[:, gone] @ coefficients  # y: half of the quadratic term on either side
        self.inverse_now += (rows * coefficients).sum(0)
        self.outgoing_now += 2 * (coefficients * shared).sum(0)
        for factor, new in zip(self._factors, (rows, coefficients, shared), strict=True):
            factor[self.n_gone : self.n_gone + len(gone)] = new
        self.alive, self.n_gone = np.delete(self.alive, places), self.n_gone + len(gone)
        if 2 * len(self.alive) <= len(self.inverse):  # halving: the factors never hold more than H itself
            self.inverse, self.outgoing = self._rows(self.alive, self.alive)
            self.__post_init__()

    def _rows(self, units: Int64[np.ndarray, " some"], columns: Any) -> tuple[np.ndarray, np.ndarray]:
        """Rows of H and B as they are now."""
        rows, coefficients, shared = (factor[: self.n_gone] for factor in self._factors)
        current = self.inverse[units][:, columns] + rows[:, units].T @ coefficients[:, columns]
        outgoing = self.outgoing[units][:, columns] + coefficients[:, units].T @ shared[:, columns]
        return current, outgoing + shared[:, units].T @ coefficients[:, columns]


def removal_errors(evidence: Evidence) -> dict[str, Float[np.ndarray, " units"]]:
    """For every unit, the relative error on held-out inputs that its removal adds when it is its turn in its group.

    Errors of a group never fall along its order: a unit cannot be cheaper to remove than one that must go before it.
    The last unit of a group, without which the next layer receives nothing, has error 1 at least. A group that no
    refittable layer reads, on the probe at least, gets infinite errors: nothing is known about it, so it goes last.
    """
    consumers = {group.name: consumer_layers(evidence.model, group) for group in evidence.groups}
    statistics = consumer_statistics(evidence, [layer for layers in consumers.values() for layer in layers])

    def errors(group: UnitGroup) -> Float[np.ndarray, " units"]:
        own = [statistics[layer.place] for layer in consumers[group.name] if layer.place in statistics]
        return removal_costs(own, removal_order(own)) if own else np.full(group.size, np.inf)

    # Thousands of small products: threads of BLAS would wait longer than they work, so that groups share the cores.
    by_work = sorted(evidence.groups, key=lambda group: -(group.size**3) * len(consumers[group.name]))
    with threadpool_limits(1, user_api="blas"), ThreadPoolExecutor(torch.get_num_threads()) as pool:
        result = dict(zip((group.name for group in by_work), pool.map(errors, by_work), strict=True))
    return {group.name: result[group.name] for group in evidence.groups}


def removal_order(statistics: Sequence[ConsumerStatistics]) -> Int64[np.ndarray, " units"]:
    """A group's units, the first to leave first: greedily those whose removal costs its consumers least just then."""
    eliminations = [_Elimination.of(each) for each in statistics]
    alive, order = np.arange(len(statistics[0].fit)), []
    per_round = max(1, len(alive) // BLOCK)
    while len(alive) > 1:
        errors = np.sum([elimination.errors() for elimination in eliminations], axis=0)
        # Of equal errors the higher index leaves first, as everywhere.
        places = np.lexsort((-alive, errors))[: min(per_round, len(alive) - 1)]
        order.append(alive[places])
        for elimination in eliminations:
            elimination.remove(places)
        alive = np.delete(alive, places)
    return np.concatenate([*order, alive])


def finite(scores: dict[str, Float[np.ndarray, " units"]]) -> dict[str, Float[np.ndarray, " units"]]:
    """Infinite scores replaced by one above the largest finite one: selection and records want numbers."""
    numbers = [values[np.isfinite(values)] for values in scores.values()]
    top = max((float(values.max()) for values in numbers if values.size), default=0.0)
    return {name: np.where(np.isfinite(values), values, 2 * top + 1) for name, values in scores.items()}
