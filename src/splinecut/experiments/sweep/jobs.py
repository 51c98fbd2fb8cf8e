"""One run of a sweep as a job: what a worker receives, what it returns, and how it is run."""

from __future__ import annotations

import os
import traceback
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from splinecut.errors import SplinecutError
from splinecut.experiments.spec import Experiment
from splinecut.files import write_text

if TYPE_CHECKING:
    from splinecut.experiments.plan import Plan
    from splinecut.training.data import DataSet

SHARED = "shared"  # among the run folders: the folder of trainings that several runs use
ERROR_FILE = "error.txt"
# glibc hands large blocks back to the system when a tensor is freed, and the next training step has every page of them
# zeroed anew. Read when a process starts, so it must be in its environment; other systems do not know these names.
MALLOC_ENV = {
    "MALLOC_ARENA_MAX": "1",  # the backward pass has a thread of its own, whose arena could keep 64 MB at most
    "MALLOC_MMAP_THRESHOLD_": str(2**30),
    "MALLOC_TRIM_THRESHOLD_": str(2**32),
    "MALLOC_TOP_PAD_": str(2**28),
    "GLIBC_TUNABLES": "glibc.malloc.hugetlb=1",  # pages of 2 MB where the system allows them
}


@dataclass(frozen=True)
class Job:
    """One run, and the folders, device and threads that it uses; pickled to a worker."""

    plan: Plan
    out: Path
    data_dir: Path | None = None
    device: str = "auto"
    threads: int = 1

    @property
    def experiment(self) -> Experiment:
        return self.plan.experiment


@dataclass(frozen=True)
class JobResult:
    """How a job ended: `reason` is None if it is done; `is_lost`: its worker died, and it may be tried again."""

    number: int
    reason: str | None = None
    is_lost: bool = False


class Pool(Protocol):
    """Runs jobs, `slots` at a time."""

    slots: int

    def start(self, number: int, job: Job) -> None:
        """Starts a job; there must be a free slot."""

    def wait(self, seconds: float) -> list[JobResult]:
        """The results since the last call; waits at most `seconds` for the first."""

    def close(self) -> None:
        """Terminates all workers."""


def perform(job: Job) -> str | None:
    """Runs one job without output; returns None, or one line that says why it failed."""
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


_cached: dict[tuple[str, int, str], DataSet] = {}  # at most one data set, that of this process's last job


def _loaded(experiment: Experiment, data_dir: str | Path | None) -> DataSet:
    """The run's data, cached for the next run: consecutive runs of a sweep share them, and images decode slowly."""
    from splinecut.experiments import runner

    key = (experiment.data.model_dump_json(), experiment.seed, str(data_dir))
    if key not in _cached:
        _cached.clear()  # before loading, so that two sets are never in memory
        _cached[key] = runner.load_data(experiment, data_dir)
    return _cached[key]


def worker_env(threads: int) -> dict[str, str]:
    """Environment variables of a worker process; the user's own settings of the allocator are kept."""
    kept = {name: os.environ.get(name, value) for name, value in MALLOC_ENV.items()}
    return {**kept, "OMP_NUM_THREADS": str(threads)}  # read once, when a library starts its threads


def __getattr__(name: str) -> Callable[[int], dict[str, str]]:
    if name != "variables":  # its name in 0.1, which docs/sweeps.md gave
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    warnings.warn("variables is now worker_env; the old name goes in 0.3", DeprecationWarning, stacklevel=2)
    return worker_env
