"""How much may stay, and the selection that keeps exactly that much.

Scores always mean "larger stays". Of tied units the one in the earlier group, then the one with the lower index, stays.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from jaxtyping import Bool, Float, Int64

from splinecut.errors import InputError, unknown
from splinecut.networks.groups.values import BLOCKS, Groups
from splinecut.pruning.options import is_number

OF = ("channels", "weights", "flops", "blocks")
SCOPES = ("global", "layer", "stage")
Keep = dict[str, Bool[np.ndarray, " *units"]]


@dataclass(frozen=True)
class Budget:
    """The fraction that stays: `keep` of the channels, weights, FLOPs or blocks.

    scope: "global" ranks all units together, "layer" keeps the same share of every group, "stage" of every set of
           groups of equal width (an input selector is a stage of its own).
    floor: the least number of units that stay in every group; 0 lets groups go empty.
    """

    keep: float
    of: Literal["channels", "weights", "flops", "blocks"] = "channels"
    scope: Literal["global", "layer", "stage"] = "global"
    floor: int = 1

    def __post_init__(self) -> None:
        if not is_number(self.keep) or not 0 < self.keep <= 1:
            raise InputError(f"keep must be in (0, 1], got {self.keep!r}; use 1.0 to keep everything")
        if self.of not in OF:
            raise unknown("kind of budget", str(self.of), OF)
        if self.scope not in SCOPES:
            raise unknown("scope", str(self.scope), SCOPES)
        if not is_number(self.floor) or self.floor < 0 or self.floor % 1:
            raise InputError(f"floor must be a count of units, got {self.floor!r}; 0 lets groups go empty")

        for name, kind in (("keep", float), ("floor", int)):  # NumPy's numbers are not written to a ticket's JSON
            if not isinstance(getattr(self, name), int | float):
                object.__setattr__(self, name, kind(getattr(self, name)))

    def __str__(self) -> str:
        return f"keep {self.keep:g} of {self.of}, {self.scope}, floor {self.floor}"


def select(scores: Mapping[str, Any], budget: Budget, groups: Groups | None = None) -> Keep:
    """The keep map of the best units within `budget`; scores: name -> array or tensor, one number per unit.

    Counts are exact: k = round(keep x N) units stay, over everything, in every group or in every stage. Where the
    floor asks for more than k, a layer or stage keeps its floor; globally that is an error.
    With `groups`, a budget of FLOPs or weights means those of the network: the lowest units leave one by one until
    the target is met, so it is missed by less than the last unit's share. Without them, a budget of weights keeps
    single weights.
    """
    values = _checked(scores, budget, groups)
    flat = {name: value.reshape(-1) for name, value in values.items()}
    if budget.of == "flops" or (budget.of == "weights" and groups is not None):
        if groups is None:
            raise InputError("a budget of FLOPs needs the network's groups; pass groups=sc.groups(model, example)")
        return _within_cost(flat, budget, groups)
    keep: Keep = {}
    for names in _sets(flat, budget.scope, groups):
        keep |= _exactly({name: flat[name] for name in names}, budget)
    return {name: keep[name].reshape(value.shape) for name, value in values.items()}


def best(scores: Float[np.ndarray, " n"], k: int) -> Bool[np.ndarray, " n"]:
    """Which k entries are the largest; of equal ones those with the lower index. Linear in n."""
    if k <= 0 or k >= len(scores):
        return np.full(len(scores), k > 0)
    least = np.partition(scores, len(scores) - k)[len(scores) - k]
    keep = scores > least
    # A threshold alone keeps too many or too few wherever scores repeat, at zero for instance.
    ties = np.flatnonzero(scores == least)
    keep[ties[: k - int(keep.sum())]] = True
    return keep


def _checked(scores: Mapping[str, Any], budget: Budget, groups: Groups | None) -> dict[str, np.ndarray]:
    values = {name: _array(value) for name, value in scores.items()}
    for name, value in values.items():
        if np.isnan(value).any():
            raise InputError(f"scores of {name} hold NaN; give numbers, larger stays (inf keeps, -inf removes)")
    if groups is None:
        return values
    sizes = {BLOCKS: len(groups.branches)} if budget.of == "blocks" else {group.name: group.size for group in groups}
    for name in values:
        if name not in sizes:
            raise unknown("group", name, sizes)
    for name, size in sizes.items():
        if name not in values:
            raise InputError(f"scores must cover every group, {name} is missing; score it inf to keep it whole")
        if values[name].shape != (size,):
            raise InputError(f"scores of {name} must have shape ({size},), got {values[name].shape}; one per unit")
    return {name: values[name] for name in sizes}


def _array(value: Any) -> Float[np.ndarray, " *units"]:
    value = value.detach().cpu().double().numpy() if hasattr(value, "detach") else value
    return np.asarray(value, np.float64)


def _sets(scores: Mapping[str, np.ndarray], scope: str, groups: Groups | None) -> list[list[str]]:
    """Names that are ranked together."""
    if scope == "global":
        return [list(scores)]
    if scope == "layer":
        return [[name] for name in scores]
    selectors = {group.name for group in groups or () if group.kind == "selector"}
    stages: dict[object, list[str]] = {}
    for name, value in scores.items():
        stages.setdefault(name if name in selectors else len(value), []).append(name)
    return list(stages.values())


def _protected(scores: Mapping[str, np.ndarray], floor: int) -> Bool[np.ndarray, " all"]:
    """The best `floor` units of every group, all groups one after the other."""
    return np.concatenate([best(value, min(floor, len(value))) for value in scores.values()])


def _exactly(scores: dict[str, Float[np.ndarray, " units"]], budget: Budget) -> Keep:
    everything = np.concatenate(list(scores.values()))
    protected = _protected(scores, budget.floor)
    k, needed = round(budget.keep * len(everything)), int(protected.sum())
    if k < needed and budget.scope == "global":
        raise InputError(
            f"keep {budget.keep:g} of {len(everything)} units is {k}, but a floor of {budget.floor} in {len(scores)} "
            f"groups needs {needed}; use keep {needed / len(everything):.3g} or more, or floor=0"
        )
    # The floor is taken out before ranking: adding it afterwards would keep more than k.
    keep = protected.copy()
    rest = np.flatnonzero(~protected)
    keep[rest[best(everything[rest], k - needed)]] = True
    ends = np.cumsum([len(value) for value in scores.values()])[:-1]
    return dict(zip(scores, np.split(keep, ends), strict=True))


def _within_cost(scores: dict[str, Float[np.ndarray, " units"]], budget: Budget, groups: Groups) -> Keep:
    cost: Callable[[Keep], int] = groups.flops if budget.of == "flops" else groups.parameters
    names = list(scores)
    owner = np.repeat(np.arange(len(names)), [len(scores[name]) for name in names])
    unit = np.concatenate([np.arange(len(scores[name])) for name in names])
    order = _removal_order(scores, budget, groups)

    def after(n: int) -> Keep:
        keep = {name: np.ones(len(scores[name]), bool) for name in names}
        for group in range(len(names)):
            gone = order[:n][owner[order[:n]] == group]
            keep[names[group]][unit[gone]] = False
        return keep

    dense = cost({})
    if cost(after(len(order))) > budget.keep * dense:
        least = cost(after(len(order))) / dense
        raise InputError(
            f"keep {budget.keep:g} of {budget.of} cannot be reached: with a floor of {budget.floor} the network keeps "
            f"at least {least:.3g}; ask for more than that, or lower the floor"
        )
    low, high = 0, len(order)
    # Bisection for the smallest count of removed units that is cheap enough. A unit's cost depends on what is left of
    # the layers beside it, so costs cannot be added up; but no removal raises the total, which is all this needs.
    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if cost(after(middle)) <= budget.keep * dense else (middle + 1, high)
    return after(low)


def _removal_order(scores: dict[str, np.ndarray], budget: Budget, groups: Groups) -> Int64[np.ndarray, " removable"]:
    """Removal order of all units that may leave, as indices into the concatenated groups.

    Globally they leave by score. By layer or stage each set loses the same share at any time: the i-th of n units
    leaves when the share (i - 1/2) / n is to go.
    """
    protected = _protected(scores, budget.floor)
    starts = dict(zip(scores, np.cumsum([0, *(len(value) for value in scores.values())]), strict=False))
    order, share = [], []
    for names in _sets(scores, budget.scope, groups):
        places = np.concatenate([starts[name] + np.arange(len(scores[name])) for name in names])
        # Sorted from best to worst and reversed: of equal scores the later unit leaves first, as in `best`.
        ranked = places[np.argsort(-np.concatenate([scores[name] for name in names]), kind="stable")][::-1]
        order.append(ranked[~protected[ranked]])
        share.append((np.arange(len(order[-1])) + 0.5) / len(ranked))
    return _merged(order, share)


def _merged(order: Sequence[np.ndarray], share: Sequence[np.ndarray]) -> Int64[np.ndarray, " removable"]:
    """The lists merged by share; of equal shares the later list's unit leaves first."""
    backwards = np.concatenate(order[::-1])  # a stable sort then puts the later list first among equal shares
    return backwards[np.argsort(np.concatenate(share[::-1]), kind="stable")]


def savings(groups: Groups, budget: Budget) -> dict[str, float]:
    """What the first unit to leave each group saves of the budget: 1 channel, or its FLOPs, or its weights."""
    costs: dict[str, Callable[[Keep | None], int]] = {"flops": groups.flops, "weights": groups.parameters}
    if budget.of not in costs:
        return {group.name: 1.0 for group in groups}
    cost = costs[budget.of]
    return {group.name: float(cost({}) - cost({group.name: np.arange(group.size) > 0})) for group in groups}


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
    ranks = np.empty(n)  # all different, so that ties between groups never decide how many of a group stay
    ranks[np.argsort(-scores, kind="stable")] = (n - np.arange(n) - 0.5) / n
    return ranks
