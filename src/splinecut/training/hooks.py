"""Where other rooms may step into training: a Hook is called at each batch, step and epoch, with the Moment."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from splinecut.moved import renamed

if TYPE_CHECKING:
    import torch
    from torch import Tensor, nn

    from splinecut.training.config import TrainingConfig
    from splinecut.training.ledger import Ledger


@dataclass
class TrainState:
    """Where training stands, as its hooks see it. They may change `model` in place, `.grad` and optimiser state.

    `epoch` counts finished epochs, `step` finished steps of the whole training; `batch` is (inputs, targets).
    """

    model: nn.Module
    optimizer: torch.optim.Optimizer
    plan: TrainingConfig
    phase: str
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
    """Does nothing at every moment; override what you need.

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
        """Takes back what `state` gave."""


def hooks_state(hooks: Sequence[Hook]) -> dict[str, Any]:
    """The state of all named hooks, by name."""
    return {hook.name: hook.state() for hook in hooks if hook.name}


def restore_hooks(hooks: Sequence[Hook], state: dict[str, Any]) -> None:
    """Hands each named hook its saved state."""
    for hook in hooks:
        if hook.name in state:
            hook.restore(state[hook.name])


__getattr__ = renamed(__name__, {"Moment": "TrainState"})
