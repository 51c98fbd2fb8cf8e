"""Random masks: how many weights stay in each layer (uniform, ERK); which ones is left to chance."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np
from jaxtyping import Float

from splinecut.errors import InputError
from splinecut.moved import renamed
from splinecut.networks.groups.values import Groups
from splinecut.pruning.budget import Budget, Keep, best
from splinecut.pruning.evidence import Evidence
from splinecut.pruning.method import Method, Scores
from splinecut.pruning.weight_mask import prunable_weights

Shapes = Mapping[str, tuple[int, ...]]


def uniform(shapes: Shapes, k: int) -> dict[str, float]:
    """The same share of every layer, `k` weights in all."""
    sizes = _sizes(shapes)
    return dict(zip(shapes, k * sizes / sizes.sum(), strict=True))


def erk(shapes: Shapes, k: int) -> dict[str, float]:
    """Erdos-Renyi-Kernel (Evci et al. 2020): thinner layers keep a larger share.

        share = e (n_in + n_out + k_w + k_h) / (n_in n_out k_w k_h)

    where e is such that `k` weights stay in all. Layers whose share would exceed 1 stay whole and e is solved for
    anew: it can only grow by that, so a layer once whole stays whole.
    """
    sizes = _sizes(shapes)
    sums = np.array([float(sum(shape)) for shape in shapes.values()])  # size times share is e times this
    is_full = np.zeros(len(sizes), bool)
    while not is_full.all():
        e = (k - sizes[is_full].sum()) / sums[~is_full].sum()
        over = ~is_full & (e * sums > sizes)
        if not over.any():
            break
        is_full |= over
    return dict(zip(shapes, np.where(is_full, sizes, 0.0 if is_full.all() else e * sums), strict=True))


DENSITIES: dict[str, Callable[[Shapes, int], dict[str, float]]] = {"uniform": uniform, "erk": erk}


def counts(wanted: Mapping[str, float], shapes: Shapes, k: int, floor: int = 1) -> dict[str, int]:
    """Whole numbers as near to `wanted` as can be, `k` in all, between `floor` and its size for every layer.

    Remainders go to the layers with the largest fraction; ties to the earlier layer.
    """
    sizes, target = _sizes(shapes), np.array([wanted[name] for name in shapes])
    least = np.minimum(floor, sizes)
    if k < least.sum():
        raise InputError(
            f"{k} weights cannot stay with a floor of {floor} in {len(sizes)} layers; keep more, or use floor=0"
        )
    result = np.clip(np.floor(target), least, sizes)
    # One weight at a time (largest remainder): rounding each layer by itself would miss k.
    while result.sum() != k:
        step = 1 if result.sum() < k else -1
        may_move = result < sizes if step > 0 else result > least
        result[np.argmax(np.where(may_move, step * (target - result), -np.inf))] += step
    return {name: int(n) for name, n in zip(shapes, result, strict=True)}


def _sizes(shapes: Shapes) -> Float[np.ndarray, " layers"]:
    return np.array([float(np.prod(shape)) for shape in shapes.values()])


@dataclass(frozen=True)
class RandomWeights(Method):
    """A random mask, drawn before training and held through it; a density for each layer is all that is chosen."""

    units: ClassVar[Literal["channels", "weights"]] = "weights"
    state: ClassVar[str] = "at initialisation"
    trains_first: ClassVar[bool] = False
    is_random: ClassVar[bool] = True

    def allocation(self) -> Callable[[Shapes, int], dict[str, float]]:
        """How many weights each layer is to keep."""
        raise NotImplementedError

    def score(self, evidence: Evidence, budget: Budget) -> Scores:
        generator = np.random.default_rng(evidence.seed)
        weights = prunable_weights(evidence.model)
        return {name: generator.random(tuple(weight.shape)) for name, weight in weights.items()}

    def select(self, scores: Scores, budget: Budget, groups: Groups | None, search_result: Any) -> Keep:
        """As many of each layer as the allocation says; `budget.scope` has no say in it."""
        shapes = {name: values.shape for name, values in scores.items()}
        k = round(budget.keep * sum(values.size for values in scores.values()))
        kept = counts(self.allocation()(shapes, k), shapes, k, budget.floor)
        return {name: best(values.reshape(-1), kept[name]).reshape(values.shape) for name, values in scores.items()}


@dataclass(frozen=True)
class Uniform(RandomWeights):
    """A random mask with the same density in every layer: what an allocation must beat."""

    reference: ClassVar[str] = "control"

    def allocation(self) -> Callable[[Shapes, int], dict[str, float]]:
        return uniform


@dataclass(frozen=True)
class ErdosRenyiKernel(RandomWeights):
    """A random mask with ERK densities, held as it is: what a criterion must beat."""

    reference: ClassVar[str] = "Mocanu et al. 2018, Evci et al. 2020 (static)"

    def allocation(self) -> Callable[[Shapes, int], dict[str, float]]:
        return erk


__getattr__ = renamed(__name__, {"twin": "splinecut.pruning.ticket.random_twin"})
