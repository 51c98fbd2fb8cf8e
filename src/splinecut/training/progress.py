"""Console output of a training: a progress bar on a terminal, plain lines elsewhere."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeRemainingColumn

from splinecut.moved import renamed
from splinecut.training.hooks import Hook

if TYPE_CHECKING:
    from splinecut.training.hooks import TrainState

REFRESH = 0.25  # seconds between looks at the loss: a look waits for the device


class ConsoleProgress(Hook):
    """Shows loss, accuracy and time left; on a terminal as a progress bar, else as one line per epoch.

    Plain lines thin out to about twenty over a long training; the first and the last always show.
    """

    def __init__(self, console: Console | None = None) -> None:
        self.console = console or Console(stderr=True)
        self.bar: Progress | None = None
        self.task: TaskID | None = None
        self.looked_at = 0.0
        self.started_at = 0.0
        self.started_from = 0

    def message(self, message: str) -> None:
        """One line, above the bar if there is one."""
        self.console.print(message, style="dim", highlight=False, markup=False)

    def start(self, state: TrainState) -> None:
        self.started_at, self.started_from = time.monotonic(), state.step
        if self.console.is_terminal:
            columns = (TextColumn("{task.description}"), BarColumn(bar_width=24), TextColumn("{task.fields[facts]}"))
            self.bar = Progress(*columns, TimeRemainingColumn(compact=True), console=self.console, transient=True)
            self.task = self.bar.add_task(
                str(state.phase), total=max(1, state.total_steps), completed=state.step, facts=""
            )
            self.bar.start()

    def after_step(self, state: TrainState) -> None:
        now = time.monotonic()
        if self.bar is None or self.task is None or now - self.looked_at < REFRESH or state.last_loss is None:
            return
        self.looked_at = now
        loss = f"loss {float(state.last_loss):.3f}"
        facts = f"epoch {state.epoch + 1}/{state.plan.epochs}  {loss}  {_accuracy(state.history)}"
        self.bar.update(self.task, completed=state.step, facts=facts)

    def after_epoch(self, state: TrainState) -> bool:
        every = -(-state.plan.epochs // 20)
        is_due = state.epoch % every == 0 or state.epoch in (1, state.plan.epochs)
        if self.bar is None and is_due:
            loss = f"loss {state.history[-1]['train_loss']:.4f}"
            where = f"{state.phase}: epoch {state.epoch}/{state.plan.epochs}"
            self.message(f"{where}  {loss}  {_accuracy(state.history)}  {self._time_left(state)}")
        return False

    def end(self, state: TrainState) -> None:
        self.close()

    def close(self) -> None:
        """Remove the bar; safe to call twice, and after an error."""
        if self.bar is not None:
            self.bar.stop()
            self.bar = None

    def _time_left(self, state: TrainState) -> str:
        done = state.step - self.started_from
        left = (time.monotonic() - self.started_at) / max(1, done) * (state.total_steps - state.step)
        return f"{left:.0f} s left"


def _accuracy(history: list[dict[str, Any]]) -> str:
    if not history:
        return ""
    row = history[-1]
    if row.get("validation_accuracy") is not None:
        return f"validation {row['validation_accuracy']:.2%}"
    if row.get("train_accuracy") is not None:
        return f"train {row['train_accuracy']:.2%}"
    return f"validation loss {row['validation_loss']:.4g}" if "validation_loss" in row else ""


__getattr__ = renamed(__name__, {"Watch": "ConsoleProgress"})
