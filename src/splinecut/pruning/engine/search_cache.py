"""Answers of a long search kept on disk: a search that was killed asks again, is told what it knew, and goes on.

A search that is deterministic in its seed needs no other state for this. It is simply run again; what it had found is
read, not computed, and charged as it was the first time.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from torch import nn

from splinecut.files import write_json
from splinecut.locking import locked
from splinecut.training.ledger import Charge, Ledger

EVERY = 2.0  # seconds between writes: a quick search does not wait for the disk, a slow one loses one answer


class UncountedLedger(Ledger):
    """A ledger for what the paper leaves out: everything is charged in full, nothing as the paper counts."""

    def _add(self, phase: str, charge: Charge) -> None:
        super()._add(phase, replace(charge, paper_flops=0))


class SearchCache:
    """Key -> answer (plain JSON), with what it cost to find."""

    def __init__(self, path: Path | None, ledger: Ledger) -> None:
        self.path, self.ledger = path, ledger
        self._known: dict[str, dict[str, Any]] = _read(path) if path else {}
        self._charged: set[str] = set()
        self._written = time.monotonic()

    def get_or_compute(self, key: str, make: Callable[[Ledger], Any]) -> Any:
        """The answer to `key`; `make` finds it and charges the ledger it is handed, unless it is known already.

        Every run that asks is charged, once for each key, whoever found the answer: nobody searches for free.
        """
        if key not in self._known:
            book = UncountedLedger()
            self._known[key] = {"answer": make(book), "cost": book.to_dict()}
            if time.monotonic() - self._written > EVERY:
                self.write()
        if key not in self._charged:
            self._charged.add(key)
            for phase, charge in Ledger.from_dict(self._known[key]["cost"]):
                self.ledger.phases[phase] = self.ledger.phases.get(phase, Charge()) + charge
        return self._known[key]["answer"]

    def write(self) -> None:
        """Puts all answers on disk."""
        if self.path is not None:
            write_json(self.path, self._known)
        self._written = time.monotonic()


@contextmanager
def open_search_cache(folder: Path | None, ledger: Ledger) -> Iterator[SearchCache]:
    """A memory in `folder`, held by one process at a time: the others wait and then find the answers."""
    if folder is None:
        yield SearchCache(None, ledger)
        return
    with locked(folder, wait=True):
        memory = SearchCache(folder / "answers.json", ledger)
        yield memory
        memory.write()


def fingerprint(model: nn.Module) -> str:
    """A digest of all weights and buffers: answers about a network hold for exactly these."""
    sha = hashlib.sha256()
    for name, tensor in model.state_dict().items():
        sha.update(f"{name} {tuple(tensor.shape)} {tensor.dtype}".encode())
        sha.update(tensor.detach().cpu().contiguous().numpy().tobytes())
    return sha.hexdigest()[:16]


def _read(path: Path) -> dict[str, dict[str, Any]]:
    return json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}
