"""A sweep is a grid of experiments, done whole whatever happens to the processes that do it."""

from __future__ import annotations

import json
import multiprocessing
import os
import pickle
import shutil
import subprocess
import sys
import time
import tomllib
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from typer.testing import CliRunner

from splinecut.cli.app import app
from splinecut.errors import InputError
from splinecut.experiments import recipes, spec
from splinecut.experiments.spec import Experiment
from splinecut.experiments.sweep import spec as grid
from splinecut.experiments.sweep.accounting import compute, write_account
from splinecut.experiments.sweep.jobs import MALLOC_ENV, Job, JobResult, _loaded, worker_env
from splinecut.experiments.sweep.scheduler import State, _Queue, run, shared_stages
from splinecut.experiments.sweep.worker_pool import Workers, _Worker
from splinecut.pruning.methods.catalogue import METHODS
from tools.stress_sweep import outcomes, sweep

BASE: dict[str, Any] = {
    "name": "small",
    "model": {"name": "convnet", "preset": "digits", "width": 0.25},
    "data": "digits",
    "training": {"epochs": 2, "batch_size": 128},
    "probe": 64,
}
EARLY = {"name": "spline", "form": "paper", "label": "EB", "detector": "early-bird-spline", "retrain": "remaining"}


def expanded(**axes: Any) -> list[Experiment]:
    return grid.expand(grid.from_dict({**BASE, "sweep": axes}))


def test_a_sweep_is_the_product_of_seeds_methods_and_budgets_and_the_whole_network() -> None:
    runs = expanded(seeds=3, keeps=[0.7, 0.3], methods=["l2", {"name": "spline", "form": "paper"}])
    assert len(runs) == 3 * (1 + 2 * 2)
    assert [run.seed for run in runs] == sorted(run.seed for run in runs)
    assert len({run.digest for run in runs}) == len(runs)
    dense = [run for run in runs if run.method is None]
    assert [(run.name, run.seed, run.detector) for run in dense] == [("dense", seed, None) for seed in range(3)]


def test_keys_of_an_experiment_in_a_methods_table_go_to_the_experiment() -> None:
    (_, run) = expanded(seeds=[7], methods=[EARLY])
    assert run.name == "EB" and run.seed == 7
    assert run.detector is not None and run.detector.name == "early-bird-spline"
    assert run.retrain.length == "remaining"
    assert run.method is not None and run.method.options == {"form": "paper"}


def test_a_method_may_have_budgets_of_its_own() -> None:
    runs = expanded(seeds=1, keeps=[0.9], methods=["l2", {"name": "random", "keeps": [0.2, 0.1]}])
    assert [(run.name, run.budget.keep) for run in runs[1:]] == [("l2", 0.9), ("random", 0.2), ("random", 0.1)]


def test_over_takes_every_combination_and_names_what_is_no_column() -> None:
    over = {
        "data": ["digits", "mnist"],
        "training.optimizer": [{"name": "sgd"}, {"name": "adam", "lr": 1e-3}],
    }
    runs = expanded(seeds=1, methods=["l2"], over=over)
    assert len(runs) == 2 * 2 * 2
    found = {(run.data.name, run.training.optimizer.lr, run.name) for run in runs if run.method}
    assert found == {
        (data, lr, f"l2 [{name}]") for data in ("digits", "mnist") for lr, name in ((0.1, "sgd"), (1e-3, "adam"))
    }


@pytest.mark.parametrize(
    "name", ["../../x", "..", ".", "", " ", "a/b", "/tmp/x", "a\\b", "~/x", "C:x", "a\nb", "a\0b", ".x", 3, ["x"]]
)
def test_a_sweep_whose_name_is_no_folder_name_is_refused(name: Any) -> None:
    with pytest.raises(InputError, match="name of a sweep") as caught:
        grid.from_dict({**BASE, "name": name, "sweep": {"seeds": 1}})
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("name", ["a", "fig-7.rho_2", "digits, wide (v2)", "Größe 3"])
def test_ordinary_names_of_sweeps_stand(name: str) -> None:
    assert grid.from_dict({**BASE, "name": name, "sweep": {"seeds": 1}}).name == name


