"""Runs an experiment in child processes that die by SIGKILL at chosen moments, then once more to its end.

    python crash_run.py OUT EXPERIMENT_JSON KILL...

A KILL is `steps:X` (from outside, X steps into its training; the fraction is of a few milliseconds), `fsync:N`,
`before-rename:N`, `after-rename:N`, `half-written:N` (inside the N-th write of the process) or `epoch:N` (between
the N-th epoch's end and its checkpoint). `stop-here` leaves the run as the last kill left it. Prints one JSON line a
process: how it ended.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from pathlib import Path

import torch

from splinecut.experiments import building, runner
from splinecut.experiments.spec import Experiment
from splinecut.networks import cost
from splinecut.training import loop
from splinecut.training.hooks import TrainState
from splinecut.training.progress import ConsoleProgress


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def at(n: int, module: object, name: str, after: bool = False) -> None:
    """Dies at the `n`-th call of `module.name`, before it or after it."""
    original, calls = getattr(module, name), iter(range(1, 10**9))

    def deadly(*args: object, **options: object) -> object:
        is_due = next(calls) == n
        if is_due and not after:
            die()
        result = original(*args, **options)
        if is_due:
            die()
        return result

    setattr(module, name, deadly)


def half_written(n: int) -> None:
    """Dies in the `n`-th write of bytes, when half of them are in the file."""
    original, calls = Path.write_bytes, iter(range(1, 10**9))

    def deadly(path: Path, data: bytes) -> int:
        if next(calls) == n:
            with path.open("wb") as file:
                file.write(data[: len(data) // 2])
            die()
        return original(path, data)

    Path.write_bytes = deadly  # type: ignore[method-assign, assignment]


def arm(kill: str) -> None:
    kind, _, number = kill.partition(":")
    if kind == "half-written":
        half_written(int(number))
    elif kind == "epoch":
        at(int(number), loop._Training, "_close_epoch", after=True)
    elif kind in ("fsync", "before-rename", "after-rename"):
        at(int(number), os, "fsync" if kind == "fsync" else "replace", after=kind == "after-rename")


def child(kill: str, out: str, experiment: Experiment, ready: int) -> None:
    arm(kill)

    class Tell(ConsoleProgress):
        def after_step(self, state: TrainState) -> None:
            os.write(ready, b".")

    runner.run(experiment, out, device="cpu", progress=Tell())


def one_process(kill: str, out: str, experiment: Experiment) -> int:
    """Its exit status; minus the signal where one ended it."""
    listen, ready = os.pipe()
    process = os.fork()
    if process == 0:
        os.dup2(2, 1)
        child(kill, out, experiment, ready)
        os._exit(0)
    os.close(ready)
    if kill.startswith("steps:"):
        steps, fraction = divmod(float(kill.partition(":")[2]), 1)
        for _ in range(int(steps)):
            os.read(listen, 1)
        time.sleep(0.008 * fraction)
        os.kill(process, signal.SIGKILL)
    _, status = os.waitpid(process, 0)
    os.close(listen)
    return os.waitstatus_to_exitcode(status)


if __name__ == "__main__":
    torch.set_num_threads(1)
    _, out, text, *kills = sys.argv
    experiment = Experiment.from_dict(json.loads(text))
    dataset = runner.load_data(experiment)  # what is imported once here need not be imported by each child
    cost.forward_flops(building.build_model(experiment, dataset), dataset.input_shape)
    for kill in kills or []:
        if kill == "stop-here":
            sys.exit(0)
        print(json.dumps({"kill": kill, "status": one_process(kill, out, experiment)}), flush=True)
    print(json.dumps({"kill": "none", "status": one_process("none", out, experiment)}), flush=True)
