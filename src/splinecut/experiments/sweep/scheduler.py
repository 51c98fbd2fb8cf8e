"""Runs a sweep: what is finished is skipped, what was interrupted goes on, what fails does not stop the rest."""

from __future__ import annotations

import itertools
import json
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from splinecut.experiments import records
from splinecut.experiments.records import Record, RecordUnreadable
from splinecut.experiments.run_folder import commit, versions
from splinecut.experiments.spec import Experiment
from splinecut.experiments.sweep.worker_pool import SHARED, Ending, Job, Pool
from splinecut.files import write_json
from splinecut.training.ledger import Charge, Ledger

if TYPE_CHECKING:
    from splinecut.experiments.plan import Plan

FILE = "sweep.json"
RETRIES = 5  # times that a run whose worker died is given to another one
TICK = 0.5  # seconds between looks at the clock while nothing ends


@dataclass
class State:
    """Where a sweep stands; `skipped` runs were complete before it began."""

    experiments: Sequence[Experiment]
    skipped: int = 0
    done: list[int] = field(default_factory=list)
    failed: dict[int, str] = field(default_factory=dict)
    running: set[int] = field(default_factory=set)
    lost: Counter[int] = field(default_factory=Counter)  # workers that died at each run
    begun: float = field(default_factory=time.monotonic)

    @property
    def ended(self) -> int:
        return self.skipped + len(self.done) + len(self.failed)

    @property
    def seconds_left(self) -> float | None:
        """What the runs that are left take at the pace so far; None before the first has ended."""
        n = len(self.done) + len(self.failed)
        return (time.monotonic() - self.begun) / n * (len(self.experiments) - self.ended) if n else None


Tell = Callable[[State, Ending | None], object]


def run(
    experiments: Sequence[Experiment | Plan],
    out: str | Path,
    pool: Pool,
    data_dir: str | Path | None = None,
    device: str = "auto",
    retries: int = RETRIES,
    tell: Tell = lambda state, ending: None,
    threads: int = 1,
) -> State:
    """Does every run that has no record in `out` yet, as many at a time as the pool has slots; closes the pool.

    Plans are made here, once for each run, where they were not made before, and go to the workers as they are.
    A run whose worker dies is taken up by another one, `retries` times. A run that fails is noted with its reason.
    `tell` hears of each ending, and twice a second that time passes.
    """
    from splinecut.experiments.plan import plan

    out, data = Path(out), Path(data_dir) if data_dir else None
    plans = [plan(one) for one in experiments]
    state = State([made.experiment for made in plans])
    queue = _Queue([shared_stages(made) for made in plans])
    for number, made in enumerate(plans):
        if _record(out / made.experiment.folder) is not None:
            state.skipped += 1
            queue.finished(number)
        else:
            queue.pending.append(number)
    try:
        while queue.pending or state.running:
            while queue.pending and len(state.running) < pool.slots:
                number = queue.next(state.running)
                state.running.add(number)
                pool.start(number, Job(plans[number], out, data, device, threads))
            endings = pool.wait(TICK)
            for ending in endings:
                _note(state, queue, ending, retries)
                tell(state, ending)
            if not endings:
                tell(state, None)
    finally:
        pool.close()
    return state


def _record(folder: Path) -> Record | None:
    """The record in a run folder; None where there is none, or none that can be read."""
    try:
        return records.load(folder)
    except RecordUnreadable:
        return None


def _note(state: State, queue: _Queue, ending: Ending, retries: int) -> None:
    """Writes an ending into the books; a lost run goes back to the front of the queue."""
    number = ending.number
    state.running.remove(number)
    if ending.is_lost:
        state.lost[number] += 1
    if ending.is_lost and state.lost[number] <= retries:
        queue.pending.insert(0, number)
    elif ending.reason is not None:
        state.failed[number] = ending.reason
    else:
        state.done.append(number)
        queue.finished(number)


