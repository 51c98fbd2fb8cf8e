"""On-disk cache of candidate evaluations, so that an interrupted search resumes.

A search that is deterministic in its seed needs no other state: it runs again from its start, and evaluations that were
finished are read instead of computed, and charged as they were the first time.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from splinecut.files import write_json
from splinecut.locking import locked
from splinecut.training.ledger import Charge, Ledger, UncountedLedger

EVERY = 2.0  # seconds between writes: a quick search does not wait for the disk, a slow one loses one evaluation


class SearchCache:
    """Key -> result (plain JSON), with what it cost to compute."""

    def __init__(self, path: Path | None, ledger: Ledger) -> None:
        self.path, self.ledger = path, ledger
        self._entries: dict[str, dict[str, Any]] = _read(path) if path else {}
        self._charged: set[str] = set()
        self._written = time.monotonic()

    def get_or_compute(self, key: str, compute: Callable[[Ledger], Any]) -> Any:
        """The result stored under `key`, or else `compute(ledger)`, which charges its cost to that ledger.

        Each run is charged once per key, cached or not: a comparison of methods must not depend on which ran first.
        """
        if key not in self._entries:
            # A ledger of its own: the cost is stored beside the result, for runs that only read it.
            ledger = UncountedLedger()
            self._entries[key] = {"answer": compute(ledger), "cost": ledger.to_dict()}
            if time.monotonic() - self._written > EVERY:
                self.write()
        if key not in self._charged:
            self._charged.add(key)
            for phase, charge in Ledger.from_dict(self._entries[key]["cost"]):
                self.ledger.phases[phase] = self.ledger.phases.get(phase, Charge()) + charge
        return self._entries[key]["answer"]

    def write(self) -> None:
        """Write all results to disk."""
        if self.path is not None:
            write_json(self.path, self._entries)
        self._written = time.monotonic()


@contextmanager
def open_search_cache(folder: Path | None, ledger: Ledger) -> Iterator[SearchCache]:
    """The cache in `folder`, locked for one process at a time: others wait and then read what it stored."""
    if folder is None:
        yield SearchCache(None, ledger)
        return
    with locked(folder, wait=True):
        cache = SearchCache(folder / "answers.json", ledger)
        yield cache
        cache.write()


def _read(path: Path) -> dict[str, dict[str, Any]]:
    return json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}
