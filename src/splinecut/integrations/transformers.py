"""Early-detector detection in a transformers training: `Trainer(..., callbacks=[EarlyBirdCallback(detector)])`."""

from __future__ import annotations

from typing import Any

from torch import nn
from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments

from splinecut.moved import renamed_arguments
from splinecut.pruning.detect import EarlyBird


class EarlyBirdCallback(TrainerCallback):
    """Observes the network after every epoch (or step, with `every=n`) and stops training once it has settled.

    The watched network must take one tensor and return one; `network` names the submodule that does, where the
    model as a whole takes a dictionary, as models of transformers do.
    """

    @renamed_arguments(bird="detector")
    def __init__(self, detector: EarlyBird, network: str = "", stop: bool = True) -> None:
        self.detector, self.network, self.stop = detector, network, stop

    def on_epoch_end(
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,
        model: nn.Module | None = None,
        **_: Any,
    ) -> None:
        if self.detector.every == "epoch" and model is not None:
            self._observe(control, model)

    def on_step_end(
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,
        model: nn.Module | None = None,
        **_: Any,
    ) -> None:
        if self.detector.every != "epoch" and model is not None:
            self._observe(control, model)

    def _observe(self, control: TrainerControl, model: nn.Module) -> None:
        verdict = self.detector.observe(model.get_submodule(self.network) if self.network else model)
        if verdict.drawn and self.stop:
            control.should_training_stop = True
