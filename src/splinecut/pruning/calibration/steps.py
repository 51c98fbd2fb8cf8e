"""The steps of a calibration: Adam on the imitation loss, with looks at held-out inputs; resumes at any step."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Int64
from torch import Tensor, nn

from splinecut.networks.cost import forward_flops
from splinecut.networks.inputs import Arguments, batches, count, held_out, take
from splinecut.networks.model_state import clone_state
from splinecut.progress_bar import bar
from splinecut.pruning.calibration.augmentation import Augment, check_augmented
from splinecut.pruning.calibration.imitation import block_error, common_blocks, resolve_loss, run
from splinecut.pruning.calibration.parameters import learning_parameters, step_size
from splinecut.pruning.calibration.saved_state import load_state
from splinecut.training import checkpoint
from splinecut.training.ledger import FORWARD, Ledger, Phase
from splinecut.training.loop import Diverged
from splinecut.training.optimizer_state import optimizer_state, restore_optimizer
from splinecut.training.seeding import generator

HELD_OUT = 8  # one of so many inputs is held out
CHECKS = 12  # looks at the held-out inputs, after the first one
WARMUP = 0.05  # of the steps, in which the rate rises: the first steps of Adam have full size whatever the gradient
WORSE = 4.0  # times the held-out loss of the start, which may rise for a while: there the rate was too high;
PATIENCE = 4  # looks after which it must be below that of the start, or the rate was too high too.
BACK_OFF = 0.25  # The rate becomes this part of itself, and the best weights so far come back
SAVE_SECONDS = 60  # between checkpoints at most; each look at the held-out inputs writes one too
SAME = 1e-6  # a held-out loss that is rounding: there is nothing to learn
PHASE = Phase("calibrate")


@dataclass(frozen=True)
class Settings:
    """What a call was told, apart from networks and inputs; checkpoints hold it."""

    steps: int
    batch: int
    learning_rate: float
    augment: str
    loss: str
    output: str | int | None
    seed: int


class Calibration:
    """The state of one call of `calibrate`. Both networks are in eval mode: batch norms keep their statistics."""

    def __init__(
        self,
        student: nn.Module,
        teacher: nn.Module,
        probe: Arguments,
        settings: Settings,
        augment: Augment | None,
        folder: Path | None,
    ) -> None:
        self.student, self.teacher, self.settings = student, teacher, settings
        self.augment, self.folder = augment, folder
        is_held = held_out(count(probe), HELD_OUT)
        self.fit, self.held = (take(probe, torch.nonzero(mask)[:, 0]) for mask in (~is_held, is_held))
        few = take(probe, slice(0, 2))
        self.blocks = common_blocks(teacher, student, few, settings.output)
        self.output_loss = resolve_loss(settings.loss, run(teacher, few, [], settings.output).output)
        self.trained = learning_parameters(student, teacher, few, self.blocks, settings.output)
        self.sizes = [step_size(parameter) for parameter in self.trained]
        self.optimizer = torch.optim.Adam(self.trained)
        self.step, self.checks, self.rate, self.seconds = 0, 0, 1.0, 0.0
        self.best, self.best_loss, self.start_loss = clone_state(student), math.inf, math.inf
        self.call: Mapping[str, Any] = {}
        self.clock = self.saved_at = time.perf_counter()

    def run(self) -> None:
        """All steps that are left; `best` has the weights to return."""
        steps = self.settings.steps
        with torch.no_grad():
            targets = [run(self.teacher, part, [], self.settings.output).output for part in self._held_parts()]
        with bar("calibrate") as report:
            if not self.checks:
                self._check(targets)
            while self.step < steps and self.start_loss > SAME:
                loss = self._step()
                is_due = self.step in self._check_steps()
                if is_due:
                    self._check(targets)
                elif time.perf_counter() - self.saved_at > SAVE_SECONDS:
                    self._save()
                report(self.step / steps, self._description(loss))

    def charge(self, ledger: Ledger, probe: Arguments) -> None:
        """Charges every pass that led to the result: those of both networks, and those on held-out inputs."""
        student, teacher = (forward_flops(model, probe) for model in (self.student, self.teacher))
        trained, checked = self.step * self.settings.batch, count(self.held)
        ledger.charge(PHASE, student, trained, seconds=self.seconds)
        ledger.charge(PHASE.with_part("teacher"), teacher, trained + checked, FORWARD)
        ledger.charge(PHASE.with_part("validate"), student, self.checks * checked, FORWARD)

    def resume(self, call: Mapping[str, Any]) -> None:
        """Takes up the newest checkpoint of the same call, if there is one."""
        self.call = call
        assert self.folder is not None
        saved = load_state(self.folder, call)
        if saved is None:
            return
        self.student.load_state_dict(saved["weights"])
        restore_optimizer(self.optimizer, saved["optimizer"])
        self.best = saved["best"]
        for name in ("step", "checks", "rate", "seconds", "best_loss", "start_loss"):
            setattr(self, name, saved[name])

    def _step(self) -> float:
        """One step of Adam; the loss before it."""
        settings = self.settings
        part = take(self.fit, self._rows())
        torch.manual_seed(settings.seed + self.step)  # of networks that draw numbers themselves, also in eval mode
        if self.augment is not None:
            part = check_augmented(part, self.augment(part, generator(settings.seed, self.step, 1)))
        with torch.no_grad():
            dense = run(self.teacher, part, self.blocks, settings.output)
        small = run(self.student, part, self.blocks, settings.output)
        loss = self.output_loss(small.output, dense.output.to(small.output))
        if self.blocks:
            loss = loss + block_error(small, dense)
        value = self._finite(float(loss.detach()))
        for group in self.optimizer.param_groups:
            group["lr"] = settings.learning_rate * self.rate * _schedule(self.step, settings.steps)
        self.optimizer.zero_grad(set_to_none=True)
        loss.backward()
        before = [parameter.detach().clone() for parameter in self.trained]
        self.optimizer.step()
        with torch.no_grad():
            for parameter, old, size in zip(self.trained, before, self.sizes, strict=True):
                parameter.copy_(torch.lerp(old, parameter, size))
        self.step += 1
        return value

    def _rows(self) -> Int64[Tensor, " batch"]:
        """The rows of this step: the probe in a new order for every epoch, a function of the step alone."""
        n_rows, size = count(self.fit), self.settings.batch
        places = range(self.step * size, (self.step + 1) * size)
        orders = {
            epoch: torch.randperm(n_rows, generator=generator(self.settings.seed, epoch))
            for epoch in {place // n_rows for place in places}
        }
        return torch.stack([orders[place // n_rows][place % n_rows] for place in places])

    @torch.no_grad()
    def _check(self, targets: list[Tensor]) -> None:
        """Measures the held-out loss, keeps the weights if they are the best so far, and lowers a rate too high."""
        losses, sizes = [], []
        for part, dense in zip(self._held_parts(), targets, strict=True):
            small = run(self.student, part, [], self.settings.output).output
            losses.append(float(self.output_loss(small, dense.to(small))) * count(part))
            sizes.append(count(part))
        loss = self._finite(sum(losses) / sum(sizes))
        self.checks += 1
        if self.checks == 1:
            self.start_loss = loss
        if loss < self.best_loss:
            self.best, self.best_loss = clone_state(self.student), loss
        elif loss > WORSE * self.start_loss or self._is_stuck():
            self.student.load_state_dict(self.best)
            self.optimizer.state.clear()  # its moments are those of gradients elsewhere
            self.rate *= BACK_OFF
        self._save()

    def _is_stuck(self) -> bool:
        """Whether the first rate has had its time and gained nothing; a lowered one has until the end."""
        return self.checks > PATIENCE and self.rate == 1 and self.best_loss == self.start_loss

    def _held_parts(self) -> list[Arguments]:
        return list(batches(self.held, self.settings.batch))

    def _check_steps(self) -> set[int]:
        steps = self.settings.steps
        return {max(1, round(steps * check / CHECKS)) for check in range(1, CHECKS + 1)}

    def _save(self) -> None:
        now = time.perf_counter()
        self.seconds, self.clock, self.saved_at = self.seconds + now - self.clock, now, now
        if self.folder is None:
            return
        state = {
            "call": dict(self.call),
            "weights": self.student.state_dict(),
            "optimizer": optimizer_state(self.optimizer),
            "best": self.best,
            "step": self.step,
            "checks": self.checks,
            "rate": self.rate,
            "seconds": self.seconds,
            "best_loss": self.best_loss,
            "start_loss": self.start_loss,
        }
        checkpoint.save(self.folder, self.step, state)

    def _finite(self, loss: float) -> float:
        if math.isfinite(loss):
            return loss
        kept = f"; the best weights so far are in {self.folder}" if self.folder and self.checks else ""
        raise Diverged(
            f"the loss of calibrate is {loss} at step {self.step}; lower learning_rate "
            f"(now {self.settings.learning_rate * self.rate:g}) or check the inputs{kept}"
        )

    def _description(self, loss: float) -> str:
        held = f"held-out {self.best_loss:.4g} (start {self.start_loss:.4g})"
        return f"calibrate  step {self.step}/{self.settings.steps}  loss {loss:.4g}  {held}"


def _schedule(step: int, steps: int) -> float:
    """What the rate is multiplied by: up over the first steps, then along half a cosine to zero."""
    rise = min(1.0, (step + 1) / max(1.0, WARMUP * steps))
    return rise * 0.5 * (1 + math.cos(math.pi * step / steps))
