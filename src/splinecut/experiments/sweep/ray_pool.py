"""The same jobs on Ray: one task a run, on this machine or on a cluster whose nodes see the same folders."""

from __future__ import annotations

import logging
from dataclasses import replace
from typing import Any

from splinecut.errors import InputError
from splinecut.experiments.sweep.jobs import Job, JobResult, perform, worker_env

LOCAL = "local"


class RayTasks:
    """A pool of Ray tasks; Ray starts a task again, up to `retries` times, when the process that ran it dies.

    address: "local" starts Ray here with `workers` x `threads` processors; else the address of a running cluster
             ("auto", "ray://host:10001", ...), whose processors decide how many runs go side by side.
    """

    def __init__(self, address: str, workers: int, threads: int = 1, retries: int = 5) -> None:
        self.ray = ray = _ray()
        self.threads = threads
        quiet: dict[str, Any] = {"logging_level": logging.ERROR, "log_to_driver": False}
        if address == LOCAL:
            quiet |= {"num_cpus": workers * threads, "include_dashboard": False}
        try:
            ray.init(address=address, **quiet)
        except (ConnectionError, ValueError, RuntimeError) as error:
            reason = " ".join(str(error).split())[:200]
            raise InputError(f"cannot reach Ray at {address!r}: {reason}; use --ray local, or --workers") from None
        self.slots = max(1, int(ray.cluster_resources().get("CPU", 1) // threads))
        environment = {"env_vars": worker_env(threads)}
        self.task = ray.remote(num_cpus=threads, max_retries=retries, runtime_env=environment)(perform)
        self.numbers: dict[Any, int] = {}

    def start(self, number: int, job: Job) -> None:
        self.numbers[self.task.remote(replace(job, threads=self.threads))] = number

    def wait(self, seconds: float) -> list[JobResult]:
        ready, _ = self.ray.wait(list(self.numbers), num_returns=1, timeout=seconds)
        return [self._result(task) for task in ready]

    def _result(self, task: Any) -> JobResult:
        number = self.numbers.pop(task)
        try:
            return JobResult(number, self.ray.get(task))
        except self.ray.exceptions.RayError as error:
            return JobResult(number, f"Ray gave it up: {type(error).__name__}")

    def close(self) -> None:
        self.ray.shutdown()


def _ray() -> Any:
    try:
        import ray
    except ModuleNotFoundError:
        raise InputError("--ray needs Ray; install it with `pip install 'splinecut[ray]'`") from None
    return ray
