"""Training hooks: callbacks at each batch, step and epoch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from splinecut.moved import renamed
from splinecut.networks.model_state import clone_state

if TYPE_CHECKING:
    import torch
    from torch import Tensor, nn

    from splinecut.training.config import TrainingConfig
    from splinecut.training.energy import Meter
    from splinecut.training.ledger import Ledger, Phase


@dataclass
class TrainState:
    """The state of training as hooks see it. They may change `model` in place, `.grad` and optimiser state.

    `epoch` counts finished epochs, `step` finished steps of the whole training; `batch` is (inputs, targets).
    """

    model: nn.Module
    optimizer: torch.optim.Optimizer
    plan: TrainingConfig
    phase: Phase
    steps_per_epoch: int
    ledger: Ledger
    forward_flops: int
    epoch: int = 0
    step: int = 0
    batch: tuple[Tensor, Tensor] | None = None
    last_loss: Tensor | None = None
    spared_flops: int = 0  # of one input's training pass, if multiplying by removed single weights cost nothing
    learning_rate: float = 0.0
    history: list[dict[str, Any]] = field(default_factory=list)

    @property
    def total_steps(self) -> int:
        """Steps in the whole plan."""
        return self.plan.epochs * self.steps_per_epoch


class Hook:
    """Base class: every method does nothing; override what you need.

    A hook with state that outlives a step gives it a `name` and returns it from `state`: numbers, strings, lists,
    dicts with string keys, and tensors. It is saved in each checkpoint and handed back to `restore`.
    """

    name: str = ""

    def start(self, state: TrainState) -> None:
        """Before the first step of this process, after a checkpoint (if any) was restored."""

    def loss(self, state: TrainState, outputs: Tensor, targets: Tensor, loss: Tensor) -> Tensor:
        """The loss to descend; add penalties here."""
        return loss

    def after_backward(self, state: TrainState) -> bool | None:
        """Gradients are there; edit them here. Return True to leave the optimiser out of this step."""
        return None

    def after_step(self, state: TrainState) -> bool | None:
        """The optimiser has moved; re-apply masks here. Return True to end the epoch, and training, at this step."""
        return None

    def after_epoch(self, state: TrainState) -> bool:
        """The epoch is in `state.history[-1]`; return True to stop training here."""
        return False

    def end(self, state: TrainState) -> None:
        """After the last step."""

    def state(self) -> dict[str, Any]:
        """What a resumed run needs."""
        return {}

    def restore(self, state: dict[str, Any]) -> None:
        """Restore what `state` returned."""


class KeepBest(Hook):
    """Keeps the weights of the epoch with the best validation accuracy (regression: loss); the earlier wins ties."""

    name = "best"

    def __init__(self) -> None:
        self.epoch = 0
        self.value = float("-inf")
        self.weights: dict[str, Tensor] = {}

    def after_epoch(self, state: TrainState) -> bool:
        row = state.history[-1]
        accuracy, loss = row.get("validation_accuracy"), row.get("validation_loss")
        value = accuracy if accuracy is not None else -loss if loss is not None else None
        if value is not None and value > self.value:
            self.epoch, self.value = state.epoch, value
            self.weights = clone_state(state.model)
        return False

    def state(self) -> dict[str, Any]:
        return {"epoch": self.epoch, "value": self.value if self.epoch else None, "weights": self.weights}

    def restore(self, state: dict[str, Any]) -> None:
        if state["epoch"]:
            self.epoch, self.value, self.weights = state["epoch"], state["value"], state["weights"]


class ChargeEnergy(Hook):
    """Charges the joules of each epoch to the phase, so that they are in the checkpoint like everything else."""

    def __init__(self, meter: Meter) -> None:
        self.meter, self.charged = meter, 0.0

    def after_epoch(self, state: TrainState) -> bool:
        if self.meter.joules is not None:
            state.ledger.spend(state.phase, joules=self.meter.joules - self.charged)
            self.charged = self.meter.joules
        return False


def hooks_state(hooks: Sequence[Hook]) -> dict[str, Any]:
    """The state of all named hooks, by name."""
    return {hook.name: hook.state() for hook in hooks if hook.name}


def restore_hooks(hooks: Sequence[Hook], state: dict[str, Any]) -> None:
    """Give each named hook its saved state."""
    for hook in hooks:
        if hook.name in state:
            hook.restore(state[hook.name])


__getattr__ = renamed(__name__, {"Moment": "TrainState"})
