"""`splinecut sweep`: every run of a recipe's [sweep] table, on this machine or on Ray."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from splinecut.cli.options import DataDir, Device, Set
from splinecut.errors import InputError

if TYPE_CHECKING:
    from splinecut.experiments.sweep.jobs import JobResult, Pool
    from splinecut.experiments.sweep.scheduler import State


def sweep(
    recipe: Annotated[str, typer.Argument(help=r"A TOML file with a \[sweep] table, or a recipe by name.")],
    set_: Set = None,
    out: Annotated[
        Path | None, typer.Option("--out", metavar="FOLDER", help="Where run folders go; default: runs/RECIPE.")
    ] = None,
    workers: Annotated[int, typer.Option(min=1, help="Parallel runs on this machine.")] = 1,
    ray: Annotated[str | None, typer.Option(help="Run on Ray: `local`, or the address of a cluster.")] = None,
    data_dir: DataDir = None,
    device: Device = "auto",
    threads: Annotated[
        int | None, typer.Option(min=1, help="Threads of each run; default: the cores, divided by the workers.")
    ] = None,
    retries: Annotated[int, typer.Option(min=0, help="How often a run is restarted when its worker dies.")] = 5,
) -> None:
    """Run seeds x methods x budgets; skips finished runs, resumes interrupted ones, continues after a failed one."""
    from splinecut.experiments.sweep import spec as grid
    from splinecut.experiments.sweep.accounting import write_account
    from splinecut.experiments.sweep.scheduler import run

    spec = grid.load(recipe, set_ or ())
    plans = grid.plans(spec)
    place = (out or Path("runs") / spec.name).absolute()
    each = threads or max(1, (os.cpu_count() or 1) // workers)
    progress = SweepProgress(spec.name)
    data = data_dir.absolute() if data_dir else None
    try:
        pool = _pool(ray, min(workers, len(plans)), each, retries)
        state = run(plans, place, pool, data, device, retries, progress.update, each)
    finally:
        progress.close()
    account = write_account(spec.name, state, place, set_ or ())
    progress.summary(state, place, account["compute"])
    if state.failed:
        raise typer.Exit(1)


def _pool(ray: str | None, workers: int, threads: int, retries: int) -> Pool:
    from splinecut.experiments.sweep.ray_pool import RayTasks
    from splinecut.experiments.sweep.worker_pool import Workers

    if ray == "":
        raise InputError("expected --ray local or --ray ADDRESS, got nothing")
    return RayTasks(ray, workers, threads, retries) if ray else Workers(workers, threads)


class SweepProgress:
    """Prints the progress of a sweep: a bar with the time left on a terminal, one line per run elsewhere."""

    def __init__(self, name: str) -> None:
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

        from splinecut.cli.screen import screen

        self.console = screen(stderr=True)
        columns = (TextColumn("{task.description}", markup=False), BarColumn(bar_width=24), MofNCompleteColumn())
        self.bar = Progress(*columns, TextColumn("{task.fields[facts]}"), console=self.console, transient=True)
        self.task = self.bar.add_task(name, total=None, facts="")

    def update(self, state: State, result: JobResult | None) -> None:
        if self.console.is_terminal:
            if not self.bar.live.is_started:
                self.bar.start()
            total = len(state.experiments)
            self.bar.update(self.task, completed=state.ended, total=total, facts=_facts(state))
        if result is not None and (result.reason is not None or not self.console.is_terminal):
            self._line(state, result)

    def _line(self, state: State, result: JobResult) -> None:
        name = title(state.experiments[result.number])
        how = "done" if result.reason is None else result.reason
        where = f"{state.ended}/{len(state.experiments)}"
        self.console.print(f"{where}  {name}: {how}  {_facts(state)}", style="dim")

    def close(self) -> None:
        self.bar.stop()

    def summary(self, state: State, place: Path, compute: dict[str, Any]) -> None:
        """Prints counts, failures with their reasons, and what sharing saved."""
        self._say(
            f"{len(state.done)} runs done, {state.skipped} were finished before, {len(state.failed)} failed: {place}"
        )
        if compute["share"] is not None:
            self._say(
                f"executed {compute['share']:.0%} of the FLOPs that the runs are charged: shared trainings ran once"
            )
        for number, reason in state.failed.items():
            self._say(f"failed: {title(state.experiments[number])}: {reason}")

    def _say(self, text: str) -> None:
        self.console.print(text)


def title(experiment: Any) -> str:
    """The name of a run in messages."""
    keep = f", keep {experiment.budget.keep:g}" if experiment.method else ""
    return f"{experiment.name}{keep}, seed {experiment.seed}"


def _facts(state: State) -> str:
    failed = f"{len(state.failed)} failed, " if state.failed else ""
    left = state.seconds_left
    return f"{failed}{_duration(left)} left" if left is not None else f"{failed}{len(state.running)} running"


def _duration(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes} min" if hours else f"{minutes} min" if minutes else f"{rest} s"
