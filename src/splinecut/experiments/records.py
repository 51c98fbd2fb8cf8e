"""What a finished run leaves behind: one JSON file, written last, by rename."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from splinecut.errors import SplinecutError
from splinecut.files import write_json
from splinecut.training.ledger import Ledger

SCHEMA = 1
FILE = "record.json"


class RecordUnreadable(SplinecutError):
    """A record is missing, half written, or not one of ours."""


@dataclass(frozen=True)
class Record:
    """The facts of one run; all numbers are achieved ones.

    test:    metrics right after the cut, of the last weights and of those best by validation; nothing is chosen by them
    ledger:  phase -> flops, paper_flops, images, seconds, joules
    latency: batch size -> median seconds of a forward pass of the final network, on the machine of the run
    pruning: method, budget asked and achieved, when it was drawn; None for a run without
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
    latency: dict[str, float]
    pruning: dict[str, Any] | None
    data_hash: str
    versions: dict[str, str]
    commit: str | None
    device: str
    extra: dict[str, Any] = field(default_factory=dict)
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
        return Record(**facts)
    except TypeError as error:
        raise RecordUnreadable(f"{path} is not a record of ours ({error})") from None


def is_complete(folder: str | Path) -> bool:
    """Whether the run in `folder` has finished."""
    return (Path(folder) / FILE).is_file()
