"""Early-bird detection in a Lightning training: `Trainer(callbacks=[EarlyBirdCallback(bird)])`."""

from __future__ import annotations

from typing import Any

from lightning.pytorch import Callback, LightningModule, Trainer
from torch import nn

from splinecut.pruning.detect import EarlyBird


class EarlyBirdCallback(Callback):
    """Observes the network after every training epoch and, unless told otherwise, stops training once it is drawn.

    bird:    an EarlyBird; with `every=n` it is shown each batch and looks at every n-th.
    network: the attribute of the LightningModule that holds the network; "" observes the whole module.
    """

    def __init__(self, bird: EarlyBird, network: str = "", stop: bool = True) -> None:
        self.bird, self.network, self.stop = bird, network, stop

    def on_train_epoch_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        if self.bird.every == "epoch":
            self._observe(trainer, pl_module)

    def on_train_batch_end(self, trainer: Trainer, pl_module: LightningModule, *_: Any) -> None:
        if self.bird.every != "epoch":
            self._observe(trainer, pl_module)

    def _observe(self, trainer: Trainer, pl_module: LightningModule) -> None:
        watched: nn.Module = pl_module.get_submodule(self.network) if self.network else pl_module
        verdict = self.bird.observe(watched)
        if verdict.distance is not None:
            pl_module.log("spline_distance", verdict.distance)
        if verdict.drawn and self.stop:
            trainer.should_stop = True

    def state_dict(self) -> dict[str, Any]:
        return self.bird.state()

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self.bird.restore(state_dict)
