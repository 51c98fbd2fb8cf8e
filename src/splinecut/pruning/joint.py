"""Our joint ranking: how much of what the next layer receives is lost when a unit leaves and the rest is refitted.

Let x be what a group's units send to a layer with weights W (one block w_i of outgoing weights for each unit), and G
the covariance of x. If unit i leaves, the best the others can do for it is the regression x_i ~ sum_k c_k x_k, and the
layer's input is off by |w_i|^2 times what that regression leaves unexplained:

    error_i = |w_i|^2 / H_ii,     H = G^-1,     c = -H_i. / H_ii

This is the closed form of least-squares refitting, and of Optimal Brain Surgeon (Hassibi & Stork 1993) for a group of
weights. As units leave, H loses a row and a column (a Schur complement) and W takes over what was handed on, so that
the next error is again exact. Divided by the variance of all that the layer receives, errors of layers of any fan-in
mean the same thing, which cosines of weight vectors do not.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float
from torch import nn

from splinecut.networks.units import UnitGroup
from splinecut.pruning.evidence import Evidence, Moments, Reader, moments, readers

RIDGE = 1e-4  # of the mean variance: units that the probe never moves still need an inverse
BLOCK = 64  # a group is emptied in about so many rounds, or one unit a round if it is smaller


@dataclass
class _Elimination:
    """One reader of a group while its units leave: H, the inverse covariance, and B = W^T W, the outgoing products."""

    inverse: Float[np.ndarray, "units units"]
    outgoing: Float[np.ndarray, "units units"]
    received: float

    @classmethod
    def of(cls, model: nn.Module, reader: Reader, seen: Moments) -> _Elimination:
        covariance = seen.covariance.numpy()
        weight = reader.weight(model).flatten(1).cpu().numpy()
        outgoing = weight @ weight.T
        received = float((outgoing * covariance).sum())
        ridge = RIDGE * max(float(covariance.diagonal().mean()), np.finfo(float).tiny)
        inverse = np.linalg.inv(covariance + ridge * np.eye(len(covariance)))
        return cls(inverse, outgoing, max(received, np.finfo(float).tiny))

    def errors(self) -> Float[np.ndarray, " units"]:
        """What each unit's leaving would cost now, as a share of what the layer receives."""
        return self.outgoing.diagonal() / self.inverse.diagonal() / self.received

    def remove(self, gone: np.ndarray, stay: np.ndarray) -> None:
        """Takes the units `gone` out; the ones that `stay` take over their outgoing weights."""
        inverse, outgoing = self.inverse, self.outgoing
        handed = -np.linalg.solve(inverse[np.ix_(gone, gone)], inverse[np.ix_(gone, stay)])
        cross = handed.T @ outgoing[np.ix_(gone, stay)]
        self.inverse = inverse[np.ix_(stay, stay)] + inverse[np.ix_(stay, gone)] @ handed
        within = handed.T @ outgoing[np.ix_(gone, gone)] @ handed
        self.outgoing = outgoing[np.ix_(stay, stay)] + cross + cross.T + within


def leaving_errors(evidence: Evidence) -> dict[str, Float[np.ndarray, " units"]]:
    """For every unit, the relative error its leaving adds when it is its turn in the greedy order of its group.

    Errors of a group never fall along its order: a unit cannot be cheaper to remove than one that must go before it.
    The last unit of a group, without which the next layer receives nothing, has error 1 at least. A group that no
    refittable layer reads gets infinite errors: nothing is known about it, so it goes last.
    """
    model = evidence.model
    read = {group.name: readers(model, group) for group in evidence.groups}
    seen = moments(evidence, [reader for found in read.values() for reader in found])
    return {
        group.name: _in_turn(group, [_Elimination.of(model, reader, seen[reader.place]) for reader in read[group.name]])
        for group in evidence.groups
    }


def _in_turn(group: UnitGroup, eliminations: list[_Elimination]) -> Float[np.ndarray, " units"]:
    result = np.full(group.size, np.inf)
    if not eliminations:
        return result
    alive, so_far = np.arange(group.size), 0.0
    per_round = max(1, group.size // BLOCK)
    while len(alive) > 1:
        errors = np.sum([one.errors() for one in eliminations], axis=0)
        # Of equal errors the higher index leaves first, as everywhere.
        order = np.lexsort((-alive, errors))[: min(per_round, len(alive) - 1)]
        for place in order:
            so_far = max(so_far, float(errors[place]))
            result[alive[place]] = so_far
        stay = np.setdiff1d(np.arange(len(alive)), order)
        for one in eliminations:
            one.remove(order, stay)
        alive = alive[stay]
    result[alive[0]] = max(so_far, 1.0)
    return result


def finite(scores: dict[str, Float[np.ndarray, " units"]]) -> dict[str, Float[np.ndarray, " units"]]:
    """Infinite scores replaced by one above the largest finite one: selection and records want numbers."""
    known = [values[np.isfinite(values)] for values in scores.values()]
    top = max((float(values.max()) for values in known if values.size), default=0.0)
    return {name: np.where(np.isfinite(values), values, 2 * top + 1) for name, values in scores.items()}
