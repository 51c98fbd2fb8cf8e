"""Hooks of the first training: stop once the partition has settled, keep the weights to rewind to."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from splinecut.networks.model_state import clone_state
from splinecut.pruning.detect import EarlyBird
from splinecut.training.hooks import Hook, TrainState
from splinecut.training.ledger import FORWARD, Phase


class DetectorHook(Hook):
    """Shows the network to an early detector and ends training when it is drawn; each look is charged."""

    name = "detector"

    def __init__(self, detector: EarlyBird) -> None:
        self.detector = detector

    def after_step(self, state: TrainState) -> bool | None:
        return self._look(state) if self.detector.every != "epoch" else None

    def after_epoch(self, state: TrainState) -> bool:
        return self._look(state) if self.detector.every == "epoch" else False

    def _look(self, state: TrainState) -> bool:
        before = len(self.detector.seen)
        verdict = self.detector.observe(state.model)
        images = len(self.detector.probe) * (len(self.detector.seen) - before)
        state.ledger.charge(Phase("detect"), state.forward_flops, images, FORWARD)
        return verdict.drawn

    def state(self) -> dict[str, Any]:
        return self.detector.state()

    def restore(self, state: dict[str, Any]) -> None:
        self.detector.restore(state)


class Snapshot(Hook):
    """Keeps the weights as they were after `step` steps, for rewinding."""

    name = "snapshot"

    def __init__(self, step: int) -> None:
        self.step = step
        self.weights: dict[str, Tensor] = {}

    def start(self, state: TrainState) -> None:
        self._look(state)

    def after_step(self, state: TrainState) -> None:
        self._look(state)

    def _look(self, state: TrainState) -> None:
        if state.step == self.step and not self.weights:
            self.weights = clone_state(state.model)

    def state(self) -> dict[str, Any]:
        return {"weights": self.weights}

    def restore(self, state: dict[str, Any]) -> None:
        self.weights = state["weights"]
