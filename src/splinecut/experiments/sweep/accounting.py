"""What a sweep cost: FLOPs charged to its runs against FLOPs executed, written to `sweep.json`."""

from __future__ import annotations

import itertools
import json
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from splinecut.experiments.records import SWEEP_FILE, finished_record
from splinecut.experiments.run_folder import commit, versions
from splinecut.experiments.spec import Experiment
from splinecut.experiments.sweep.jobs import SHARED
from splinecut.files import write_json
from splinecut.pruning.engine.stages import FIRST, phase_of_cache
from splinecut.training.ledger import Charge, Ledger, Phase

if TYPE_CHECKING:
    from splinecut.experiments.sweep.scheduler import State


def write_account(name: str, state: State, out: str | Path, overrides: Sequence[str] = ()) -> dict[str, Any]:
    """Writes `sweep.json`: how each run ended, and what was executed against what the runs were charged."""
    facts = {
        "schema": 1,
        "sweep": name,
        "overrides": list(overrides),
        "date": datetime.now(UTC).date().isoformat(),
        "versions": versions(),
        "commit": commit(),
        "compute": compute(out, state.experiments),
        "failed": {state.experiments[number].folder: reason for number, reason in state.failed.items()},
        "lost workers": sum(state.crashes.values()),
        "runs": [experiment.folder for experiment in state.experiments],
    }
    write_json(Path(out) / SWEEP_FILE, facts)
    return facts


def compute(out: str | Path, experiments: Sequence[Experiment]) -> dict[str, Any]:
    """FLOPs (`full`) that the finished runs were charged, and FLOPs executed, where shared stages count once.

    Each run is charged for all of its stages. A stage that several runs use was executed once, in a shared folder
    that also holds its cost. Shared folders that none of these runs used belong to another sweep and do not count.
    """
    run_records = [finished_record(Path(out) / experiment.folder) for experiment in experiments]
    finished = [record for record in run_records if record is not None]
    ledgers = {name: _shared_ledger(Path(out) / SHARED / name) for record in finished for name in record.shared}
    executed = sum(ledger.total.flops for ledger in ledgers.values())
    for record in finished:
        elsewhere = {phase for name in record.shared for phase in ledgers[name].stages}
        executed += record.costs.total.flops - record.costs.only(elsewhere).total.flops
    charged = sum(record.costs.total.flops for record in finished)
    share = executed / charged if charged else None
    return {"charged_flops": charged, "executed_flops": executed, "share": share, "runs": len(finished)}


def _shared_ledger(folder: Path) -> Ledger:
    """What was executed in a shared folder: from the newest checkpoint of a training, or the cache of a search."""
    answers = folder / "answers.json"
    if answers.is_file():
        return _added([Ledger.from_dict(answer["cost"]) for answer in _json(answers).values()])
    newest = max(folder.glob("*.json"), default=None)
    if newest is None:
        return Ledger()
    # The checkpoint holds the ledger of the run that trained; earlier stages of it are executed elsewhere.
    training = phase_of_cache(folder.name)
    inside = {training, Phase("detect")} if training == FIRST else {training}
    return Ledger.from_dict(_json(newest)["state"]["ledger"]).only(inside)


def _added(ledgers: Sequence[Ledger]) -> Ledger:
    phases: dict[str, Charge] = {}
    for phase, charge in itertools.chain.from_iterable(ledgers):
        phases[phase] = phases.get(phase, Charge()) + charge
    return Ledger(phases)


def _json(path: Path) -> dict[str, Any]:
    content: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return content
