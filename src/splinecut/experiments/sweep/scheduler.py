"""Runs a sweep: finished runs are skipped, interrupted ones resume, and a failed run does not stop the others."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from splinecut.experiments.records import finished_record
from splinecut.experiments.spec import Experiment
from splinecut.experiments.sweep.jobs import Job, JobResult, Pool

if TYPE_CHECKING:
    from splinecut.experiments.plan import Plan

RETRIES = 5  # times that a run is restarted when its worker dies
TICK = 0.5  # seconds between progress updates while no job ends


@dataclass
class State:
    """The progress of a sweep; `skipped` runs were complete before it began."""

    experiments: Sequence[Experiment]
    skipped: int = 0
    done: list[int] = field(default_factory=list)
    failed: dict[int, str] = field(default_factory=dict)
    running: set[int] = field(default_factory=set)
    crashes: Counter[int] = field(default_factory=Counter)  # run -> workers that died at it
    begun: float = field(default_factory=time.monotonic)

    @property
    def ended(self) -> int:
        return self.skipped + len(self.done) + len(self.failed)

    @property
    def seconds_left(self) -> float | None:
        """Estimated time for the remaining runs, at the pace so far; None before the first has ended."""
        n = len(self.done) + len(self.failed)
        return (time.monotonic() - self.begun) / n * (len(self.experiments) - self.ended) if n else None


OnProgress = Callable[[State, JobResult | None], object]


def run(
    experiments: Sequence[Experiment | Plan],
    out: str | Path,
    pool: Pool,
    data_dir: str | Path | None = None,
    device: str = "auto",
    retries: int = RETRIES,
    on_progress: OnProgress = lambda state, result: None,
    threads: int = 1,
) -> State:
    """Does every run that has no record in `out` yet, as many at a time as the pool has slots; closes the pool.

    Plans are made once for each run, here if not before, and sent to the workers. A run whose worker dies is restarted
    in another one, up to `retries` times. A run that fails is recorded with its reason. `on_progress` is called with
    each result, and every TICK seconds with None.
    """
    from splinecut.experiments.plan import plan

    out, data = Path(out), Path(data_dir) if data_dir else None
    plans = [plan(one) for one in experiments]
    state = State([planned.experiment for planned in plans])
    queue = _Queue([shared_stages(planned) for planned in plans])
    for number, planned in enumerate(plans):
        if finished_record(out / planned.experiment.folder) is not None:
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
            results = pool.wait(TICK)
            for result in results:
                _note(state, queue, result, retries)
                on_progress(state, result)
            if not results:
                on_progress(state, None)
    finally:
        pool.close()
    return state


def _note(state: State, queue: _Queue, result: JobResult, retries: int) -> None:
    """Records a job's result; if its worker died, puts the run first in the queue again."""
    number = result.number
    state.running.remove(number)
    if result.is_lost:
        state.crashes[number] += 1
    if result.is_lost and state.crashes[number] <= retries:
        # First again: it has checkpoints to resume from, and other runs may wait for its shared stage.
        queue.pending.insert(0, number)
    elif result.reason is not None:
        state.failed[number] = result.reason
    else:
        state.done.append(number)
        queue.finished(number)


class _Queue:
    """Runs to do. A run waits while another one executes a stage that both share: it would only wait for its lock."""

    def __init__(self, stages: Sequence[frozenset[str]]) -> None:
        self.stages = stages
        self.ready: set[str] = set()
        self.pending: list[int] = []

    def finished(self, number: int) -> None:
        self.ready |= self.stages[number]

    def next(self, running: set[int]) -> int:
        """Removes and returns the first run that need not wait; where all must, the first one."""
        busy = frozenset().union(*(self.stages[number] for number in running)) - self.ready
        free = (number for number in self.pending if not self.stages[number] & busy)
        # Where all must wait, one waits for the lock in its worker: an idle slot would gain nothing.
        number = next(free, self.pending[0])
        self.pending.remove(number)
        return number


def shared_stages(experiment: Experiment | Plan) -> frozenset[str]:
    """Keys of the stages that a run may have in common with others: pretraining, first training, search."""
    from splinecut.experiments.plan import plan

    return plan(experiment).schedule_keys()
