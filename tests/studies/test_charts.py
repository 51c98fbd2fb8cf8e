"""Pictures of committed tables show what the tables say."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path

import matplotlib
import pytest

from splinecut.experiments import table_file as committed
from studies import charts

ROOT = Path(__file__).parents[2]
TABLES = [path for path in sorted((ROOT / "results").glob("*.json")) if path.with_suffix(".svg").is_file()]
TABLES = [path for path in TABLES if json.loads(path.read_text()).get("kind") == committed.KIND]


PICTURES = [(path, charts.draw) for path in TABLES] + [
    (path.with_name(path.name.replace("-tradeoff.svg", ".json")), charts.tradeoff)
    for path in sorted((ROOT / "results").glob("*-tradeoff.svg"))
]


@pytest.mark.parametrize(("table", "draw"), PICTURES, ids=lambda each: getattr(each, "stem", ""))
def test_a_committed_picture_is_that_of_its_table(table: Path, draw: Callable[[Path], Path], tmp_path: Path) -> None:
    drawn = draw(Path(shutil.copy(table, tmp_path / table.name)))
    kept = (ROOT / "results" / drawn.name).read_text()
    if f"Matplotlib v{matplotlib.__version__}," not in kept:
        pytest.skip("the committed picture was drawn by another version of matplotlib")
    assert drawn.read_text() == kept, "run `make pages`"


def row(name: str, of: str, keep: float, accuracy: float = 0.5, task: str = "toy") -> dict[str, object]:
    numbers = {seed: {"last_top1": accuracy, "full_flops": 100 * keep} for seed in ("0", "1")}
    named = {"asked": f"{task} {name} {keep}", "task": task, "name": name, "keep": keep, "of": of}
    return {**named, "published": {}, "by_seed": numbers}


def table_of(folder: Path, rows: Sequence[dict[str, object]]) -> Path:
    path = folder / "t.json"
    path.write_text(json.dumps({"kind": committed.KIND, "schema": 1, "rows": rows}))
    return path


def test_a_picture_has_a_row_for_every_method_and_a_colour_for_every_budget(tmp_path: Path) -> None:
    rows = [row("dense", "", 1.0, 0.9), row("l2 (rounds=3)", "channels", 0.5, 0.8), row("snip", "weights", 0.1, 0.3)]
    drawn = charts.draw(table_of(tmp_path, rows)).read_text()
    for label in ("toy", "l2 (channels)", "snip (weights)", "keep 0.5", "keep 0.1", "whole network"):
        assert f">{label}</text>" in drawn, label


def test_a_task_may_lack_a_budget_that_another_has(tmp_path: Path) -> None:
    rows = [row("dense", "", 1.0, task=task) for task in ("toy", "digits")]
    rows += [row("l2", "channels", 0.5), row("l2", "channels", 0.1, task="digits")]
    drawn = charts.draw(table_of(tmp_path, rows)).read_text()
    assert all(f">{label}</text>" in drawn for label in ("toy", "digits", "keep 0.5", "keep 0.1"))


def test_a_tradeoff_has_a_line_for_every_method_and_a_mark_for_every_budget(tmp_path: Path) -> None:
    rows = [row("dense", "", 1.0), *(row(name, "channels", keep) for name in ("l2", "random") for keep in (0.5, 0.1))]
    drawn = charts.tradeoff(table_of(tmp_path, rows))
    assert drawn.name == "t-tradeoff.svg"
    for label, times in {"toy": 1, "l2": 1, "random": 1, "whole network": 1, "0.5": 2, "0.1": 2}.items():
        assert drawn.read_text().count(f">{label}</text>") >= times, label


def test_there_is_such_a_picture() -> None:
    assert TABLES
