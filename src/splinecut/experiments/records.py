"""The record of a finished run: one JSON file, written last and atomically, so that it marks the run complete."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from functools import reduce
from operator import getitem
from pathlib import Path
from typing import Any

from splinecut.errors import SplinecutError
from splinecut.files import write_json
from splinecut.training.ledger import Ledger

SCHEMA = 1
FILE = "record.json"
SWEEP_FILE = "sweep.json"  # beside the runs of a sweep: what was executed, what failed


class RecordUnreadable(SplinecutError):
    """A record is missing, half written, or not one of ours."""


@dataclass(frozen=True)
class Record:
    """The facts of one run; all numbers are achieved ones.

    test:    metrics right after the cut, of the last weights and of those best by validation; nothing is chosen by them
    ledger:  phase -> flops, paper_flops, images, seconds, joules
    latency: batch size -> median seconds of a forward pass of the final network, on the machine of the run
    pruning: method, budget asked and achieved, when it was drawn; None for a run without
    shared:  names of the stages that the run had in common with others of its sweep, or might have had
    """

    name: str
    digest: str
    spec: dict[str, Any]
    test: dict[str, dict[str, Any]]
    history: list[dict[str, Any]]
    parameters: int
    forward_flops: int
    ledger: dict[str, dict[str, Any]]
    energy: dict[str, Any]
    data_hash: str
    versions: dict[str, str]
    commit: str | None
    device: str
    latency: dict[str, float] = field(default_factory=dict)
    pruning: dict[str, Any] | None = None
    shared: list[str] = field(default_factory=list)
    schema: int = SCHEMA

    @property
    def costs(self) -> Ledger:
        """The ledger as an object that adds up."""
        return Ledger.from_dict(self.ledger)

    def save(self, folder: str | Path) -> Path:
        """Writes the record into its run folder; from then on the run is complete."""
        return write_json(Path(folder) / FILE, asdict(self))


def load(folder: str | Path) -> Record:
    """The record in a run folder."""
    path = Path(folder) / FILE
    try:
        facts = json.loads(path.read_text(encoding="utf-8"))
        schema = facts["schema"]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise RecordUnreadable(f"{path} is not a readable record ({type(error).__name__})") from None
    if schema != SCHEMA:
        raise RecordUnreadable(f"{path} has schema {schema}, expected {SCHEMA}; read it with the version that wrote it")
    try:
        record = Record(**facts)
        _touch(record)
    except (TypeError, KeyError, AttributeError, ValueError) as error:
        raise RecordUnreadable(f"{path} is not a record of ours ({type(error).__name__}: {error})") from None
    return record


_RELIED_ON = (  # keys that readers of records use without a check
    *("spec.seed", "spec.model.name", "spec.data.name", "spec.budget.keep", "spec.training.optimizer.name"),
    *("test.last.accuracy", "test.last.loss", "energy.measured_joules"),
)
_RELIED_ON_IF_PRUNED = ("pruning.achieved.density", "pruning.is_early", "test.after cut.loss")


def _touch(record: Record) -> None:
    """Reads the keys that others rely on, so that a foreign file fails here and not later."""
    facts = asdict(record)
    for path in (*_RELIED_ON, *(_RELIED_ON_IF_PRUNED if record.pruning is not None else ())):
        reduce(getitem, path.split("."), facts)
    float(record.parameters + record.forward_flops + record.costs.total.flops + record.spec["seed"])


def finished_record(folder: str | Path) -> Record | None:
    """The record in a run folder; None where there is none, or none that can be read."""
    try:
        return load(folder)
    except RecordUnreadable:
        return None


def is_complete(folder: str | Path) -> bool:
    """Whether the run in `folder` has finished."""
    return (Path(folder) / FILE).is_file()


def find(places: Iterable[str | Path]) -> tuple[list[Record], list[str]]:
    """All records in and below these folders, by name and seed, and one line on each that cannot be read."""
    loaded: list[Record] = []
    skipped: list[str] = []
    for place in places:
        files = sorted(Path(place).rglob(FILE))
        if not files:
            skipped.append(f"{place} holds no {FILE}; run an experiment there first")
        for file in files:
            try:
                loaded.append(load(file.parent))
            except RecordUnreadable as error:
                skipped.append(str(error))
    return sorted(loaded, key=lambda record: (record.name, record.spec.get("seed", 0))), skipped
