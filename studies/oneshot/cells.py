"""The engine: every (network, probe, keep, row) is a cell, one line of JSON in a file of its own, made once.

A file is written by rename, so that an interrupted benchmark goes on where it stopped. A cell is made again when what
decides it (the row's options, the number of inputs) has changed, or when it was skipped: what it lacked may be there by
now. Changes of the package itself are not noticed; every cell says from which commit it is.
"""

from __future__ import annotations

import functools
import gc
import hashlib
import itertools
import json
import re
import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from splinecut.errors import ProbeWarning
from splinecut.experiments.run_folder import commit
from splinecut.files import write_text
from splinecut.networks.cost import parameters
from splinecut.networks.inputs import as_arguments, count
from studies.oneshot.rows import NotPossible, Row, Setting
from studies.oneshot.subject import Inputs, Subject, measures

Cell = dict[str, Any]


@dataclass(frozen=True)
class Place:
    """Where a cell stands: network, split of the test inputs, number of the probe, share of FLOPs, row."""

    network: str
    split: str
    probe: int
    keep: float
    row: str

    def file(self, folder: Path) -> Path:
        """The cell's own file; rows whose names differ by punctuation alone stay apart by a digest."""
        slug = re.sub(r"[^a-z0-9]+", "-", self.row.lower()).strip("-")
        mark = hashlib.sha256(self.row.encode()).hexdigest()[:4]
        return folder / self.network / f"{self.split}-probe{self.probe}-{self.keep:g}-{slug}-{mark}.json"


@dataclass(frozen=True)
class Engine:
    """Makes the cells of one subject. `rows`: all there are, by name; a row may go on from another's cell."""

    subject: Subject
    split: str
    rows: Mapping[str, Row]
    folder: Path
    say: Callable[[str], None] = print

    def run(self, names: Sequence[str], keeps: Sequence[float], probes: Sequence[int]) -> list[Cell]:
        """The cells of these rows, shares and probes, in order; those that are stored are read."""
        places = [
            Place(self.subject.name, self.split, probe, keep, name)
            for probe, keep, name in itertools.product(probes, keeps, names)
        ]
        cells: list[Cell] = []
        number, probe = None, None  # one probe at a time: several would fill the memory
        for done, place in enumerate(places, 1):
            cell = self.stored(place)
            if cell is None:
                if number != place.probe:
                    number, probe = place.probe, self.subject.probe(place.probe)
                assert probe is not None
                cell = self.made(place, probe)
                self.say(f"[{done}/{len(places)}] {line(cell)}")
            cells.append(cell)
        return cells

    def stored(self, place: Place) -> Cell | None:
        """The cell as it was made before; None where there is none that still holds."""
        try:
            cell: Cell = json.loads(place.file(self.folder).read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return None
        return None if "skipped" in cell or cell.get("digest") != self._digest(place) else cell

    def made(self, place: Place, probe: Inputs) -> Cell:
        """Makes a cell and stores it."""

        def known(name: str) -> Cell:
            other = replace(place, row=name)
            return self.stored(other) or self.made(other, probe)

        cell: Cell = {**asdict(place), "digest": self._digest(place), "commit": _commit()}
        cell["probe inputs"] = count(as_arguments(probe))
        try:
            with _probe_warnings() as said:
                found = self.rows[place.row].make(Setting(self.subject, place.probe, probe, place.keep), known)
            started = time.perf_counter()
            cell |= {
                "flops": found.flops,
                "share": found.flops / self.subject.flops,
                "parameters": parameters(found.model),
                **measures(self.subject, found.model),
                "predicted": found.predicted,
                "draw seconds": round(found.draw_seconds, 2),
                "cut seconds": round(found.cut_seconds, 2),
                "test seconds": round(time.perf_counter() - started, 2),
                "warnings": said,
                "residual": found.residual,
                "kept": found.kept,
            }
            del found
            gc.collect()  # cut networks hold cycles, and the next one comes soon
        except NotPossible as reason:
            cell["skipped"] = " ".join(str(reason).split())
        write_text(place.file(self.folder), json.dumps(cell) + "\n")
        return cell

    def _digest(self, place: Place) -> str:
        """Of what decides a cell and can be told without making it."""
        facts = [self.rows[place.row].facts, self.subject.flops, count(as_arguments(self.subject.test))]
        return hashlib.sha256(json.dumps(facts).encode()).hexdigest()[:12]


_commit = functools.cache(commit)  # asked for in every cell, and git takes a while


@contextmanager
def _probe_warnings() -> Iterator[list[str]]:
    """Warnings about the probe, kept for the cell instead of printed."""
    said: list[str] = []
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", ProbeWarning)
        yield said
        said += sorted({str(one.message) for one in caught if issubclass(one.category, ProbeWarning)})


def line(cell: Cell) -> str:
    """A cell in one line, for people who wait."""
    where = f"{cell['network']} probe {cell['probe']} keep {cell['keep']:g} {cell['row']}"
    if "skipped" in cell:
        return f"{where}: skipped, {cell['skipped']}"
    took = f"{cell['draw seconds']:.0f} + {cell['cut seconds']:.0f} s"
    return f"{where}: {cell['score']:.4f}, divergence {cell['divergence']:.3g}, FLOPs {cell['share']:.4f}, {took}"
