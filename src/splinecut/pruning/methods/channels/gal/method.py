"""GAL (Lin et al. 2019): soft masks learnt against a discriminator, with as much L1 as the budget asks for.

The trained network is the teacher; its copy, under soft masks on channels and on residual branches, learns to give the
same outputs (`adversary`) while FISTA pulls masks to zero. What is zero goes. How much that is depends on the
strength of the pull, for which the paper has no rule: it is found by bisection, one adversarial training for each
trial, all of them charged. What is left between the trial nearest to the budget and the budget itself is settled by
the size of the masks.

Departures from the released code, whose defects are known: the discriminator has activations and gives logits, L1 is
in the proximal step only, masks start at 1, the teacher is in eval mode, and masks see the mean gradient since their
last step. From the paper we depart where `adversary` says why: masks are rescaled.
"""

from __future__ import annotations

import copy
import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import numpy as np
import torch
from jaxtyping import Bool, Float
from torch import nn

from splinecut.errors import InputError
from splinecut.networks.groups.values import BLOCKS, Groups
from splinecut.networks.model_state import weights_digest
from splinecut.pruning.budget import Budget, Keep, select
from splinecut.pruning.engine.stages import Stage
from splinecut.pruning.evidence import Evidence
from splinecut.pruning.method import Method, Round, Scores
from splinecut.pruning.methods.channels.gal.adversary import Adversary, build_discriminator
from splinecut.pruning.methods.channels.gal.soft_masks import SoftMasked
from splinecut.pruning.options import Count, NotNegative, Positive
from splinecut.training.config import Optimizer, Schedule
from splinecut.training.ledger import Phase

if TYPE_CHECKING:
    from splinecut.pruning.engine.context import RunContext
    from splinecut.training.config import TrainingConfig

MASK_STEPS = 100  # at least, in a training that is too short for one every `mask_every` steps


@dataclass(frozen=True)
class MaskSearch:
    """The masks of the trial nearest to the budget, and of every trial its strength and the share it kept."""

    masks: dict[str, Float[np.ndarray, " units"]]
    trials: list[tuple[float, float]]


