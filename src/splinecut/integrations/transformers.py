"""Early-bird detection in a transformers training: `Trainer(..., callbacks=[EarlyBirdCallback(bird)])`."""

from __future__ import annotations

from typing import Any

from torch import nn
from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments

from splinecut.pruning.detect import EarlyBird


class EarlyBirdCallback(TrainerCallback):
    """Observes the network after every epoch (or step, with `every=n`) and stops training once it is drawn.

    The watched network must take one tensor and return one; `network` names the submodule that does, where the
    model as a whole takes a dictionary, as models of transformers do.
    """

    def __init__(self, bird: EarlyBird, network: str = "", stop: bool = True) -> None:
        self.bird, self.network, self.stop = bird, network, stop

    def on_epoch_end(
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,
        model: nn.Module | None = None,
        **_: Any,
    ) -> None:
        if self.bird.every == "epoch" and model is not None:
            self._observe(control, model)

    def on_step_end(
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,
        model: nn.Module | None = None,
        **_: Any,
    ) -> None:
        if self.bird.every != "epoch" and model is not None:
            self._observe(control, model)

    def _observe(self, control: TrainerControl, model: nn.Module) -> None:
        verdict = self.bird.observe(model.get_submodule(self.network) if self.network else model)
        if verdict.drawn and self.stop:
            control.should_training_stop = True
