"""Single weights ranked by size once training has told them apart: magnitude pruning and the lottery ticket."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar, Literal

from splinecut.networks.groups.values import Groups
from splinecut.pruning.budget import Budget
from splinecut.pruning.evidence import Evidence
from splinecut.pruning.method import Method, Recovery, Round, Scores
from splinecut.pruning.options import Count, NotNegativeInt
from splinecut.pruning.weight_mask import prunable_weights


@dataclass(frozen=True)
class Magnitude(Method):
    """|w| of trained weights, over the whole network or layer by layer as the budget's scope says."""

    units: ClassVar[Literal["channels", "weights"]] = "weights"
    reference: ClassVar[str] = "Han et al. 2015"

    def score(self, evidence: Evidence, budget: Budget) -> Scores:
        weights = prunable_weights(evidence.model)
        return {name: weight.detach().abs().double().cpu().numpy() for name, weight in weights.items()}


@dataclass(frozen=True)
class Lottery(Magnitude):
    """The largest trained weights, set back to where training began, or to where it stood after `rewind_step` steps.

    In `n_rounds` rounds (Frankle & Carbin 2019) the i-th leaves keep^(i / n_rounds) of the weights; each trains the
    ticket so far from the same start. Everything is set back: biases, norms and their statistics, and the order of
    the data. Late rewinding is that of Frankle et al. 2020; the optimiser starts fresh, as in theirs.
    """

    reference: ClassVar[str] = "Frankle & Carbin 2019"

    n_rounds: Count = 1
    rewind_step: NotNegativeInt = 0

    @property
    def recovery(self) -> Recovery:
        # Weights and step together: the learning rate and the data order go back to where the weights were.
        return Recovery(weights="rewind", step=self.rewind_step)

    def rounds(self, budget: Budget, groups: Groups | None) -> Sequence[Round]:
        shares = [budget.keep ** (i / self.n_rounds) for i in range(1, self.n_rounds)]
        return [*(Round(replace(budget, keep=share)) for share in shares), Round(budget)]
