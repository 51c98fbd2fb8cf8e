"""A progress bar that appears after two seconds, on a terminal only."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol

PATIENCE = 2.0  # seconds before a bar shows


class Report(Protocol):
    """Called with the fraction done, 0 to 1, and what is being worked on."""

    def __call__(self, share: float, what: str = "") -> object: ...


@contextmanager
def bar(label: str) -> Iterator[Report]:
    """Yields a function to call with the fraction done, 0 to 1, and what is being worked on."""
    if not sys.stderr.isatty():
        yield lambda share, what="": None
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn("{task.description}"), BarColumn(), TimeRemainingColumn())
    shown = Progress(*columns, console=Console(stderr=True), transient=True)
    task = shown.add_task(label, total=1.0)
    begun = time.monotonic()

    def report(share: float, what: str = "") -> None:
        if time.monotonic() - begun > PATIENCE and not shown.live.is_started:
            shown.start()
        shown.update(task, completed=share, description=f"{label}: {what}" if what else label)

    try:
        yield report
    finally:
        shown.stop()
