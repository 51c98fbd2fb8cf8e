"""What removing units costs on inputs that were not used to choose them.

The probe is split by sample. Which units leave, and how the others stand in for them, follows from one part; the error
of that is measured on the other. Errors on the part itself say nothing where it has fewer rows than a layer has units,
behind a global pooling for instance: 256 photographs explain 1,280 channels exactly, whichever of them stay.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from jaxtyping import Bool, Float, Int64
from scipy.linalg import lapack
from torch import nn

from splinecut.errors import ProbeWarning
from splinecut.networks.inputs import count, split
from splinecut.pruning.evidence import Evidence, Reader, RunningCovariance, moments

LEVELS = 24  # numbers of units left at which the held-out error is measured; in between it is interpolated
RIDGE = 1e-2  # of the mean variance; decides where rows are few, and is not noticed where they are many


@dataclass(frozen=True, eq=False)
class Sent:
    """What a group's units send to one reader, in units of its mean variance on the fitting part.

    fit:      (units, units) covariance on the part that choices are made on.
    held:     (units, units) second moments about the same means on the other part; `fit` where there is no other.
    outgoing: (units, units) B = W^T W, the products of the units' outgoing weights.
    received: the variance of all that the reader receives, sum of B * G, the larger of both parts; positive.
    """

    fit: Float[np.ndarray, "units units"]
    held: Float[np.ndarray, "units units"]
    outgoing: Float[np.ndarray, "units units"]
    received: float

    @classmethod
    def of(
        cls, weight: Float[np.ndarray, "units weights"], fit: RunningCovariance, held: RunningCovariance | None
    ) -> Sent:
        scale = float(fit.covariance.diagonal().mean())
        if scale < np.finfo(float).tiny / np.finfo(float).eps:  # nothing moves: any subset is as good as any other
            return cls(np.zeros_like(fit.covariance), np.zeros_like(fit.covariance), weight @ weight.T, 1.0)
        covariance, outgoing = fit.covariance / scale, weight @ weight.T
        shift = np.zeros(len(weight)) if held is None else held.mean - fit.mean
        seen = covariance if held is None else (held.covariance + np.outer(shift, shift)) / scale
        received = max(float((outgoing * covariance).sum()), float((outgoing * seen).sum()))
        return cls(covariance, seen, outgoing, max(received, np.finfo(float).tiny))

    def error(self, kept: Bool[np.ndarray, " units"]) -> float:
        """The share of what the reader receives that is lost on the held-out part if only these units stay.

        Units that left are predicted from the kept ones, x_r ~ C x_k with C = G_rk (G_kk + ridge)^-1 from the fitting
        part; kept ones stand for themselves. The error is sum of B_rr * E[(x_r - C x_k)(x_r - C x_k)^T].
        """
        gone = ~kept
        made_of = solved(self.fit[np.ix_(kept, kept)], self.fit[np.ix_(kept, gone)], RIDGE).T
        crossed = made_of @ self.held[np.ix_(kept, gone)]
        left = self.held[np.ix_(gone, gone)] - crossed - crossed.T + made_of @ self.held[np.ix_(kept, kept)] @ made_of.T
        return max(0.0, float((self.outgoing[np.ix_(gone, gone)] * left).sum())) / self.received


def solved(
    matrix: Float[np.ndarray, "n n"], right: Float[np.ndarray, "n m"], ridge: float = 0.0
) -> Float[np.ndarray, "n m"]:
    """(matrix + ridge)^-1 right for a symmetric, positive semidefinite matrix; least squares where it is singular."""
    ridged = matrix + ridge * np.eye(len(matrix))
    _, result, failed = lapack.dposv(ridged, right, lower=1)
    if not failed and np.isfinite(result).all():
        return result
    return pseudo_inverse(ridged) @ right


def pseudo_inverse(matrix: Float[np.ndarray, "n n"]) -> Float[np.ndarray, "n n"]:
    """The inverse of a symmetric matrix on the directions in which it is positive beyond rounding, zero on others."""
    values, vectors = np.linalg.eigh((matrix + matrix.T) / 2)
    least = max(len(matrix) * np.finfo(float).eps * float(values[-1]), np.finfo(float).tiny)
    inverse = np.where(values > least, 1 / np.maximum(values, least), 0.0)
    return (vectors * inverse) @ vectors.T


def what_is_sent(evidence: Evidence, wanted: Sequence[Reader]) -> dict[tuple[str, str], Sent]:
    """What each reader is sent on both parts of the probe, by its place; warns where there are too few rows.

    A reader that does not run on the probe, or whose fused kernel does not show what it is sent, is left out.
    """
    parts = split(evidence.arguments)
    fit, rows = moments(evidence.model, evidence.arguments if parts is None else parts[0], wanted)
    wanted = [reader for reader in wanted if rows[reader.place]]
    held = moments(evidence.model, parts[1], wanted)[0] if parts is not None else {}
    _warn(wanted, rows, evidence.n_inputs, count(parts[0]) if parts else 1)
    return {
        reader.place: Sent.of(_weight(evidence.model, reader), fit[reader.place], held.get(reader.place))
        for reader in wanted
    }


def _weight(model: nn.Module, reader: Reader) -> Float[np.ndarray, "units weights"]:
    return reader.weight(model).flatten(1).cpu().numpy()


def _warn(wanted: Sequence[Reader], rows: Mapping[tuple[str, str], int], n_inputs: int, n_fitted: int) -> None:
    """Warns of readers with fewer rows than units on the fitting part, and says how many inputs would do."""
    few = [reader for reader in wanted if rows[reader.place] < len(reader.columns)]
    if few:
        needed = max(-(-len(r.columns) * n_inputs // max(1, rows[r.place])) for r in few)
        named = list(dict.fromkeys(reader.module for reader in few))
        say(
            f"a probe of {n_inputs} inputs has fewer rows than units at {listed(named)}: what can leave there is a "
            f"guess; {needed} inputs or more would do"
        )
    elif n_fitted == n_inputs:
        say("a probe of one input leaves none to measure errors on; give a few hundred training inputs")


def say(message: str) -> None:
    """A ProbeWarning at the line outside splinecut that asked for what is warned of."""
    ours = str(Path(__file__).parents[2])
    frame, depth, outermost = sys._getframe(), 1, 1
    while frame.f_back is not None:
        outermost = depth if frame.f_code.co_filename.startswith(ours) else outermost
        frame, depth = frame.f_back, depth + 1
    warnings.warn(message, ProbeWarning, stacklevel=outermost + 1)


def listed(names: Sequence[str], most: int = 5) -> str:
    """The first few names, and how many more there are."""
    shown = ", ".join(names[:most])
    return shown if len(names) <= most else f"{shown} and {len(names) - most} more layers"


def in_turn(sent: Sequence[Sent], order: Int64[np.ndarray, " units"]) -> Float[np.ndarray, " units"]:
    """What each unit's leaving adds to the held-out error, summed over readers, when units leave in this order.

    The error is measured at LEVELS numbers of units left. Its greatest convex function from below that never falls is
    what is added up again: so errors never fall along the order, and a unit cannot be cheaper than one before it. The
    last unit, without which the readers receive nothing, adds 1 at least.
    """
    size = len(order)
    n_gone = np.unique(np.linspace(0, size - 1, min(LEVELS, size - 1) + 1).round().astype(int))
    measured = np.zeros(len(n_gone))
    for level, n in enumerate(n_gone[1:], 1):
        kept = np.ones(size, bool)
        kept[order[:n]] = False
        measured[level] = sum(one.error(kept) for one in sent)
    slopes = _convex_slopes(n_gone, np.maximum.accumulate(measured))
    result = np.empty(size)
    # The order itself breaks ties; 1e-12 of what is received is nothing.
    result[order[:-1]] = np.interp(np.arange(size - 1) + 0.5, *slopes) + 1e-12 * np.arange(size - 1)
    result[order[-1]] = max(1.0, float(result.max(initial=0.0, where=np.arange(size) != order[-1])))
    return result


def _convex_slopes(
    x: Int64[np.ndarray, " levels"], y: Float[np.ndarray, " levels"]
) -> tuple[Float[np.ndarray, " pieces"], Float[np.ndarray, " pieces"]]:
    """Middles and slopes of the pieces of the greatest convex function below these points."""
    hull: list[int] = []
    for point in range(len(x)):
        while len(hull) > 1:
            a, b = hull[-2:]
            if (y[b] - y[a]) * (x[point] - x[b]) <= (y[point] - y[b]) * (x[b] - x[a]):
                break
            hull.pop()
        hull.append(point)
    if len(hull) < 2:
        return np.zeros(1), np.zeros(1)
    at, height = x[hull].astype(float), y[hull]
    return (at[1:] + at[:-1]) / 2, np.diff(height) / np.diff(at)
