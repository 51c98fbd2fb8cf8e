"""Worker processes on this machine: each takes one run after another; one that dies is noticed and replaced."""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
import traceback
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from multiprocessing import connection
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from splinecut.errors import SplinecutError
from splinecut.experiments.spec import Experiment
from splinecut.files import write_text

if TYPE_CHECKING:
    from multiprocessing.connection import Connection
    from multiprocessing.context import SpawnProcess

    from splinecut.experiments.plan import Plan
    from splinecut.training.data import DataSet

SHARED = "shared"  # the folder of trainings that runs have in common, among the run folders
ERROR_FILE = "error.txt"
# glibc hands large blocks back to the system when a tensor is freed, and the next training step has every page of them
# zeroed anew. Read when a process starts, so it must be in its environment; other systems do not know these names.
KEEPING_MEMORY = {
    "MALLOC_ARENA_MAX": "1",  # the backward pass has a thread of its own, whose arena could keep 64 MB at most
    "MALLOC_MMAP_THRESHOLD_": str(2**30),
    "MALLOC_TRIM_THRESHOLD_": str(2**32),
    "MALLOC_TOP_PAD_": str(2**28),
    "GLIBC_TUNABLES": "glibc.malloc.hugetlb=1",  # pages of 2 MB where the system allows them
}


@dataclass(frozen=True)
class Job:
    """One run and where it is to be done, as a worker is told."""

    plan: Plan
    out: Path
    data_dir: Path | None = None
    device: str = "auto"
    threads: int = 1

    @property
    def experiment(self) -> Experiment:
        return self.plan.experiment


@dataclass(frozen=True)
class Ending:
    """How a job ended: done, failed for a reason, or (`is_lost`) its worker died and it may be tried again."""

    number: int
    reason: str | None = None
    is_lost: bool = False


class Pool(Protocol):
    """A place where jobs are done, `slots` at a time."""

    slots: int

    def start(self, number: int, job: Job) -> None:
        """Begins a job; there must be a free slot."""

    def wait(self, seconds: float) -> list[Ending]:
        """What has ended since the last call; waits at most `seconds` for the first."""

    def close(self) -> None:
        """Ends all workers, whatever they do."""


def perform(job: Job) -> str | None:
    """Does one run, silently; None, or one line on why it failed."""
    import torch
    from rich.console import Console

    from splinecut.experiments import runner
    from splinecut.training.progress import ConsoleProgress

    torch.set_num_threads(job.threads)
    error_file = job.out / job.experiment.folder / ERROR_FILE
    try:
        progress = ConsoleProgress(Console(quiet=True))
        runner.run(job.plan, job.out, job.data_dir, job.device, progress, job.out / SHARED, _loaded)
    except SplinecutError as error:
        return " ".join(str(error).split())
    except Exception as error:
        write_text(error_file, traceback.format_exc())
        return f"{type(error).__name__}: {' '.join(str(error).split())[:200]}; the traceback is in {error_file}"
    error_file.unlink(missing_ok=True)
    return None


_held: dict[tuple[str, int, str], DataSet] = {}  # one set at most, that of this process's last job


def _loaded(experiment: Experiment, data_dir: str | Path | None) -> DataSet:
    """The run's data, kept for the next run: neighbours in a sweep share them, and images are slow to decode."""
    from splinecut.experiments import runner

    asked = (experiment.data.model_dump_json(), experiment.seed, str(data_dir))
    if asked not in _held:
        _held.clear()  # before loading, so that two sets are never in memory
        _held[asked] = runner.load_data(experiment, data_dir)
    return _held[asked]


@dataclass
class _Worker:
    process: SpawnProcess
    pipe: Connection
    job: int | None = None

    @property
    def is_usable(self) -> bool:
        return self.job is None and self.process.is_alive()


@dataclass
class Workers:
    """A pool of processes, each with `threads` threads; they are started when there is something to do."""

    slots: int
    threads: int = 1
    members: list[_Worker] = field(default_factory=list)

    def start(self, number: int, job: Job) -> None:
        worker = next((worker for worker in self.members if worker.is_usable), None) or self._hired()
        worker.job = number
        with suppress(OSError):  # it died while idle: `wait` reports the job as lost
            worker.pipe.send(job)

    def wait(self, seconds: float) -> list[Ending]:
        busy = [worker for worker in self.members if worker.job is not None]
        things: Iterable[Any] = [thing for worker in busy for thing in (worker.pipe, worker.process.sentinel)]
        connection.wait(things, seconds)
        endings = [ending for worker in busy if (ending := _ending(worker)) is not None]
        # One that died a moment ago with a job stays until that job has been reported as lost.
        self.members = [worker for worker in self.members if worker.job is not None or worker.process.is_alive()]
        return endings

    def close(self) -> None:
        for worker in self.members:
            worker.process.terminate()
            worker.process.join()
            worker.pipe.close()
        self.members = []

    def _hired(self) -> _Worker:
        context = multiprocessing.get_context("spawn")
        ours, theirs = context.Pipe()
        process = context.Process(target=_work, args=(theirs,), daemon=True)
        with _environment(**variables(self.threads)):
            process.start()
        theirs.close()
        self.members.append(_Worker(process, ours))
        return self.members[-1]


def variables(threads: int) -> dict[str, str]:
    """The environment of a process that trains; settings of the allocator that the user has made stand."""
    kept = {name: os.environ.get(name, value) for name, value in KEEPING_MEMORY.items()}
    return {**kept, "OMP_NUM_THREADS": str(threads)}  # threads: read once, when a library starts its own


def _ending(worker: _Worker) -> Ending | None:
    """How the worker's job ended, None while it is at work."""
    number = worker.job
    assert number is not None
    try:
        if worker.pipe.poll():
            reason = worker.pipe.recv()
            worker.job = None
            return Ending(number, reason)
    except (EOFError, OSError):
        worker.process.join()
    if worker.process.is_alive():
        return None
    worker.pipe.close()
    worker.job = None
    return Ending(number, _death(worker.process.exitcode), is_lost=True)


def _death(code: int | None) -> str:
    if code is not None and code < 0:
        return f"its worker process was killed by {signal.Signals(-code).name}"
    return f"its worker process ended with code {code}"


def _work(pipe: Connection) -> None:
    """A worker's life: job, answer, job, answer, until the pipe closes or the parent is gone."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the parent, which ends its workers
    threading.Thread(target=_end_with_parent, daemon=True).start()
    while True:
        try:
            job = pipe.recv()
        except EOFError:
            return
        pipe.send(perform(job))


def _end_with_parent() -> None:
    """A run without a parent would keep its folder locked against the sweep that is started next."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        connection.wait([parent.sentinel])
        os._exit(1)


@contextmanager
def _environment(**values: str) -> Iterator[None]:
    before = {name: os.environ.get(name) for name in values}
    os.environ.update(values)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value