@dataclass(frozen=True)
class GAL(Method):
    """The adversarial training (defaults: the authors' for CIFAR), and how closely the budget is met by zeros.

    strength:  of the L1 term, lambda; None finds it by bisection, within `tolerance` of the budget or in `trials`.
    mu:        weight of the squared difference between the teacher's and the student's outputs.
    share:     of the plan's epochs that one adversarial training takes (100 of 160).
    mask_rate: step size of FISTA, which falls with the learning rate; it steps every `mask_every` steps, in short
               trainings more often.
    """

    reference: ClassVar[str] = "Lin et al. 2019"
    residual: ClassVar[Literal["tied", "select", "inner"]] = "inner"

    strength: NotNegative | None = None
    mu: NotNegative = 1.0
    share: Positive = 0.625
    learning_rate: Positive = 0.01
    batch_size: Count = 128
    weight_decay: NotNegative = 2e-4
    mask_rate: Positive = 0.02
    mask_every: Count = 200
    trials: Count = 6
    tolerance: NotNegative = 0.03

    def score(self, evidence: Evidence, budget: Budget) -> Scores:
        """The masks; larger ones stay."""
        masks = evidence.search_result.masks if evidence.search_result else {}
        if budget.of == "blocks":
            return {BLOCKS: masks.get(BLOCKS, np.ones(len(evidence.groups.branches)))}
        return {group.name: masks.get(group.name, np.ones(group.size)) for group in evidence.groups}

    def select(self, scores: Scores, budget: Budget, groups: Groups | None, search_result: Any) -> Keep:
        """Branches with mask 0 go first, as many as the budget has room for; then channels, by mask."""
        assert groups is not None
        branches = search_result.masks.get(BLOCKS) if search_result and budget.of in ("flops", "weights") else None
        if branches is None or branches.all():
            return select(scores, budget, groups)
        kept = _without_zero_branches(groups, branches, budget)
        rest = _without(groups, kept)
        keep = select(
            scores, replace(budget, keep=min(1.0, budget.keep * _cost(groups, budget) / _cost(rest, budget))), rest
        )
        gone = {key for branch in groups.dropped({BLOCKS: kept}) for key in branch.keys}
        for group in groups:  # what a dropped branch holds costs nothing, and leaves with it
            if all(producer.weight in gone for producer in group.producers):
                keep[group.name][:] = True
        return {**keep, BLOCKS: kept}

    def search(self, context: RunContext, model: nn.Module, turn: Round) -> MaskSearch:
        groups, budget = context.evidence(model, self).groups, turn.budget
        if budget.of == "blocks" and not groups.branches:
            raise InputError("a budget of blocks needs a network with residual branches, got one without; use channels")
        plan = self._plan(context.plan)
        per_epoch = -(-len(context.dataset.train) // plan.batch_size)
        every = max(1, min(self.mask_every, plan.epochs * per_epoch // MASK_STEPS))
        strength = self.strength if self.strength is not None else self._first_guess(plan, per_epoch, every)
        low, high, trials = 0.0, math.inf, []
        nearest: tuple[float, SoftMasked] | None = None
        for number in range(self.trials if self.strength is None else 1):
            student = self._trial(context, model, groups, budget, plan, strength, every, number)
            kept = kept_share(groups, _arrays(student), budget)
            trials.append((strength, kept))
            if nearest is None or abs(kept - budget.keep) < abs(nearest[0] - budget.keep):
                nearest = kept, student
            if abs(kept - budget.keep) <= self.tolerance:
                break
            # Bisection on a log scale, and by factors of 4 as long as one side is open: strengths span magnitudes.
            low, high = (strength, high) if kept > budget.keep else (low, strength)
            strength = strength * 4 if high == math.inf else strength / 4 if low == 0 else math.sqrt(low * high)
        assert nearest is not None
        result = MaskSearch(_arrays(nearest[1]), trials)
        model.load_state_dict(nearest[1].fold().state_dict())
        return result

    def _trial(
        self,
        context: RunContext,
        model: nn.Module,
        groups: Groups,
        budget: Budget,
        plan: TrainingConfig,
        strength: float,
        every: int,
        number: int,
    ) -> SoftMasked:
        """A student trained at this strength."""
        # Frozen and in eval mode: it must give one answer an image, whatever the batch.
        teacher = copy.deepcopy(model).eval().requires_grad_(False)
        student = SoftMasked(copy.deepcopy(model), groups, budget.of != "blocks", budget.of != "channels")
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(context.seed)
            like = next(model.parameters())
            discriminator = build_discriminator(context.dataset.outputs).to(like.device, like.dtype)
        hook = Adversary(teacher, discriminator, strength, self.mu, self.mask_rate, every, context.processes)
        decided = {  # and not the share that is to stay: searches for several budgets have their first trial in common
            "strength": strength,
            "mu": self.mu,
            "mask_rate": self.mask_rate,
            "every": every,
            "masks": sorted(student.masks),
            "residual": context.residual,
            "teacher": weights_digest(model),
        }
        stage = Stage(Phase("adversarial", str(number + 1)), plan, decided_by=decided, in_paper=False)
        context.train(student, stage, [hook])
        return student

    def _first_guess(self, plan: TrainingConfig, per_epoch: int, every: int) -> float:
        """A strength that pulls each mask three times its size over the training, which empties about half (digits)."""
        steps = range(every - 1, plan.epochs * per_epoch, every)
        pull = self.mask_rate * sum(plan.schedule.factor(step, plan.epochs, per_epoch) for step in steps)
        return 3 / pull if pull else 1.0

    def _plan(self, plan: TrainingConfig) -> TrainingConfig:
        epochs = min(plan.epochs, max(1, round(self.share * plan.epochs)))
        optimizer = Optimizer(lr=self.learning_rate, weight_decay=self.weight_decay)
        schedule = Schedule(milestones=(0.3, 0.6, 0.9))  # every 30 of 100 epochs
        changes = {"epochs": epochs, "batch_size": self.batch_size, "optimizer": optimizer, "schedule": schedule}
        return plan.model_copy(update=changes)


def kept_share(groups: Groups, masks: dict[str, Float[np.ndarray, " units"]], budget: Budget) -> float:
    """What is left when all zeros go, as a share of what the budget counts."""
    keep = {name: mask > 0 for name, mask in masks.items()}
    if budget.of == "blocks":
        return float(keep[BLOCKS].mean())
    if budget.of == "channels":
        return sum(int(kept.sum()) for kept in keep.values()) / groups.n_units
    return _cost(groups, budget, keep) / _cost(groups, budget)


def _cost(groups: Groups, budget: Budget, keep: Keep | None = None) -> int:
    return groups.flops(keep) if budget.of == "flops" else groups.parameters(keep)


def _without_zero_branches(groups: Groups, masks: np.ndarray, budget: Budget) -> Bool[np.ndarray, " branches"]:
    """Which branches stay: those with a mask, and of the others the earlier ones, once the budget is used up."""
    kept = np.ones(len(masks), bool)
    for branch in np.flatnonzero(masks == 0)[::-1]:
        kept[branch] = False
        if _cost(groups, budget, {BLOCKS: kept}) < budget.keep * _cost(groups, budget):
            kept[branch] = True
    return kept


def _without(groups: Groups, kept: Bool[np.ndarray, " branches"]) -> Groups:
    """The groups of the network without the branches that go: same units, less cost."""
    gone = {key for branch in groups.dropped({BLOCKS: kept}) for key in branch.keys}
    shapes = {key: shape for key, shape in groups.parameter_shapes.items() if key not in gone}
    return replace(groups, parameter_shapes=shapes, uses={k: n for k, n in groups.uses.items() if k not in gone})


def _arrays(student: SoftMasked) -> dict[str, Float[np.ndarray, " units"]]:
    return {name: mask.detach().double().cpu().numpy().copy() for name, mask in student.masks.items()}
