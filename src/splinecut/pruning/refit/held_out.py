"""What removing units costs on inputs that were not used to choose them.

The probe is split by sample. Which units leave, and how the others stand in for them, follows from the fitting part;
the error of that is measured on the held-out part. Errors on the fitting part say nothing where it has fewer rows than
a layer has units, behind a global pooling for instance: 256 photographs explain 1,280 channels exactly, whichever of
them stay.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float, Int64
from torch import nn

from splinecut.networks.inputs import count, split
from splinecut.pruning.activations import ConsumerLayer, Place, RunningCovariance, running_covariances
from splinecut.pruning.evidence import Evidence
from splinecut.pruning.refit.probe_warning import listed, warn_about_probe
from splinecut.pruning.refit.symmetric import solve

LEVELS = 24  # numbers of units left at which the held-out error is measured; in between it is interpolated
RIDGE = 1e-2  # of the mean variance; decides where rows are few, and is not noticed where they are many


@dataclass(frozen=True, eq=False)
class ConsumerStatistics:
    """Second moments of the input of one consumer layer, divided by its mean variance on the fitting part.

    fit:      (units, units) covariance G on the part that choices are made on.
    held:     (units, units) second moments about the same means on the held-out part; `fit` where there is none.
    outgoing: (units, units) B = W^T W, the products of the units' outgoing weights.
    received: the variance of all that the layer receives, sum of B * G, the larger of both parts; positive.
    """

    fit: Float[np.ndarray, "units units"]
    held: Float[np.ndarray, "units units"]
    outgoing: Float[np.ndarray, "units units"]
    received: float

    @classmethod
    def of(
        cls, weight: Float[np.ndarray, "units weights"], fit: RunningCovariance, held: RunningCovariance | None
    ) -> ConsumerStatistics:
        scale = float(fit.covariance.diagonal().mean())
        if scale < np.finfo(float).tiny / np.finfo(float).eps:  # nothing moves: any subset is as good as any other
            return cls(np.zeros_like(fit.covariance), np.zeros_like(fit.covariance), weight @ weight.T, 1.0)
        covariance, outgoing = fit.covariance / scale, weight @ weight.T
        # About the fitting part's means: a refit has no others, so a shift between the parts is an error of it.
        shift = np.zeros(len(weight)) if held is None else held.mean - fit.mean
        second = covariance if held is None else (held.covariance + np.outer(shift, shift)) / scale
        # The larger of both: a held-out part that hardly moves would make any error look enormous.
        received = max(float((outgoing * covariance).sum()), float((outgoing * second).sum()))
        return cls(covariance, second, outgoing, max(received, np.finfo(float).tiny))

    def held_out_error(self, kept: Bool[np.ndarray, " units"]) -> float:
        """The share of the layer's input that is lost on the held-out part if only the `kept` units stay.

        Removed units are predicted from the kept ones, x_r ~ C x_k with C = G_rk (G_kk + ridge)^-1 from the fitting
        part; kept ones stand for themselves. The error is sum of B_rr * E[(x_r - C x_k)(x_r - C x_k)^T].
        """
        gone = ~kept
        coefficients = solve(self.fit[np.ix_(kept, kept)], self.fit[np.ix_(kept, gone)], RIDGE).T
        cross = coefficients @ self.held[np.ix_(kept, gone)]
        # E[(x_r - C x_k)(x_r - C x_k)^T] = H_rr - C H_kr - (C H_kr)^T + C H_kk C^T: no row of activations is kept.
        residual = self.held[np.ix_(gone, gone)] - cross - cross.T
        residual = residual + coefficients @ self.held[np.ix_(kept, kept)] @ coefficients.T
        return max(0.0, float((self.outgoing[np.ix_(gone, gone)] * residual).sum())) / self.received


def consumer_statistics(evidence: Evidence, consumers: Sequence[ConsumerLayer]) -> dict[Place, ConsumerStatistics]:
    """The input statistics of each consumer layer on both parts of the probe; warns where there are too few rows.

    A layer that does not run on the probe, or whose fused kernel does not show its input, is left out.
    """
    parts = split(evidence.arguments)
    fit, rows = running_covariances(evidence.model, evidence.arguments if parts is None else parts[0], consumers)
    consumers = [consumer for consumer in consumers if rows[consumer.place]]
    held = running_covariances(evidence.model, parts[1], consumers)[0] if parts is not None else {}
    _warn_of_few_rows(consumers, rows, evidence.n_inputs, count(parts[0]) if parts else 1)
    return {
        consumer.place: ConsumerStatistics.of(
            _weight(evidence.model, consumer), fit[consumer.place], held.get(consumer.place)
        )
        for consumer in consumers
    }


def _weight(model: nn.Module, consumer: ConsumerLayer) -> Float[np.ndarray, "units weights"]:
    return consumer.weight(model).flatten(1).cpu().numpy()


def _warn_of_few_rows(
    consumers: Sequence[ConsumerLayer], rows: Mapping[Place, int], n_inputs: int, n_fitted: int
) -> None:
    """Warns of layers with fewer rows than units on the fitting part, and says how many inputs would do."""
    few = [consumer for consumer in consumers if rows[consumer.place] < len(consumer.columns)]
    if few:
        needed = max(-(-len(consumer.columns) * n_inputs // max(1, rows[consumer.place])) for consumer in few)
        modules = list(dict.fromkeys(consumer.module for consumer in few))
        warn_about_probe(
            f"a probe of {n_inputs} inputs has fewer rows than units at {listed(modules)}: what can leave there is a "
            f"guess; {needed} inputs or more would do"
        )
    elif n_fitted == n_inputs:
        warn_about_probe("a probe of one input leaves none to measure errors on; give a few hundred training inputs")


def removal_costs(
    statistics: Sequence[ConsumerStatistics], order: Int64[np.ndarray, " units"]
) -> Float[np.ndarray, " units"]:
    """What each unit's removal adds to the held-out error, summed over consumers, when units leave in this order.

    The error is measured at LEVELS numbers of units left and replaced by its greatest convex minorant that never
    falls; the slopes of that are the costs. So a unit never costs less than one that leaves before it, and the best
    units by score are those that leave last. The last unit, without which the layers receive nothing, costs 1 at least.
    """
    size = len(order)
    n_gone = np.unique(np.linspace(0, size - 1, min(LEVELS, size - 1) + 1).round().astype(int))
    measured = np.zeros(len(n_gone))
    for level, n in enumerate(n_gone[1:], 1):
        kept = np.ones(size, bool)
        kept[order[:n]] = False
        measured[level] = sum(each.held_out_error(kept) for each in statistics)
    slopes = convex_slopes(n_gone, np.maximum.accumulate(measured))
    costs = np.empty(size)
    # The order itself breaks ties; 1e-12 of what is received is nothing.
    costs[order[:-1]] = np.interp(np.arange(size - 1) + 0.5, *slopes) + 1e-12 * np.arange(size - 1)
    costs[order[-1]] = max(1.0, float(costs.max(initial=0.0, where=np.arange(size) != order[-1])))
    return costs


def convex_slopes(
    x: Int64[np.ndarray, " levels"], y: Float[np.ndarray, " levels"]
) -> tuple[Float[np.ndarray, " pieces"], Float[np.ndarray, " pieces"]]:
    """Middles and slopes of the pieces of the greatest convex function below these points (Andrew's monotone chain)."""
    hull: list[int] = []
    for point in range(len(x)):
        while len(hull) > 1:
            a, b = hull[-2:]
            # Slopes compared by cross-multiplication: x grows, so no sign changes and nothing is divided by.
            if (y[b] - y[a]) * (x[point] - x[b]) <= (y[point] - y[b]) * (x[b] - x[a]):
                break
            hull.pop()
        hull.append(point)
    if len(hull) < 2:
        return np.zeros(1), np.zeros(1)
    at, height = x[hull].astype(float), y[hull]
    return (at[1:] + at[:-1]) / 2, np.diff(height) / np.diff(at)
