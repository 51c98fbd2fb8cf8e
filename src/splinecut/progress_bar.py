"""A progress bar that appears after two seconds, on a terminal only."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

PATIENCE = 2.0  # seconds before a bar shows


@contextmanager
def bar(label: str) -> Iterator[Callable[[float], object]]:
    """Yields a function to call with the fraction done, 0 to 1."""
    if not sys.stderr.isatty():
        yield lambda share: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn("{task.description}"), BarColumn(), TimeRemainingColumn())
    shown = Progress(*columns, console=Console(stderr=True), transient=True)
    task = shown.add_task(label, total=1.0)
    begun = time.monotonic()

    def report(share: float) -> None:
        if time.monotonic() - begun > PATIENCE and not shown.live.is_started:
            shown.start()
        shown.update(task, completed=share)

    try:
        yield report
    finally:
        shown.stop()