def test_a_sweep_writes_nothing_outside_its_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "inner" / "here").mkdir(parents=True)
    monkeypatch.chdir(tmp_path / "inner" / "here")
    Path("s.toml").write_text('model = "mlp"\ndata = "x-shape"\ntraining.epochs = 0\n[sweep]\nseeds = 1\n')
    done = CliRunner().invoke(app, ["sweep", "s.toml", "--set", "name=../../x"])
    assert isinstance(done.exception, InputError)
    assert sorted(path.name for path in tmp_path.rglob("*")) == ["here", "inner", "s.toml"]


@pytest.mark.parametrize("label", ["../../x", "/tmp/x", "w/o refit", ".."])
def test_a_label_may_be_any_text_and_its_run_folder_stays_a_plain_name(label: str) -> None:
    (_, run) = expanded(seeds=1, methods=[{"name": "l2", "label": label}])
    assert run.name == label and Path(run.folder).name == run.folder and not run.folder.startswith(".")


def test_runs_that_are_the_same_are_one() -> None:
    assert len(expanded(seeds=1, methods=["l2", {"name": "l2", "label": "again"}])) == 2


@pytest.mark.parametrize(
    ("axes", "message"),
    [
        ({"methods": ["splin"]}, "unknown method 'splin'; did you mean 'spline'?"),
        ({"methods": [{"name": "spline", "fomr": "paper"}]}, "unknown option of spline 'fomr'; did you mean 'form'?"),
        ({"methods": [{"form": "paper"}]}, "needs a name"),
        ({"method": ["l2"]}, "unknown key 'sweep.method'; did you mean 'sweep.methods'?"),
        ({"keeps": [1.5]}, "sweep.keeps.0 should be less than or equal to 1, got 1.5"),
        ({"over": {"trainin.epochs": [1]}}, "unknown key 'trainin'; did you mean 'training'?"),
    ],
)
def test_a_bad_sweep_is_one_line_that_names_the_key(axes: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError) as caught:
        expanded(**axes)
    assert message in str(caught.value) and "\n" not in str(caught.value)


def test_an_option_of_a_wrong_type_is_refused_before_anything_is_trained() -> None:
    with pytest.raises(InputError, match="population"):
        expanded(methods=[{"name": "legr", "population": "64"}])


def test_one_experiment_and_a_sweep_are_not_taken_for_each_other(tmp_path: Path) -> None:
    one, several = tmp_path / "one.toml", tmp_path / "several.toml"
    one.write_text('model = "mlp"\ndata = "x-shape"\n')
    several.write_text(one.read_text() + "[sweep]\nseeds = 2\n")
    with pytest.raises(InputError, match=r"several.toml is a sweep .* use `splinecut sweep"):
        spec.load(several)
    with pytest.raises(InputError, match=r"one.toml has no \[sweep\] table; use `splinecut run"):
        grid.load(one)
    assert len(grid.expand(grid.load(several, ["sweep.seeds=[1, 2, 3]"]))) == 3


@pytest.mark.parametrize("recipe", recipes.shipped())
def test_every_recipe_that_ships_can_be_expanded(recipe: str) -> None:
    tables = recipes.read(recipe)
    assert tables.get("description")
    runs = grid.expand(grid.load(recipe)) if "sweep" in tables else [spec.load(recipe)]
    assert runs


def test_the_digits_table_has_every_method_of_the_catalogue() -> None:
    assert {run.method.name for run in grid.expand(grid.load("digits-table")) if run.method} == set(METHODS)


def test_the_sweep_that_the_documentation_shows_is_one() -> None:
    page = (Path(__file__).parents[3] / "docs" / "sweeps.md").read_text(encoding="utf-8")
    shown = page.split("```toml\n")[1].split("```")[0]
    assert len(grid.expand(grid.from_dict(tomllib.loads(shown)))) == 5 * 2 * (1 + 3 * 3)


