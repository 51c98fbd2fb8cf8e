"""Exact numbers of regions of one layer in any input dimension, and bounds on them under pruning.

A unit cuts R^D along the hyperplane {x : <w, x> + c = 0}. Floating-point weights are rational numbers, so an
arrangement is held here in whole numbers and nothing is ever rounded: parallel, coincident and concurrent
hyperplanes are recognised as such. Regions are counted by deletion and restriction (Zaslavsky 1975): putting
the hyperplane H into an arrangement A splits as many regions as A draws inside H,

    regions(A + H) = regions(A) + regions(A restricted to H),

and the restriction is an arrangement in one dimension less. The cost is about that of listing the regions.

The theorem of You et al. 2022 (Sec. 3.1) on region counts under pruning fails in both of its parts. What is true:

  * K units draw at most sum_{i <= D} C(K, i) regions, which is 2^K only while K <= D (`max_regions`);
  * removing units lowers the count by at least the number of *distinct* hyperplanes that vanish, with equality
    for parallel ones (`pruning_bound`); pruning single weights or biases may raise it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from fractions import Fraction
from math import comb, gcd, lcm
from typing import Any

from splinecut.errors import InputError

Hyperplane = tuple[int, ...]
"""(w_1, ..., w_D, c) in whole numbers without common factor, first non-zero w positive: one name per hyperplane."""


def hyperplanes(weight: Any, bias: Any = None) -> frozenset[Hyperplane]:
    """The distinct hyperplanes {x : <w_k, x> + c_k = 0} of a layer; a unit with w_k = 0 has none.

    weight: (units, inputs), bias: (units,) or None for zeros; tensors, arrays or nested lists of
    integers, floats or Fractions. Floats are taken at their exact binary value.
    """
    rows = [[Fraction(value) for value in row] for row in _as_lists(weight)]
    offsets = [Fraction(value) for value in _as_lists(bias)] if bias is not None else [Fraction(0)] * len(rows)
    if len(offsets) != len(rows):
        raise InputError(f"bias must have one entry per unit ({len(rows)}), got {len(offsets)}; pass None for zeros")
    if len({len(row) for row in rows}) > 1:
        raise InputError("weight must have shape (units, inputs), got rows of different lengths; pad them with zeros")
    named = (_canonical(_whole([*row, offset])) for row, offset in zip(rows, offsets, strict=True))
    return frozenset(plane for plane in named if plane is not None)


def n_regions(weight: Any, bias: Any = None) -> int:
    """The number of regions the layer's hyperplanes cut R^inputs into, exactly, in any position.

    >>> n_regions([[1, 0], [0, 1], [1, 1]], [0, 0, 0])  # three lines through one point
    6
    >>> n_regions([[1, 0], [0, 1], [1, 1]], [0, 0, 1])
    7
    """
    return count_regions(sorted(hyperplanes(weight, bias)))


def count_regions(arrangement: Sequence[Hyperplane]) -> int:
    """The number of regions of an arrangement of distinct hyperplanes, each in canonical whole numbers.

    Adding the hyperplanes one by one, the i-th splits the regions that the earlier ones draw inside it.
    """
    if not arrangement:
        return 1
    if len(arrangement[0]) == 2:  # points on a line
        return 1 + len(arrangement)
    return 1 + sum(count_regions(_restrict(arrangement[:i], plane)) for i, plane in enumerate(arrangement))


def max_regions(n_units: int, n_inputs: int) -> int:
    """Zaslavsky's bound: the most regions `n_units` hyperplanes can cut R^n_inputs into, reached in general position.

        max = sum_{i=0}^{D} C(K, i),    = 2^K exactly when K <= D

    >>> [max_regions(8, inputs) for inputs in (1, 2, 3, 8)]
    [9, 37, 93, 256]
    """
    return sum(comb(n_units, i) for i in range(n_inputs + 1))


def max_regions_after_pruning(keep: Iterable[bool], n_inputs: int) -> int:
    """The most regions a layer can have once only the units of `keep` stay: Zaslavsky's bound of the survivors.

    You et al. 2022 print 2^(D - <q, 1>) with q the mask of *kept* units, which is 1 for a network left whole.
    """
    return max_regions(sum(bool(stays) for stays in keep), n_inputs)


def pruning_bound(weight: Any, bias: Any, keep: Sequence[bool]) -> int:
    """An upper bound on the regions left when only the units of `keep` stay; tight for parallel hyperplanes.

        regions(kept) <= regions(all) - #{distinct hyperplanes of the layer that no kept unit shares}

    Each vanishing hyperplane takes regions(A restricted to H) >= 1 with it. This is the true form of the paper's
    inequality, which subtracts one per removed unit and so fails for duplicates and for dead units.
    """
    before = hyperplanes(weight, bias)
    return count_regions(sorted(before)) - len(before - _kept_hyperplanes(weight, bias, keep))


def regions_lost_in_general_position(n_units: int, n_removed: int, n_inputs: int) -> int:
    """How many regions go when `n_removed` of `n_units` hyperplanes in general position are removed.

    For one unit this is sum_{i < D} C(K - 1, i).
    """
    return max_regions(n_units, n_inputs) - max_regions(n_units - n_removed, n_inputs)


def _kept_hyperplanes(weight: Any, bias: Any, keep: Sequence[bool]) -> frozenset[Hyperplane]:
    rows = _as_lists(weight)
    if len(keep) != len(rows):
        raise InputError(f"keep must have one entry per unit ({len(rows)}), got {len(keep)}; true is for what stays")
    units = [unit for unit, stays in enumerate(keep) if stays]
    offsets = _as_lists(bias) if bias is not None else [0] * len(rows)
    return hyperplanes([rows[unit] for unit in units], [offsets[unit] for unit in units])


def _restrict(arrangement: Sequence[Hyperplane], onto: Hyperplane) -> list[Hyperplane]:
    """What the arrangement draws inside the hyperplane `onto`, in one coordinate less.

    The pivot coordinate is eliminated without division. A hyperplane parallel to `onto` leaves nothing there,
    and several that meet `onto` in one place count once.
    """
    pivot = next(i for i, value in enumerate(onto) if value)
    inside = set()
    for plane in arrangement:
        traces = [onto[pivot] * p - plane[pivot] * o for p, o in zip(plane, onto, strict=True)]
        inside.add(_canonical(traces[:pivot] + traces[pivot + 1 :]))
    inside.discard(None)
    return list(inside)  # type: ignore[arg-type]  # None has just left


def _canonical(row: list[int]) -> Hyperplane | None:
    """The one name of the hyperplane of (w, c), or None when w = 0."""
    lead = next((value for value in row[:-1] if value), 0)
    if lead == 0:
        return None
    divisor = gcd(*row) if lead > 0 else -gcd(*row)
    return tuple(value // divisor for value in row)


def _whole(row: list[Fraction]) -> list[int]:
    denominator = lcm(*(value.denominator for value in row))
    return [int(value * denominator) for value in row]


def _as_lists(values: Any) -> Any:
    return values.tolist() if hasattr(values, "tolist") else values