class _Queue:
    """Runs that wait. A run is held back while another one is busy with a stage that both have in common."""

    def __init__(self, stages: Sequence[frozenset[str]]) -> None:
        self.stages = stages
        self.ready: set[str] = set()
        self.pending: list[int] = []

    def finished(self, number: int) -> None:
        self.ready |= self.stages[number]

    def next(self, running: set[int]) -> int:
        """Takes out the first run that need not wait for another; where all must, the first one."""
        busy = frozenset().union(*(self.stages[number] for number in running)) - self.ready
        free = (number for number in self.pending if not self.stages[number] & busy)
        number = next(free, self.pending[0])
        self.pending.remove(number)
        return number


def shared_stages(asked: Experiment | Plan) -> frozenset[str]:
    """Names of the stages that a run may have in common with others: its start, its first training, its search."""
    from splinecut.experiments.plan import plan

    made = plan(asked)
    experiment, method = made.experiment, made.method
    common = experiment.model_dump(mode="json", include={"seed", "model", "data", "start", "training", "detector"})
    begun = {key: common[key] for key in ("seed", "model", "data", "start")}
    names = [json.dumps(begun, sort_keys=True)] if experiment.start.is_trained else []
    if experiment.method is None or method is None or made.budget is None or made.recovery is None:
        return frozenset([*names, json.dumps([common, {}, 0], sort_keys=True)])
    if method.trains_first:
        rewind = made.recovery.step if made.recovery.weights == "rewind" else 0
        names.append(json.dumps([common, method.first_training(made.budget), rewind], sort_keys=True))
    if method.has_search:
        names.append(json.dumps([common, experiment.method.model_dump(mode="json")], sort_keys=True))
    return frozenset(names)


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
        "lost workers": sum(state.lost.values()),
        "runs": [experiment.folder for experiment in state.experiments],
    }
    write_json(Path(out) / FILE, facts)
    return facts


def compute(out: str | Path, experiments: Sequence[Experiment]) -> dict[str, Any]:
    """FLOPs (`full`) that the finished runs were charged, and what was executed when shared stages count once.

    Each run pays for its whole route. A stage that runs have in common was executed once, in a folder of its own
    that also holds what it cost; folders there that none of these runs needed are another sweep's.
    """
    found = [_record(Path(out) / experiment.folder) for experiment in experiments]
    finished = [record for record in found if record is not None]
    books = {name: _book(Path(out) / SHARED / name) for record in finished for name in record.shared}
    executed = sum(book.total.flops for book in books.values())
    for record in finished:
        stages = {_stage(phase) for name in record.shared for phase, _ in books[name]}
        executed += sum(charge.flops for phase, charge in record.costs if _stage(phase) not in stages)
    ledgers = [record.costs for record in finished]
    charged = sum(ledger.total.flops for ledger in ledgers)
    share = executed / charged if charged else None
    return {"charged_flops": charged, "executed_flops": executed, "share": share, "runs": len(ledgers)}


def _book(folder: Path) -> Ledger:
    """What was executed in a shared folder: by the newest checkpoint of a training, or by the answers of a search."""
    answers = folder / "answers.json"
    if answers.is_file():
        costs = [Ledger.from_dict(known["cost"]) for known in _json(answers).values()]
        return Ledger(_added(costs))
    newest = max(folder.glob("*.json"), default=None)
    if newest is None:
        return Ledger()
    training = folder.name.rpartition("-")[0]
    inside = {training, "detect"} if training == "train" else {training}
    ledger = Ledger.from_dict(_json(newest)["state"]["ledger"])
    return Ledger({phase: charge for phase, charge in ledger if _stage(phase) in inside})


def _added(ledgers: Sequence[Ledger]) -> dict[str, Charge]:
    phases: dict[str, Charge] = {}
    for phase, charge in itertools.chain.from_iterable(ledgers):
        phases[phase] = phases.get(phase, Charge()) + charge
    return phases


def _stage(phase: str) -> str:
    """`train: validate` belongs to `train`."""
    return phase.partition(":")[0]


def _json(path: Path) -> dict[str, Any]:
    content: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return content
