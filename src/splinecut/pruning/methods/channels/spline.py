"""Spline pruning: units whose cut repeats another unit's cut leave first.

You et al. (2022), Sec. 3.4: of the two units whose cuts lie nearest one is removed, and so on ("removing sequentially
one of the two"). The paper does not say which of the two leaves: here the one with the shorter folded weight vector,
whose activations are smaller, and of equal ones the higher index. Scores are the distances at which units leave, and
these never fall along the sequence, so larger stays.

Input selectors of pre-activation blocks pick channels of a sum of branches, which no single filter makes; their cuts
are coordinate planes, all alike. In weight space they are ranked by the batch-norm scale behind them, scaled to the
range of the distances.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np
import torch
from jaxtyping import Float
from torch import nn

from splinecut.errors import InputError
from splinecut.geometry.cuts import DISTANCES, Cuts
from splinecut.networks.groups.values import Groups, UnitGroup
from splinecut.pruning.activations import consumer_layers
from splinecut.pruning.budget import Budget, savings
from splinecut.pruning.engine.schedules import geometric, shortened
from splinecut.pruning.evidence import Evidence
from splinecut.pruning.method import Method, Round, Scores
from splinecut.pruning.methods.channels.joint_error import finite, removal_errors
from splinecut.pruning.options import Count, NotNegativeInt
from splinecut.pruning.output_error.effort import output_flops
from splinecut.pruning.output_error.search import output_scores
from splinecut.pruning.refit.held_out import LEVELS
from splinecut.pruning.unit_parameters import selector_scale, unit_cuts
from splinecut.training.config import TrainingConfig

WORK = 3 + 5 * LEVELS // 12  # units^3 of a consumer: elimination, and the mean over levels of a solve and 2 products
DEAD = -1.0  # score of a unit that cuts nothing: it leaves before any that does
POOL = 12_000  # units whose pairwise distances fit in about a gigabyte


@dataclass(frozen=True)
class Spline(Method):
    """Which form of the criterion, and among which units it ranks. `rho` weighs offsets against angles (paper: 0.05).

    form "output":    what the network's output loses when a unit leaves and the rest is refitted, measured on held-out
                      inputs (`pruning.output_error`), per unit of what the budget counts. The default: best on networks
                      trained elsewhere. It needs a probe of real inputs. `effort` says how much is measured: "fast",
                      "balanced" or "thorough" (docs/which-units.md has the cost of each).
    form "joint":     what the next layer loses (`joint_error`); the default of 0.1. It looks at one pass of the probe.
    form "corrected": the distance between cuts, which is zero exactly when they are one hyperplane.
    form "paper":     N_rho as printed.
    reduce "pca", "fa" (with scope "global" and a cut distance): the paper's literal route, cuts of all layers reduced
                      to one dimension and compared across layers, where most near pairs are chance (docs/errata.md).
    n_rounds:         cuts that each keep the same share of what is left, with `between_epochs` of training between two
                      of them (left out: a quarter of the plan's), the plan's schedule squeezed into these.
    """

    reference: ClassVar[str] = "You et al. 2022; forms output and joint: splinecut"
    refit: ClassVar[Literal["none", "fold", "least_squares"]] = "least_squares"
    scope_option: ClassVar[bool] = True

    form: Literal["output", "joint", "corrected", "paper"] = "output"
    scope: Literal["layer", "stage", "global"] = "global"
    reduce: Literal["none", "pca", "fa"] = "none"
    rho: float = 0.05
    n_rounds: Count = 1
    between_epochs: NotNegativeInt | None = None
    effort: Literal["fast", "balanced", "thorough"] = "balanced"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.reduce != "none" and (self.scope != "global" or self.form in ("output", "joint")):
            raise InputError(
                f"reduce={self.reduce!r} compares cuts across layers; it needs scope='global' and form 'paper' or "
                f"'corrected', got scope={self.scope!r}, form={self.form!r}"
            )

    def rounds(self, budget: Budget, groups: Groups | None) -> Sequence[Round]:
        return geometric(budget, self.n_rounds)

    def between(self, plan: TrainingConfig) -> TrainingConfig:
        return shortened(plan, max(1, plan.epochs // 4) if self.between_epochs is None else self.between_epochs)

    def score(self, evidence: Evidence, budget: Budget) -> Scores:
        if self.form == "output":
            return output_scores(evidence, budget, self.effort)
        if self.form != "joint" and self.reduce != "none":
            return _pooled(evidence, self)
        if self.form == "joint":
            errors, saved = removal_errors(evidence), savings(evidence.groups, budget)
            # Per unit of cost: with a budget of FLOPs, a cheap unit must lose little to be worth removing.
            return finite({name: values / max(saved[name], 1e-300) for name, values in errors.items()})
        return {group.name: self._within(evidence.model, group) for group in evidence.groups}

    def flops(self, evidence: Evidence, forward_flops: int) -> int:
        """What scoring costs: passes of the probe and the eliminations, or the products of every pair of cuts."""
        if self.form == "output":
            return output_flops(evidence, self.effort, forward_flops)
        if self.form == "joint":
            elimination = sum(WORK * g.size**3 * len(consumer_layers(evidence.model, g)) for g in evidence.groups)
            return evidence.n_inputs * forward_flops + elimination
        fan_in = [
            (group.size, evidence.model.get_parameter(producer.weight).numel() // group.size)
            for group in evidence.groups
            for producer in group.producers
            if producer.weight
        ]
        return sum(2 * units**2 * inputs for units, inputs in fan_in)

    def _within(self, model: nn.Module, group: UnitGroup) -> Float[np.ndarray, " units"]:
        if group.kind == "selector":
            scale = selector_scale(model, group)
            return scale / max(float(scale.max()), np.finfo(float).tiny)
        cuts = [unit_cuts(model, group, producer) for producer in group.producers if producer.weight]
        return removal_distances(unit_distances(cuts, self.form, self.rho), folded_norm(cuts))


def unit_distances(cuts: list[Cuts], form: str, rho: float) -> Float[np.ndarray, "units units"]:
    """How far units lie apart: the mean over the layers that draw them (one, unless a residual stream ties several)."""
    distances = [DISTANCES[form](each, each, rho) for each in cuts]
    return torch.stack(distances).mean(0).numpy()


def folded_norm(cuts: list[Cuts]) -> Float[np.ndarray, " units"]:
    """The norm of each unit's weights, batch norm folded in, over all layers that draw it; 0 for a dead unit."""
    return torch.stack([each.norm for each in cuts]).square().sum(0).sqrt().numpy()


def removal_distances(
    distance: Float[np.ndarray, "units units"], norm: Float[np.ndarray, " units"]
) -> Float[np.ndarray, " units"]:
    """The distance at which each unit leaves when of the two nearest units the one of smaller norm goes, and so on.

    Units that no other is near (the last one, and any at infinite distance) come out above all others; units of
    norm 0 get DEAD. O(units^2) as a rule: a row's nearest is looked up again only when that one left.
    """
    distance = distance.copy()
    np.fill_diagonal(distance, np.inf)
    result = np.where(norm == 0, DEAD, np.inf)
    # A dead unit has no cut, so nothing is near it.
    distance[norm == 0] = distance[:, norm == 0] = np.inf
    nearest = distance.argmin(1)
    gap = distance[np.arange(len(distance)), nearest]
    while len(gap) and np.isfinite(gap.min()):
        first = int(gap.argmin())
        second = int(nearest[first])
        leaves = min((first, second), key=lambda unit: (norm[unit], -unit))
        result[leaves] = gap[first]
        distance[leaves] = distance[:, leaves] = gap[leaves] = np.inf
        # Only units whose nearest has left look again: for all others the minimum still stands.
        orphaned = np.flatnonzero((nearest == leaves) & np.isfinite(gap))
        nearest[orphaned] = distance[orphaned].argmin(1)
        gap[orphaned] = distance[orphaned, nearest[orphaned]]
    return finite({"": result})[""]


def _pooled(evidence: Evidence, spline: Spline) -> Scores:
    """The paper's global route: every layer's cuts reduced to a common dimension, then paired across layers."""
    groups = [group for group in evidence.groups if group.kind == "channels"]
    if sum(group.size for group in groups) > POOL:
        raise InputError(
            f"pairing all units of {sum(g.size for g in groups)} across layers needs more than a gigabyte; "
            f"at most {POOL} are allowed, use reduce='none'"
        )
    cuts = [unit_cuts(evidence.model, group, next(p for p in group.producers if p.weight)) for group in groups]
    # No reduction has more dimensions than vectors, nor than these have: the smallest layer decides.
    dimension = min(min(each.normal.shape) for each in cuts)
    reduced = [_reduced(each, dimension, REDUCTIONS[spline.reduce]) for each in cuts]
    pool = Cuts(
        torch.cat([each.normal for each in reduced]),
        torch.cat([each.offset for each in reduced]),
        torch.cat([each.norm for each in reduced]),
    )
    distances = removal_distances(DISTANCES[spline.form](pool, pool, spline.rho).numpy(), pool.norm.numpy())
    ends = np.cumsum([group.size for group in groups])
    scores = dict(zip((g.name for g in groups), np.split(distances, ends[:-1]), strict=True))
    for group in evidence.groups:
        if group.kind == "selector":
            scores[group.name] = spline._within(evidence.model, group)
    return scores


Reduce = Callable[[np.ndarray, int], np.ndarray]


def _pca(vectors: np.ndarray, dimension: int) -> np.ndarray:
    from sklearn.decomposition import PCA

    return PCA(dimension, svd_solver="full").fit_transform(vectors)


def _factor_analysis(vectors: np.ndarray, dimension: int) -> np.ndarray:
    from sklearn.decomposition import FactorAnalysis

    return FactorAnalysis(dimension, svd_method="lapack").fit_transform(vectors)


REDUCTIONS: dict[str, Reduce] = {"pca": _pca, "fa": _factor_analysis}


def _reduced(cuts: Cuts, dimension: int, reduce: Reduce) -> Cuts:
    """The cuts with their weight vectors reduced to `dimension`; biases and lengths stay the units' own."""
    vectors = torch.from_numpy(reduce((cuts.normal * cuts.norm[:, None]).numpy(), dimension))
    length = vectors.norm(dim=1)
    normal = torch.where(length[:, None] > 0, vectors / length.clamp_min(1e-300)[:, None], 0.0)
    return Cuts(normal, cuts.offset, torch.where(length > 0, cuts.norm, 0.0))
