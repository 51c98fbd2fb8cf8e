"""The demo tells its whole story, goes on after an interruption, and does common work once."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from splinecut.cli import demo
from splinecut.experiments import records, runner, spec

QUICK = ["training.epochs=2", "film.steps=[1]", "film.keeps=[0.5]", "film.max_regions=150"]


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """The demo's recipes, two epochs long."""
    load = spec.load
    monkeypatch.setattr(spec, "load", lambda recipe: load(recipe, QUICK))


@pytest.mark.usefixtures("quick")
def test_the_demo_goes_on_after_an_interruption_and_ends_with_a_report(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    run, n_runs = runner.run, 0

    def interrupted(*arguments: Any, **options: Any) -> Any:
        nonlocal n_runs
        n_runs += 1
        if n_runs == 4:
            raise KeyboardInterrupt
        return run(*arguments, **options)

    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setattr(runner, "run", interrupted)
    with pytest.raises(KeyboardInterrupt):
        demo.demo(tmp_path, "cpu")
    assert len(list((tmp_path / demo.SHARED).glob("train-*"))) == 2  # the early bird's, and the one of the others
    finished = {path: path.stat().st_mtime_ns for path in tmp_path.rglob(records.FILE)}
    assert len(finished) == 3
    page = demo.demo(tmp_path, "cpu")
    assert all(path.stat().st_mtime_ns == when for path, when in finished.items())
    assert not (tmp_path / demo.SHARED).exists()

    told = capsys.readouterr().out
    assert all(f"\n{name}: " in f"\n{told}" for name in demo.PIPELINES)
    assert "Early bird: drawn after epoch 2 of 2" in told and "Toy: " in told
    assert f"Look at it all: {page}\n" in told  # a path in one piece, however long
    others = [line for line in told.splitlines() if str(page) not in line]
    assert max(map(len, others)) <= 80 and "…" not in told
    assert {"parameters", "training"} <= set(told.split()) and "without training on." in " ".join(told.split())
    shown = page.read_text(encoding="utf-8")
    assert "6 runs and 8 stored partitions" in shown
    assert "demo-digits-early-bird" in shown and "demo-x-shape" in shown


def test_pipelines_differ_only_in_what_they_say() -> None:
    base = spec.load("demo-digits")
    pipelines = {name: demo._pipeline(base, name) for name in demo.PIPELINES}
    assert all(route.description == demo.PIPELINES[name][0] for name, route in pipelines.items())
    assert len({route.digest for route in pipelines.values()}) == len(pipelines)
    assert pipelines[demo.EARLY].digest == base.digest
    pruned = [route for route in pipelines.values() if route.method]
    assert len({route.budget for route in pruned}) == 1 and {route.method.name for route in pruned if route.method} == {
        "spline",
        "slimming",
        "random",
    }
    assert len({(route.model, route.data, route.training, route.seed) for route in pipelines.values()}) == 1