def test_runs_share_a_first_training_unless_something_decides_it_otherwise() -> None:
    runs = expanded(seeds=2, keeps=[0.5, 0.2], methods=["l2", "random", EARLY, "snip"])
    names = [shared_stages(run) for run in runs]
    assert len(frozenset().union(*names)) == 2 * 2  # by seed: the plain training, and the one the early bird ends
    assert len({shared_stages(run) for run in runs if run.detector is None and run.seed == 0}) == 2
    assert not shared_stages(runs[-1])  # at initialisation there is nothing to share


def test_budgets_share_a_search() -> None:
    runs = expanded(seeds=1, keeps=[0.5, 0.2], methods=["legr", "l2"])
    dense, legr, other, *l2 = (shared_stages(run) for run in runs)
    assert legr == other and len(legr) == 2
    assert {dense, *l2} == {dense} and dense < legr


def test_a_run_is_held_back_while_another_does_a_stage_that_both_need() -> None:
    queue = _Queue([frozenset("a"), frozenset("a"), frozenset("bc"), frozenset("c"), frozenset()])
    queue.pending = [0, 1, 2, 3, 4]
    assert queue.next(set()) == 0
    assert queue.next({0}) == 2
    assert queue.next({0, 2}) == 4
    assert queue.next({0, 2, 4}) == 1  # nothing else is left: it waits for the training itself
    queue.pending = [1, 3]
    queue.finished(0)
    assert queue.next({2}) == 1


class Scripted:
    """A pool that ends each job as told, once for every word: done, lost or a reason."""

    slots = 1

    def __init__(self, script: dict[str, list[str]]) -> None:
        self.script, self.started, self.is_closed = script, [], False

    def start(self, number: int, job: Job) -> None:
        self.started.append(job.experiment.name)
        self.number, self.threads = number, job.threads

    def wait(self, seconds: float) -> list[JobResult]:
        word = self.script.get(self.started[-1], ["done"])
        how = word.pop(0) if len(word) > 1 else word[0]
        return [JobResult(self.number, None if how == "done" else how, is_lost=how == "lost")]

    def close(self) -> None:
        self.is_closed = True


def test_a_lost_run_is_taken_up_again_and_a_failed_one_stops_no_other(tmp_path: Path) -> None:
    runs = expanded(seeds=1, methods=["l2", "random", "spline"])
    pool = Scripted({"l2": ["lost", "lost", "done"], "random": ["the loss is nan"], "spline": ["lost"]})
    state = run(runs, tmp_path, pool, retries=2)
    assert pool.started == ["dense", *["l2"] * 3, "random", *["spline"] * 3]
    assert state.failed == {2: "the loss is nan", 3: "lost"}
    assert state.done == [0, 1] and pool.is_closed
    assert state.crashes == {1: 2, 3: 3}


@pytest.mark.parametrize(
    ("options", "threads"),
    [((), os.cpu_count()), (("--workers", "1000"), 1), (("--threads", "3", "--workers", "2"), 3)],
)
def test_runs_share_the_cores_unless_threads_are_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, options: tuple[str, ...], threads: int
) -> None:
    pool = Scripted({})
    monkeypatch.setattr("splinecut.cli.sweep._pool", lambda *asked: pool)
    asked = ["sweep", "digits-channels", "--set", "sweep.seeds=1", "--out", str(tmp_path), *options]
    assert CliRunner().invoke(app, asked).exit_code == 0
    assert pool.started and pool.threads == threads


def test_a_worker_that_dies_between_two_looks_is_still_reported() -> None:
    ours, _theirs = multiprocessing.Pipe()
    looks = iter([True, False, False])  # alive when asked how its job goes, dead when asked whether to keep it
    sentinel, _ = os.pipe()
    process = SimpleNamespace(is_alive=lambda: next(looks), sentinel=sentinel, exitcode=-9, join=lambda: None)
    pool = Workers(1, members=[_Worker(process, ours, job=5)])
    assert pool.wait(0) == []
    assert pool.wait(0) == [JobResult(5, "its worker process was killed by SIGKILL", is_lost=True)]
    assert not pool.members


