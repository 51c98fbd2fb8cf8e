"""Early-bird tickets by mask distance: the ticket is drawn once the mask of network slimming stops changing.

You et al. (2020): after every epoch the mask for the wanted budget is drawn and put into a queue of five; when the
newest differs from each of the older four in at most a tenth of the channels, training stops, the network is cut, and
the rest of the plan is trained with a fresh optimiser, the penalty on the scales still on.

Departures: the reference looks before an epoch and so counts epochs from one earlier. We look after it, which also
keeps the initial scales, all equal, out of the queue.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

import numpy as np
import torch
from jaxtyping import Bool
from pydantic import Field
from torch import nn

from splinecut.networks.groups.read import groups as read_groups
from splinecut.pruning.budget import Budget, Keep, select
from splinecut.pruning.evidence import Evidence
from splinecut.pruning.method import CONTINUE, Recovery
from splinecut.pruning.methods.channels.slimming import Slimming
from splinecut.training.hooks import Hook
from splinecut.training.ledger import FORWARD, Phase

if TYPE_CHECKING:
    from splinecut.pruning.engine.context import RunContext
    from splinecut.training.hooks import TrainState


@dataclass(frozen=True)
class EarlyBirdTicket(Slimming):
    """Slimming at the epoch when its mask has settled: `window` masks in the queue, none further than `threshold`."""

    state: ClassVar[str] = "when its mask has settled"
    reference: ClassVar[str] = "You et al. 2020"

    window: Annotated[int, Field(ge=2)] = 5  # masks, the newest included
    threshold: Annotated[float, Field(ge=0, le=1)] = 0.1

    @property
    def recovery(self) -> Recovery:
        return CONTINUE

    def hooks(self, context: RunContext, model: nn.Module, budget: Budget) -> Sequence[Hook]:
        probe = context.probe()
        groups = read_groups(model, probe, context.residual)

        def look(state: TrainState) -> Keep:
            evidence = Evidence(state.model, groups, probe, context.seed)
            state.ledger.charge(Phase("detect"), self.flops(evidence, state.forward_flops), 1, FORWARD)
            return select(self.score(evidence, budget), budget, groups)

        return (*super().hooks(context, model, budget), StopWhenSettled(look, self.window, self.threshold))

    def retrain_hooks(self, context: RunContext, model: nn.Module, budget: Budget) -> Sequence[Hook]:
        return super().hooks(context, model, budget)

    def first_training(self, budget: Budget) -> dict[str, Any]:
        settled = {"budget": asdict(budget), "window": self.window, "threshold": self.threshold}
        return {**super().first_training(budget), "early-bird": settled}


class StopWhenSettled(Hook):
    """Ends training when the newest of `window` masks is within `threshold` of all the others."""

    name = "masks"

    def __init__(self, look: Callable[[TrainState], Keep], window: int, threshold: float) -> None:
        self.look, self.window, self.threshold = look, window, threshold
        self.queue: list[Bool[np.ndarray, " units"]] = []

    def after_epoch(self, state: TrainState) -> bool:
        # Only masks are kept, not networks: they are all that is compared, and fit into a checkpoint.
        newest = np.concatenate(list(self.look(state).values()))
        self.queue = [*self.queue, newest][-self.window :]
        if len(self.queue) < self.window:
            return False
        furthest = max(mask_distance(newest, older) for older in self.queue[:-1])
        state.history[-1]["mask_distance"] = furthest
        return furthest <= self.threshold

    def state(self) -> dict[str, Any]:
        return {"queue": [torch.from_numpy(mask) for mask in self.queue]}

    def restore(self, state: dict[str, Any]) -> None:
        self.queue = [mask.cpu().numpy().astype(bool) for mask in state["queue"]]


def mask_distance(a: Bool[np.ndarray, " units"], b: Bool[np.ndarray, " units"]) -> float:
    """The share of units on which two masks disagree: a kept and a removed one exchanged make 2 / units."""
    return float((a != b).mean())
