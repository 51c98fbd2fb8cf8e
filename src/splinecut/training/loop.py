"""The training loop: epochs of steps with hooks at each; resumes exactly from a checkpoint at any step."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from splinecut.errors import InputError, SplinecutError
from splinecut.networks.cost import forward_flops
from splinecut.training import checkpoint
from splinecut.training.data.batch_order import Order
from splinecut.training.devices import SINGLE_PROCESS, Processes
from splinecut.training.evaluate import Metrics, criterion, evaluate
from splinecut.training.hooks import Hook, TrainState, hooks_state, restore_hooks
from splinecut.training.ledger import FORWARD, Ledger, Phase
from splinecut.training.optimizer_state import optimizer_state, restore_optimizer

if TYPE_CHECKING:
    from splinecut.training.config import TrainingConfig
    from splinecut.training.data import DataSet

FEW_INPUTS = 8  # inputs; with fewer, a strided 1x1 convolution is not trained with channels last on a CPU
NAN_CHECK = 25  # steps between looks at the loss on an accelerator, where each look waits for the device


class Diverged(SplinecutError):
    """The loss is no longer a finite number."""


def train(
    model: nn.Module,
    data: DataSet,
    plan: TrainingConfig,
    *,
    seed: int = 0,
    device: torch.device | str = "cpu",
    ledger: Ledger | None = None,
    phase: Phase | str = "train",
    hooks: Sequence[Hook] = (),
    checkpoints: str | Path | None = None,
    processes: Processes = SINGLE_PROCESS,
    say: Callable[[str], None] | None = None,
    start_step: int = 0,
) -> list[dict[str, Any]]:
    """Train `model` in place and return its history, one row per epoch.

    A training that starts at `start_step` does what is left of the plan from there on.

    With `checkpoints` (a folder) it resumes exactly from the newest one there: data order and augmentation are
    functions of (seed, epoch, batch), all else is in the checkpoint. Every pass is charged to `ledger` under `phase`.
    The global random state is used for dropout and restored afterwards.
    """
    device = torch.device(device)
    with torch.random.fork_rng(devices=[device] if device.type == "cuda" else []):
        torch.manual_seed(seed + processes.rank)
        training = _Training(
            model, data, plan, seed, device, ledger or Ledger(), Phase.parse(phase), hooks, checkpoints, processes
        )
        training.state.epoch, training.state.step = start_step // training.state.steps_per_epoch, start_step
        training.resume(say)
        return training.run()


class _Training:
    """The state of one call of `train`."""

    def __init__(
        self,
        model: nn.Module,
        data: DataSet,
        plan: TrainingConfig,
        seed: int,
        device: torch.device,
        ledger: Ledger,
        phase: Phase,
        hooks: Sequence[Hook],
        checkpoints: str | Path | None,
        processes: Processes,
    ) -> None:
        _check_batches(len(data.train), plan.batch_size, processes.world)
        self.data, self.plan, self.seed, self.device = data, plan, seed, device
        self.hooks, self.processes = hooks, processes
        self.checkpoints = Path(checkpoints) if checkpoints else None
        self.dtype = {"float32": torch.float32, "float64": torch.float64}[plan.precision]
        model.to(device, self.dtype)
        self.channels_last = plan.channels_last and device.type != "mps" and not _breaks_channels_last(model, device)
        # Four-dimensional weights only; others keep their layout.
        layout = torch.channels_last if self.channels_last else torch.contiguous_format
        model.to(memory_format=layout)  # type: ignore[call-overload]
        self.optimizer = plan.optimizer.build(p for p in model.parameters() if p.requires_grad)
        self.criterion = criterion(data.task, plan.label_smoothing)
        self.scaler = torch.amp.GradScaler(device.type, enabled=self._half() == torch.float16)
        steps = -(-len(data.train) // plan.batch_size)
        flops = forward_flops(model, data.input_shape)
        self.state = TrainState(model, self.optimizer, plan, phase, steps, ledger, flops)
        self.net = processes.wrap(model, device)
        self.is_stopping = False
        self._start_epoch()
        self.clock = time.perf_counter()
        self.saved_at = self.clock

    def run(self) -> list[dict[str, Any]]:
        state = self.state
        for hook in self.hooks:
            hook.start(state)
        stopped = bool(state.history and state.history[-1].get("stopped"))
        while state.epoch < self.plan.epochs and not stopped:
            self._epoch()
            stopped = self._close_epoch()
            self._save()
        for hook in self.hooks:
            hook.end(state)
        return state.history

    def _epoch(self) -> None:
        self.net.train()
        state, plan = self.state, self.plan
        # Batches follow from (seed, epoch, number), so that a resumed epoch skips them without computing any.
        skip = state.step - state.epoch * state.steps_per_epoch
        order = Order(plan.batch_size, True, self.seed, state.epoch, skip, self.processes.rank, self.processes.world)
        batches = self.data.train.batches(
            order, augment=plan.augment, device=self.device, channels_last=self.channels_last
        )
        for x, y in batches:
            self._step(x.to(self.dtype), y)
            if self.is_stopping:
                return
            if time.perf_counter() - self.saved_at > 60 * plan.checkpoint_minutes and self.processes.world == 1:
                self._save()

    def _step(self, x: Tensor, y: Tensor) -> None:
        state, plan = self.state, self.plan
        # A function of the step, not a scheduler that counts: a resumed or rewound training needs no state for it.
        rate = plan.optimizer.lr * plan.schedule.factor(state.step, plan.epochs, state.steps_per_epoch)
        for group in self.optimizer.param_groups:
            group["lr"] = rate
        state.learning_rate, state.batch = rate, (x, y)
        self.optimizer.zero_grad(set_to_none=True)
        with self._autocast():
            outputs = self.net(x)
            loss = self.criterion(outputs, y if self.data.task == "classification" else y.to(self.dtype))
        for hook in self.hooks:
            loss = hook.loss(state, outputs, y, loss)
        state.last_loss = loss.detach()
        self._count(outputs.detach(), y, state.last_loss)
        n = self._global_batch()
        # Each process sees its share of the batch; this makes the average of their gradients the gradient of the whole.
        weight = len(y) * self.processes.world / n
        self.scaler.scale(loss if weight == 1 else loss * weight).backward()
        self.scaler.unscale_(self.optimizer)
        # A list, not `any` over the hooks: that would stop at the first True and leave out the hooks after it.
        skips = [hook.after_backward(state) for hook in self.hooks]
        if not any(skips):
            self.scaler.step(self.optimizer)
        self.scaler.update()
        state.step += 1
        state.ledger.charge(state.phase, state.forward_flops, n, spared_flops=state.spared_flops)
        stops = [hook.after_step(state) for hook in self.hooks]
        self.is_stopping = any(stops)

    def _count(self, outputs: Tensor, y: Tensor, loss: Tensor) -> None:
        self.loss_sum += loss.double() * len(y) if self.device.type != "mps" else loss * len(y)
        if self.data.task == "classification":
            self.correct += (outputs.argmax(1) == y).sum()
        self.seen += len(y)
        # On a GPU the check waits for the device, so that it is made now and then; the running sum stays NaN till then.
        if self.device.type == "cpu" or self.state.step % NAN_CHECK == 0:
            self._refuse_nan(self.loss_sum)

    def _close_epoch(self) -> bool:
        """Validate, add the epoch's row to the history, call the hooks; True when one of them stops training."""
        state = self.state
        state.epoch += 1
        sums = torch.stack([self.loss_sum.cpu().double(), self.correct.cpu().double(), torch.tensor(float(self.seen))])
        loss, correct, seen = self.processes.sum(sums.double()).tolist()
        self._refuse_nan(torch.tensor(loss))
        row: dict[str, Any] = {
            "epoch": state.epoch,
            "step": state.step,
            "learning_rate": state.learning_rate,
            "train_loss": loss / seen,
            "train_accuracy": correct / seen if self.data.task == "classification" else None,
        }
        if len(self.data.validation):
            metrics = self._validate()
            row |= {"validation_loss": metrics.loss, "validation_accuracy": metrics.accuracy}
        state.history.append(row)
        self._start_epoch()
        stops = [hook.after_epoch(state) for hook in self.hooks]
        row["stopped"] = self.is_stopping or any(stops)
        return row["stopped"]

    def _validate(self) -> Metrics:
        state = self.state
        self._spend_time()
        metrics = evaluate(
            state.model, self.data.validation, self.data.task, device=self.device, processes=self.processes
        )
        self._refuse_nan(torch.tensor(metrics.loss))
        validating = state.phase.with_part("validate")
        state.ledger.charge(validating, state.forward_flops, metrics.images, FORWARD)
        self._spend_time(validating)
        return metrics

    def _start_epoch(self) -> None:
        kind = torch.float32 if self.device.type == "mps" else torch.float64
        self.loss_sum = torch.zeros((), dtype=kind, device=self.device)
        self.correct = torch.zeros((), dtype=torch.int64, device=self.device)
        self.seen = 0

    def _save(self) -> None:
        """Write a checkpoint, if there is a folder for it: the main process does, with the random state of all."""
        self._spend_time()
        self.saved_at = time.perf_counter()
        if self.checkpoints is None:
            return
        random = self.processes.gather(torch.get_rng_state())
        cuda = self.processes.gather(torch.cuda.get_rng_state()) if self.device.type == "cuda" else []
        if self.processes.is_main:
            state = self.state
            self._refuse_nan(self.loss_sum)  # or a resumed training would start from NaN
            saved = {
                "weights": state.model.state_dict(),
                "optimizer": optimizer_state(self.optimizer),
                "scaler": self.scaler.state_dict(),
                "random": random,
                "random_cuda": cuda,
                "epoch": state.epoch,
                "step": state.step,
                "learning_rate": state.learning_rate,
                "history": state.history,
                # A checkpoint may lie inside an epoch, so that its running sums are part of the state.
                "sums": {"loss": self.loss_sum, "correct": self.correct, "seen": self.seen},
                "ledger": state.ledger.to_dict(),
                "hooks": hooks_state(self.hooks),
                "data": self.data.hash,
            }
            checkpoint.save(self.checkpoints, state.step, saved)
        self.processes.barrier()

    def resume(self, say: Callable[[str], None] | None) -> None:
        """Restore the newest checkpoint, if there is one."""
        saved = checkpoint.load_newest(self.checkpoints, say) if self.checkpoints else None
        if saved is None:
            return
        if saved["data"] != self.data.hash:
            raise InputError(
                f"the data set {self.data.name!r} has changed since this run began; "
                "bring back the old one, or start anew in another --out folder"
            )
        state = self.state
        state.model.load_state_dict(saved["weights"])
        restore_optimizer(self.optimizer, saved["optimizer"])
        self.scaler.load_state_dict(saved["scaler"])
        # Each process's own: dropout continues with the draws that an uninterrupted training would make.
        torch.set_rng_state(saved["random"][self.processes.rank])
        if saved["random_cuda"]:
            torch.cuda.set_rng_state(saved["random_cuda"][self.processes.rank])
        state.epoch, state.step, state.history = saved["epoch"], saved["step"], saved["history"]
        state.learning_rate = saved["learning_rate"]
        sums = saved["sums"]
        self.loss_sum, self.correct = sums["loss"].to(self.device), sums["correct"].to(self.device)
        self.seen = sums["seen"]
        # In place of what was charged so far: the checkpoint's ledger has the stages before this one as well.
        state.ledger.phases = Ledger.from_dict(saved["ledger"]).phases
        restore_hooks(self.hooks, saved["hooks"])
        if say:
            say(f"resuming {state.phase} at epoch {state.epoch}, step {state.step}")

    def _spend_time(self, phase: Phase | None = None) -> None:
        """Charge the time since the last call to `phase`."""
        now = time.perf_counter()
        self.state.ledger.spend(phase or self.state.phase, seconds=now - self.clock)
        self.clock = now

    def _global_batch(self) -> int:
        """Images in this step's batch, over all processes."""
        within = self.state.step % self.state.steps_per_epoch
        return min(self.plan.batch_size, len(self.data.train) - within * self.plan.batch_size)

    def _half(self) -> torch.dtype | None:
        """The half-precision type to train in, None for full precision."""
        if self.device.type != "cuda" or not self.plan.amp or self.dtype == torch.float64:
            return None
        return torch.bfloat16 if torch.cuda.is_bf16_supported() else torch.float16

    def _autocast(self) -> Any:
        half = self._half()
        return torch.autocast(self.device.type, dtype=half) if half else nullcontext()

    def _refuse_nan(self, loss: Tensor) -> None:
        if torch.isfinite(loss):
            return
        state = self.state
        kept = f"; the last checkpoint in {self.checkpoints} is good" if self.checkpoints else ""
        raise Diverged(
            f"the loss of {str(state.phase)!r} is {float(loss)} at step {state.step} (epoch {state.epoch + 1}); "
            f"lower the learning rate (now {state.learning_rate:g}) or check the inputs{kept}"
        )


def _breaks_channels_last(model: nn.Module, device: torch.device) -> bool:
    """Whether training `model` with channels last on this CPU writes where it must not.

    The backward pass of a strided 1x1 convolution with few input channels does, in torch 2.13 (seen with 1 to 5):
    a narrow shortcut, as pruning leaves behind.
    """
    return device.type == "cpu" and any(
        isinstance(module, nn.Conv2d)
        and module.kernel_size == (1, 1)
        and module.stride != (1, 1)
        and module.in_channels // module.groups < FEW_INPUTS
        for module in model.modules()
    )


def _check_batches(images: int, batch_size: int, world: int) -> None:
    last = images % batch_size or batch_size
    if world > 1 and min(batch_size, last) < world:
        raise InputError(
            f"the last batch has {last} of {images} images, fewer than the {world} processes; "
            f"change batch_size (now {batch_size})"
        )