def test_time_left_is_unknown_before_the_first_run_has_ended() -> None:
    state = State(expanded(seeds=2, methods=["l2"]))
    assert state.seconds_left is None
    state.done.append(0)
    state.begun -= 10
    assert state.seconds_left == pytest.approx(30, rel=0.01)


@pytest.fixture(scope="module")
def recipe(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Twelve runs: two seeds of the whole network and of five pruned ones."""
    path = tmp_path_factory.mktemp("recipe") / "twelve.toml"
    path.write_text(
        """
description = "twelve tiny runs"
model = { name = "convnet", preset = "digits", width = 0.25 }
data = "digits"
training = { epochs = 2, batch_size = 128 }
probe = 64
sweep = { seeds = 2, keeps = [0.5, 0.25], methods = ["l2", "random", { name = "spline", keeps = [0.5] }] }
"""
    )
    return path


@pytest.fixture(scope="module")
def undisturbed(recipe: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("undisturbed")
    process, _, said = sweep(recipe, out)
    assert process.returncode == 0, said
    assert "12 runs done, 0 were finished before, 0 failed" in said
    return out


def every_third(seconds: float, runs: int, kills: int) -> bool:
    """Due when one run has finished, and then after every third."""
    return runs > 3 * kills


@pytest.mark.slow
@pytest.mark.timeout(1800)  # three sweeps, the first of them in the fixture
@pytest.mark.parametrize("options", [(), ("--ray", "local")], ids=["workers", "ray"])
def test_a_sweep_whose_workers_are_killed_ends_as_if_they_had_not_been(
    options: tuple[str, ...], recipe: Path, undisturbed: Path, tmp_path: Path
) -> None:
    if options:
        pytest.importorskip("ray")
    process, kills, said = sweep(recipe, tmp_path, *options, is_due=every_third)
    assert process.returncode == 0, said
    assert kills >= 3
    assert len(outcomes(tmp_path)) == 12
    assert outcomes(tmp_path) == outcomes(undisturbed)


def test_a_second_sweep_finds_everything_done(recipe: Path, undisturbed: Path) -> None:
    pool = Scripted({})
    state = run(grid.expand(grid.load(recipe)), undisturbed, pool)
    assert state.skipped == 12 and not state.done and not pool.started


def test_shared_trainings_are_charged_to_each_run_and_executed_once(recipe: Path, undisturbed: Path) -> None:
    runs = grid.expand(grid.load(recipe))
    account = json.loads((undisturbed / "sweep.json").read_text())["compute"]
    assert account == compute(undisturbed, runs)
    ledgers = [json.loads((undisturbed / run.folder / "record.json").read_text())["ledger"] for run in runs]
    everything = sum(charge["flops"] for ledger in ledgers for charge in ledger.values())
    dense = [sum(ledger[phase]["flops"] for phase in ("train", "train: validate")) for ledger in ledgers]
    assert len(list((undisturbed / "shared").glob("train-*"))) == 2
    assert account["charged_flops"] == everything
    # Two seeds, six runs each: five of the six did not train the whole network again.
    assert account["executed_flops"] == everything - 5 * dense[0] - 5 * dense[6]


def test_what_another_sweep_shares_in_the_same_folder_is_not_counted(
    recipe: Path, undisturbed: Path, tmp_path: Path
) -> None:
    shutil.copytree(undisturbed, tmp_path, dirs_exist_ok=True)
    training = next((tmp_path / "shared").glob("train-*"))
    shutil.copytree(training, training.with_name("train-of-another-sweep"))
    runs = grid.expand(grid.load(recipe))
    assert compute(tmp_path, runs) == compute(undisturbed, runs)


def test_a_failed_run_is_noted_with_its_reason_and_the_rest_is_done(tmp_path: Path) -> None:
    diverging = {"name": "l2", "label": "too fast", "training": {"optimizer": {"lr": 1e30}}}
    tables = {"model": "mlp", "data": "x-shape", "training": {"epochs": 1}}
    runs = grid.expand(grid.from_dict({**tables, "sweep": {"seeds": 1, "methods": [diverging, "random"]}}))
    state = run(runs, tmp_path, Workers(1))
    assert [runs[number].name for number in state.done] == ["dense", "random"]
    assert state.failed[1].startswith("the loss of 'train' is")
    assert write_account("r", state, tmp_path)["failed"] == {runs[1].folder: state.failed[1]}


FAULTS = """
import resource, torch
for _ in range(4):
    torch.ones(16_000_000)
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(4):
    torch.ones(16_000_000)
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="glibc's allocator")
def test_a_process_that_trains_keeps_the_memory_it_frees() -> None:
    def faults(environment: dict[str, str]) -> int:
        plain = {name: value for name, value in os.environ.items() if name not in MALLOC_ENV}
        told = subprocess.run(
            [sys.executable, "-c", FAULTS], env=plain | environment, capture_output=True, text=True, check=True
        )
        return int(told.stdout)

    assert faults(worker_env(1)) < faults({}) / 10


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_workers_are_told_how_to_keep_memory_unless_the_user_said_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MALLOC_TOP_PAD_", "4096")
    monkeypatch.delenv("MALLOC_ARENA_MAX", raising=False)
    pool, told = Workers(1, threads=2), [""]
    expected = {"OMP_NUM_THREADS=2", "MALLOC_TOP_PAD_=4096", "MALLOC_ARENA_MAX=1"}
    try:
        process, end = pool._spawn().process, time.monotonic() + 20
        while not expected <= set(told) and time.monotonic() < end:  # for a moment it is still a copy of this process
            told = Path(f"/proc/{process.pid}/environ").read_text().split("\0")
    finally:
        pool.close()
    assert expected <= set(told)
    assert "MALLOC_ARENA_MAX" not in os.environ and os.environ["MALLOC_TOP_PAD_"] == "4096"


