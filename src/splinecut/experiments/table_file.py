"""Tables as JSON files to commit: every number of every seed, versions and commands; `splinecut table` reads them."""

from __future__ import annotations

import json
import shlex
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from splinecut.errors import InputError
from splinecut.experiments.records import SWEEP_FILE, Record
from splinecut.experiments.run_folder import versions
from splinecut.experiments.summaries import Row, merged, rows
from splinecut.files import write_json

SCHEMA = 1
KIND = "splinecut table"


def save(path: Path, records: Sequence[Record], places: Sequence[Path], earlier: Sequence[Path] = ()) -> Path:
    """Writes the rows of these records with their sweeps, merged with the tables in `earlier`."""
    tables = [_read(file) for file in earlier]
    sweeps = [sweep for place in places if (sweep := _sweep(place)) is not None]
    facts = {
        "kind": KIND,
        "schema": SCHEMA,
        "date": datetime.now(UTC).date().isoformat(),
        "versions": versions(),
        "commits": sorted(
            {record.commit for record in records if record.commit}.union(*(table["commits"] for table in tables))
        ),
        "data": dict(
            [(name, sha) for table in tables for name, sha in table["data"].items()]
            + [(record.spec["data"]["name"], record.data_hash) for record in records]
        ),
        "sweeps": [*(sweep for table in tables for sweep in table["sweeps"]), *sweeps],
    }
    joined = merged([*rows(records), *(row for table in tables for row in rows_of(table))])
    return write_json(path, {**facts, "rows": [_plain(row) for row in joined]})


def load(path: Path) -> list[Row]:
    """The rows of a committed table."""
    return rows_of(_read(path))


def _read(path: Path) -> dict[str, Any]:
    """A committed table, checked."""
    try:
        table: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        rows_of(table)
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise InputError(
            f"{path} is not a table that `splinecut table --json` wrote ({error}); give run folders or such a file"
        ) from error
    return table


def rows_of(table: dict[str, Any]) -> list[Row]:
    """The rows of a committed table that was read already."""
    if table["kind"] != KIND or table["schema"] != SCHEMA:
        raise ValueError(f"kind {table['kind']!r}, schema {table['schema']!r}")
    return [_row(each) for each in table["rows"]]


def _plain(row: Row) -> dict[str, Any]:
    by_seed = {str(seed): numbers for seed, numbers in sorted(row.by_seed.items())}
    named = {"asked": row.asked, "task": row.task, "name": row.name, "keep": row.keep, "of": row.of}
    return {**named, "published": row.published, "by_seed": by_seed}


def _row(plain: dict[str, Any]) -> Row:
    by_seed = {int(seed): dict(numbers) for seed, numbers in plain["by_seed"].items()}
    return Row(plain["asked"], plain["task"], plain["name"], plain["keep"], plain["of"], by_seed, plain["published"])


def _sweep(place: Path) -> dict[str, Any] | None:
    """The account of a sweep in `place`, with the command that runs it again; None where there is none."""
    try:
        sweep = json.loads((place / SWEEP_FILE).read_text(encoding="utf-8"))
        changes = [f"--set {shlex.quote(change)}" for change in sweep.get("overrides", [])]
        command = " ".join(["splinecut sweep", sweep["sweep"], *changes])
        return {"command": command, **{key: sweep[key] for key in ("compute", "failed", "lost workers")}}
    except (OSError, ValueError, KeyError, TypeError):
        return None
