"""Early-detector detection in a Lightning training: `Trainer(callbacks=[EarlyBirdCallback(detector)])`."""

from __future__ import annotations

from typing import Any

from lightning.pytorch import Callback, LightningModule, Trainer
from torch import nn

from splinecut.moved import renamed_arguments
from splinecut.pruning.detect import EarlyBird


class EarlyBirdCallback(Callback):
    """Observes the network after every training epoch and stops training once it has settled, unless `stop=False`.

    detector: an EarlyBird; with `every=n` it is shown each batch and looks at every n-th.
    network:  the attribute of the LightningModule that holds the network; "" observes the whole module.
    """

    @renamed_arguments(bird="detector")
    def __init__(self, detector: EarlyBird, network: str = "", stop: bool = True) -> None:
        self.detector, self.network, self.stop = detector, network, stop

    def on_train_epoch_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        if self.detector.every == "epoch":
            self._observe(trainer, pl_module)

    def on_train_batch_end(self, trainer: Trainer, pl_module: LightningModule, *_: Any) -> None:
        if self.detector.every != "epoch":
            self._observe(trainer, pl_module)

    def _observe(self, trainer: Trainer, pl_module: LightningModule) -> None:
        watched: nn.Module = pl_module.get_submodule(self.network) if self.network else pl_module
        verdict = self.detector.observe(watched)
        if verdict.distance is not None:
            pl_module.log("spline_distance", verdict.distance)
        if verdict.drawn and self.stop:
            trainer.should_stop = True

    def state_dict(self) -> dict[str, Any]:
        return self.detector.state()

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self.detector.restore(state_dict)
