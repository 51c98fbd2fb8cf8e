"""What a person sees while training runs: a live line on a terminal, plain lines elsewhere."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeRemainingColumn

from splinecut.training.hooks import Hook

if TYPE_CHECKING:
    from splinecut.training.hooks import Moment

REFRESH = 0.25  # seconds between looks at the loss: a look waits for the device


class Watch(Hook):
    """Shows loss, accuracy and time left; on a terminal as a bar that moves, else as one line an epoch.

    Plain lines thin out to about twenty over a long training; the first and the last always show.
    """

    def __init__(self, console: Console | None = None) -> None:
        self.console = console or Console(stderr=True)
        self.bar: Progress | None = None
        self.task: TaskID | None = None
        self.looked_at = 0.0
        self.started_at = 0.0
        self.started_from = 0

    def say(self, message: str) -> None:
        """One line, above the bar if there is one."""
        self.console.print(message, style="dim", highlight=False, markup=False)

    def start(self, moment: Moment) -> None:
        self.started_at, self.started_from = time.monotonic(), moment.step
        if self.console.is_terminal:
            columns = (TextColumn("{task.description}"), BarColumn(bar_width=24), TextColumn("{task.fields[facts]}"))
            self.bar = Progress(*columns, TimeRemainingColumn(compact=True), console=self.console, transient=True)
            self.task = self.bar.add_task(
                moment.phase, total=max(1, moment.total_steps), completed=moment.step, facts=""
            )
            self.bar.start()

    def after_step(self, moment: Moment) -> None:
        now = time.monotonic()
        if self.bar is None or self.task is None or now - self.looked_at < REFRESH or moment.last_loss is None:
            return
        self.looked_at = now
        loss = f"loss {float(moment.last_loss):.3f}"
        facts = f"epoch {moment.epoch + 1}/{moment.plan.epochs}  {loss}  {_accuracy(moment.history)}"
        self.bar.update(self.task, completed=moment.step, facts=facts)

    def after_epoch(self, moment: Moment) -> bool:
        every = -(-moment.plan.epochs // 20)
        is_due = moment.epoch % every == 0 or moment.epoch in (1, moment.plan.epochs)
        if self.bar is None and is_due:
            loss = f"loss {moment.history[-1]['train_loss']:.4f}"
            where = f"{moment.phase}: epoch {moment.epoch}/{moment.plan.epochs}"
            self.say(f"{where}  {loss}  {_accuracy(moment.history)}  {self._time_left(moment)}")
        return False

    def end(self, moment: Moment) -> None:
        self.close()

    def close(self) -> None:
        """Takes the bar away; safe to call twice, and after an error."""
        if self.bar is not None:
            self.bar.stop()
            self.bar = None

    def _time_left(self, moment: Moment) -> str:
        done = moment.step - self.started_from
        left = (time.monotonic() - self.started_at) / max(1, done) * (moment.total_steps - moment.step)
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
