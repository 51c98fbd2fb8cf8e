"""Worker processes on this machine: each runs one job after another; one that dies is detected and replaced."""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from multiprocessing import connection
from typing import TYPE_CHECKING, Any

from splinecut.experiments.sweep.jobs import Job, JobResult, perform, worker_env

if TYPE_CHECKING:
    from multiprocessing.connection import Connection
    from multiprocessing.context import SpawnProcess


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
        worker = next((worker for worker in self.members if worker.is_usable), None) or self._spawn()
        worker.job = number
        with suppress(OSError):  # it died while idle: `wait` reports the job as lost
            worker.pipe.send(job)

    def wait(self, seconds: float) -> list[JobResult]:
        busy = [worker for worker in self.members if worker.job is not None]
        things: Iterable[Any] = [thing for worker in busy for thing in (worker.pipe, worker.process.sentinel)]
        connection.wait(things, seconds)
        results = [result for worker in busy if (result := _result(worker)) is not None]
        # One that died a moment ago with a job stays until that job has been reported as lost.
        self.members = [worker for worker in self.members if worker.job is not None or worker.process.is_alive()]
        return results

    def close(self) -> None:
        for worker in self.members:
            worker.process.terminate()
            worker.process.join()
            worker.pipe.close()
        self.members = []

    def _spawn(self) -> _Worker:
        context = multiprocessing.get_context("spawn")  # a fork after torch has started threads may hang
        ours, theirs = context.Pipe()
        process = context.Process(target=_work, args=(theirs,), daemon=True)
        with _environment(**worker_env(self.threads)):
            process.start()
        theirs.close()  # while our copy of its end is open, the pipe of a dead worker never reads as ended
        self.members.append(_Worker(process, ours))
        return self.members[-1]


def _result(worker: _Worker) -> JobResult | None:
    """The result of the worker's job; None while it is running."""
    number = worker.job
    assert number is not None
    try:
        # The pipe before the process: a worker that died after it had answered has done its job.
        if worker.pipe.poll():
            reason = worker.pipe.recv()
            worker.job = None
            return JobResult(number, reason)
    except (EOFError, OSError):
        worker.process.join()
    if worker.process.is_alive():
        return None
    worker.pipe.close()
    worker.job = None
    return JobResult(number, _death(worker.process.exitcode), is_lost=True)


def _death(code: int | None) -> str:
    if code is not None and code < 0:
        return f"its worker process was killed by {signal.Signals(-code).name}"
    return f"its worker process ended with code {code}"


def _work(pipe: Connection) -> None:
    """Runs jobs from the pipe until it closes or the parent exits."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the parent, which terminates its workers
    threading.Thread(target=_end_with_parent, daemon=True).start()
    while True:
        try:
            job = pipe.recv()
        except EOFError:
            return
        pipe.send(perform(job))


def _end_with_parent() -> None:
    """Ends the process with its parent: an orphan would keep its run folder locked against the next sweep."""
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