def test_a_worker_reads_data_once_for_neighbouring_runs_that_share_them() -> None:
    (dense, pruned, other) = expanded(seeds=2, methods=["l2"])[:3]
    assert (dense.seed, pruned.seed, other.seed) == (0, 0, 1)
    held = _loaded(dense, None)
    assert _loaded(pruned, None) is held
    turned = _loaded(other, None)
    assert turned.hash == held.hash and not turned.train.targets.equal(held.train.targets)
    assert _loaded(dense, None) is not held


def test_the_method_of_a_run_is_resolved_once_in_a_sweep(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from splinecut.experiments import plan as planning
    from splinecut.experiments.sweep import jobs

    resolved = []
    resolve = planning.resolve_method
    monkeypatch.setattr(planning, "resolve_method", lambda *asked: resolved.append(asked[0]) or resolve(*asked))

    class InProcess:
        """Does jobs here and now, as a worker would, from what a pipe would carry."""

        slots = 1

        def __init__(self) -> None:
            self.ended: list[jobs.JobResult] = []

        def start(self, number: int, job: jobs.Job) -> None:
            reason = jobs.perform(pickle.loads(pickle.dumps(job)))
            self.ended.append(jobs.JobResult(number, reason))

        def wait(self, seconds: float) -> list[jobs.JobResult]:
            ended, self.ended = self.ended, []
            return ended

        def close(self) -> None:
            pass

    tables = {
        "model": {"name": "convnet", "preset": "digits", "width": 0.25},
        "data": {"name": "digits", "train_size": 100},
        "training": {"epochs": 1, "batch_size": 50},
        "sweep": {"seeds": [0], "keeps": [0.5], "methods": ["l2", "random"]},
    }
    state = run(grid.plans(grid.from_dict(tables)), tmp_path, InProcess())
    assert not state.failed and len(state.done) == 3
    assert resolved == ["l2", "random"]
