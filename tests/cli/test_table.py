"""Records become rows with intervals and differences, in every format, whatever else lies in the folders."""

from __future__ import annotations

import csv
import io
import json
import re
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats
from typer.testing import CliRunner

from splinecut.cli.app import app
from splinecut.cli.table import COLUMNS
from splinecut.cli.text_tables import FORMATS, TextTable
from splinecut.errors import InputError
from splinecut.experiments import records
from splinecut.experiments import table_file as committed
from splinecut.experiments.paper_numbers import _results, published
from splinecut.experiments.records import Record
from splinecut.experiments.spec import Experiment
from splinecut.experiments.summaries import Estimate, baseline_row, numbers, rows
from splinecut.pruning.methods.catalogue import METHODS

TASK: dict[str, Any] = {"model": "vgg16", "data": "cifar100"}


def record(name: str, seed: int = 0, accuracy: float | None = 0.5, keep: float | None = None, **spec: Any) -> Record:
    """A record as a run would leave it, with an accuracy of our choice."""
    pruned = {"method": {"name": "l2"}, "budget": {"keep": keep}} if keep is not None else {}
    experiment = Experiment.from_dict({**TASK, "name": name, "seed": seed, **pruned, **spec})
    metrics = {"loss": 1.5, "accuracy": accuracy, "top5": accuracy, "images": 10}
    achieved = {"kept": 5, "of": 10, "flops": 1, "all_flops": 2, "density": 0.5}
    return Record(
        name=name,
        digest=experiment.digest,
        spec=experiment.model_dump(mode="json"),
        test={"last": metrics, **({"after cut": metrics} if keep is not None else {})},
        history=[],
        parameters=1000,
        forward_flops=2000,
        ledger={"train": {"flops": 30, "paper_flops": 20, "images": 1, "seconds": 1.5 + seed, "joules": None}},
        energy={"measured_joules": None, "estimate_tx2_joules": 7.0},
        data_hash="0",
        versions={},
        commit=None,
        device="cpu",
        latency={"1": 0.001, "128": 0.01},
        pruning={"achieved": achieved, "is_early": False, "drawn_epoch": 3, "units": "channels"} if keep else None,
    )


@pytest.fixture
def runs(tmp_path: Path) -> Path:
    accuracies = {"dense": [0.70, 0.72, 0.71], "l2": [0.60, 0.64, 0.62]}
    for name, values in accuracies.items():
        for seed, accuracy in enumerate(values):
            keep = 0.5 if name == "l2" else None
            record(name, seed, accuracy, keep).save(tmp_path / f"{name}-{seed}")
    return tmp_path


def table(*arguments: object) -> tuple[str, str]:
    done = CliRunner().invoke(app, ["table", *map(str, arguments)], catch_exceptions=False)
    assert done.exit_code == 0, done.output
    return done.stdout, done.stderr


@settings(derandomize=True, deadline=None, max_examples=30)
@given(st.lists(st.floats(-1e3, 1e3), min_size=2, max_size=8).filter(lambda values: np.std(values) > 1e-6))
def test_the_interval_is_students(values: list[float]) -> None:
    found = Estimate.of(values)
    low, high = stats.ttest_1samp(values, 0).confidence_interval(0.95)
    assert found.half is not None
    assert (found.mean - found.half, found.mean + found.half) == pytest.approx((low, high), rel=1e-9, abs=1e-9)
    assert found.excludes_zero == (low > 0 or high < 0)


def test_one_seed_has_no_interval() -> None:
    assert Estimate.of([3.0]) == Estimate(3.0, None, 1)
    assert not Estimate.of([3.0]).excludes_zero


def test_runs_that_differ_in_their_seed_only_are_one_row() -> None:
    found = rows([record("dense", seed) for seed in range(3)] + [record("l2", 0, keep=0.5), record("l2", 0, keep=0.7)])
    assert [(row.name, row.keep, len(row.by_seed)) for row in found] == [
        ("dense", 1.0, 3),
        ("l2", 0.7, 1),
        ("l2", 0.5, 1),
    ]


def test_differences_are_paired_by_seed() -> None:
    ours, theirs = [0.70, 0.75, 0.72], [0.60, 0.66, 0.61]
    found = rows(
        [record("dense", seed, value) for seed, value in enumerate(ours)]
        + [record("l2", seed, value, 0.5) for seed, value in enumerate(theirs)]
        + [record("l2", 9, 0.1, 0.5)]  # a seed that the other row lacks
    )
    dense, l2 = found
    difference = l2.difference(dense, "last_top1")
    low, high = stats.ttest_rel(theirs, ours).confidence_interval(0.95)
    assert difference is not None and difference.n == 3 and difference.half is not None
    assert (difference.mean - difference.half, difference.mean + difference.half) == pytest.approx((low, high))


def test_the_baseline_has_the_same_task_and_budget_or_is_the_only_one() -> None:
    pruned = [record(name, keep=keep, method=name) for name in ("a", "b") for keep in (0.5, 0.7)]
    found = rows([record("dense"), *pruned])
    dense, _, a5, b7, b5 = found
    assert baseline_row(b5, found, "a") is a5
    assert baseline_row(b7, found, "dense") is dense
    assert baseline_row(dense, found, "dense") is None
    assert baseline_row(dense, found, "a") is None  # there are two
    with pytest.raises(InputError, match="unknown row 'dens'; did you mean 'dense'"):
        baseline_row(b5, found, "dens")


def test_every_number_of_a_record_has_a_column() -> None:
    full = record("l2", keep=0.5)
    full.test["best"] = {**full.test["last"], "epoch": 1}
    full.energy["measured_joules"] = 3.0
    assert set(numbers(full)) == set(COLUMNS)


def test_text_shows_mean_interval_difference_and_what_was_not_measured(runs: Path) -> None:
    said, _ = table(runs, "--baseline", "dense", "--columns", "last_top1,joules,latency_1")
    low, high = stats.ttest_1samp([60, 64, 62], 0).confidence_interval(0.95)
    assert re.search(rf"l2 +0.5 of channels +3 +62.00 ± {(high - low) / 2:.2f} +not measured", said)
    assert re.search(r"-9.00 ± 2.48", said)
    assert "71.43" in said  # the paper's whole VGG-16 on CIFAR-100


def test_csv_reads_back_with_all_numbers(runs: Path) -> None:
    said, _ = table(runs, "--format", "csv", "--baseline", "dense")
    assert said == table(runs, "--format", "csv", "--against", "dense")[0]  # its name in 0.1
    dense, l2 = csv.DictReader(io.StringIO(said))
    assert float(l2["last_top1"]) == pytest.approx(0.62)
    assert float(l2["difference"]) == pytest.approx(-0.09)
    assert (l2["joules"], l2["tx2_joules"], l2["latency_128"]) == ("", "7.0", "0.01")
    assert dense["published_top1"] == "71.43" and dense["difference"] == ""
    assert set(COLUMNS) <= set(dense)


@pytest.mark.parametrize("format_", FORMATS)
def test_names_cannot_break_a_table(format_: str) -> None:
    wild = 'a|b & c_d 5% \\x {y}, "z"'
    written = FORMATS[format_](TextTable(["name", "n"], [[wild, "1"]]))
    if format_ == "markdown":
        assert re.search(r"^\| a\\\|b & ", written, flags=re.MULTILINE)
    elif format_ == "csv":
        assert list(csv.reader(io.StringIO(written)))[1] == [wild, "1"]
    elif format_ == "latex":
        assert r"a|b \& c\_d 5\% \textbackslash{}x \{y\}" in written
        assert written.count("&") - written.count(r"\&") == 2
    else:
        assert wild in written


def test_unreadable_records_are_listed_and_skipped(runs: Path) -> None:
    good = json.loads((runs / "dense-0" / "record.json").read_text())
    foreign = {
        "half": json.dumps(good)[:200],
        "empty": "",
        "list": "[1, 2]",
        "other": json.dumps({"schema": 1, "hello": 2}),
        "newer": json.dumps({**good, "schema": 99}),
        "hollow": json.dumps({**good, "spec": {}}),
        "wrong": json.dumps({**good, "ledger": {"train": 3}}),
        "words": json.dumps({**good, "parameters": "many"}),
        "bare": json.dumps({**good, "test": {}}),
        "cut": json.dumps({**good, "pruning": {}}),
    }
    for name, text in foreign.items():
        (runs / name).mkdir()
        (runs / name / "record.json").write_text(text)
    (runs / "binary").mkdir()
    (runs / "binary" / "record.json").write_bytes(b"\xff\xfe\x00")
    said, skipped = table(runs)
    assert "71.00" in said and said.count("vgg16") == 2
    for name in (*foreign, "binary"):
        assert sum(f"/{name}/record.json" in line for line in skipped.splitlines()) == 1, skipped


@pytest.mark.parametrize("name", ["", "nowhere"])
def test_a_folder_without_records_is_an_error(tmp_path: Path, name: str) -> None:
    with pytest.raises(InputError, match=f"no finished run in {re.escape(str(tmp_path / name))}; ") as error:
        table(tmp_path / name)
    assert "there is no" in str(error.value) if name else "run an experiment there first" in str(error.value)


def test_a_folder_without_records_beside_one_with_some_is_said(runs: Path, tmp_path: Path) -> None:
    said, skipped = table(runs, tmp_path / "nowhere")
    assert "71.00" in said and "nowhere holds no record.json" in skipped


def on_terminal(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], *arguments: object) -> list[str]:
    """The lines that `splinecut table` prints on a terminal of 80 columns."""
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    app(["table", *map(str, arguments)], standalone_mode=False)
    return re.sub(r"\x1b\[\d*m", "", capsys.readouterr().out).splitlines()


LONG = "demo-digits-train-prune-retrain"


def test_a_narrow_terminal_shows_the_columns_that_fit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for seed, accuracy in enumerate([0.60, 0.64, 0.62]):
        record(LONG, seed, accuracy, 0.5).save(tmp_path / f"{LONG}-{seed}")
        record("dense", seed, accuracy + 0.1).save(tmp_path / f"dense-{seed}")
    lines = on_terminal(monkeypatch, capsys, tmp_path)
    assert max(map(len, lines)) <= 80
    assert any(re.search(r"62\.00 ± 4\.97", line) for line in lines)  # in one piece
    assert re.search(r"^\+ \d+ columns: --columns all$", "\n".join(lines), flags=re.MULTILINE)
    assert "0.5 of channels" in "\n".join(lines) and "2,000" in "\n".join(lines)


@pytest.mark.parametrize("columns", ["all", "parameters,forward_flops,paper_flops,full_flops,cut_top1,last_top1"])
def test_columns_that_were_asked_for_stand_in_several_tables_if_need_be(
    runs: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], columns: str
) -> None:
    lines = on_terminal(monkeypatch, capsys, runs, "--columns", columns, "--baseline", "dense")
    assert max(map(len, lines)) <= 80
    words = " ".join(" ".join(lines).split())
    for number in ("62.00 ± 4.97", "-9.00 ± 2.48", "2,000", "1,000", "71.43"):
        assert any(number in line for line in lines), number
    assert "--columns all" not in words
    if columns == "all":
        assert "not measured" in words and "0.001" not in words


def test_an_empty_table_is_not_written_over_another(tmp_path: Path) -> None:
    (tmp_path / "table.json").write_text("precious")
    with pytest.raises(InputError, match="no finished run"):
        table(tmp_path, "--json", tmp_path / "table.json")
    assert (tmp_path / "table.json").read_text() == "precious"


def test_a_regression_shows_its_loss(tmp_path: Path) -> None:
    record("fit", accuracy=None).save(tmp_path / "fit")
    said, _ = table(tmp_path)
    assert "loss last" in said and "1.5" in said


@pytest.mark.parametrize("options", [(), ("--format", "csv"), ("--format", "markdown", "--baseline", "dense")])
def test_a_written_table_is_read_as_the_runs_it_was_made_of(runs: Path, tmp_path: Path, options: tuple[str]) -> None:
    said, _ = table(runs, *options, "--json", tmp_path / "all.json")
    assert table(tmp_path / "all.json", *options)[0] == said
    assert table(runs, tmp_path / "all.json", *options)[0] == said


def test_seeds_that_were_run_later_join_a_written_table(runs: Path, tmp_path: Path) -> None:
    by_seed: dict[int, list[Path]] = {}
    for folder in sorted(runs.iterdir()):
        by_seed.setdefault(records.load(folder).spec["seed"], []).append(folder)
    said, _ = table(runs, "--json", tmp_path / "all.json")
    (first, *rest) = by_seed.values()
    table(*first, "--json", tmp_path / "some.json")
    later = [folder for folders in rest for folder in folders]
    assert table(*later, tmp_path / "some.json", "--json", tmp_path / "some.json")[0] == said
    assert json.loads((tmp_path / "some.json").read_text()) == json.loads((tmp_path / "all.json").read_text())


def test_a_written_table_says_what_its_sweep_executed(runs: Path, tmp_path: Path) -> None:
    compute = {"charged_flops": 4, "executed_flops": 1, "share": 0.25, "runs": 6}
    overrides = ["sweep.seeds=[0, 1]"]
    known = {"sweep": "digits-table", "overrides": overrides, "compute": compute, "failed": {}, "lost workers": 0}
    (runs / "sweep.json").write_text(json.dumps(known))
    table(runs, "--json", tmp_path / "all.json")
    (sweep,) = json.loads((tmp_path / "all.json").read_text())["sweeps"]
    assert sweep["compute"] == compute and sweep["command"] == "splinecut sweep digits-table --set 'sweep.seeds=[0, 1]'"


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"kind": "splinecut table", "schema": 9, "rows": []}'])
def test_a_foreign_file_is_refused_in_one_line(tmp_path: Path, text: str) -> None:
    (tmp_path / "other.json").write_text(text)
    with pytest.raises(InputError, match="is not a table that `splinecut table --json` wrote"):
        committed.load(tmp_path / "other.json")


@pytest.mark.parametrize(
    ("spec", "quantity", "expected"),
    [
        ({}, "top1", 71.43),
        ({"method": "slimming", "budget": {"keep": 0.9, "scope": "layer"}}, "top1", 71.6),
        ({"method": "slimming", "budget": {"keep": 0.9}}, "top1", 71.24),
        ({"method": {"name": "spline", "form": "paper"}, "budget": {"keep": 0.5}}, "top1", 70.07),
        ({"method": {"name": "spline", "form": "paper", "reduce": "fa"}, "budget": {"keep": 0.5}}, "top1", 70.62),
        ({"method": "spline", "budget": {"keep": 0.5}}, "top1", None),
        ({"method": "lottery", "budget": {"keep": 0.7}}, "petaflops", 30.3),
        ({"method": "lottery", "budget": {"keep": 0.65}}, "top1", None),
        ({"method": "slimming", "budget": {"keep": 0.1}}, "top1", 1.0),
    ],
)
def test_the_papers_number_is_found_by_network_data_method_and_share(
    spec: dict[str, Any], quantity: str, expected: float | None
) -> None:
    asked = Experiment.from_dict({**TASK, **spec}).model_dump(mode="json")
    assert published(asked, quantity) == expected


def test_an_early_bird_of_the_paper_has_its_own_row() -> None:
    method = {"method": {"name": "spline", "form": "paper"}, "detector": "early-bird-spline"}
    spec = {"model": "resnet50", "data": "imagenet", **method, "budget": {"keep": 0.5}}
    asked = Experiment.from_dict(spec).model_dump(mode="json")
    assert [published(asked, quantity) for quantity in ("top1", "top5", "petaflops")] == [73.37, 91.53, 1636.02]


def test_published_rows_are_complete_and_name_methods_there_are() -> None:
    for result in _results():
        for quantity in ("top1", "top5", "petaflops"):
            for method, values in result.get(quantity, {}).items():
                assert method.removeprefix("eb-") in METHODS
                assert len(values) == len(result["keeps"])


def test_a_record_survives_writing_and_reading(tmp_path: Path) -> None:
    kept = record("l2", 3, 0.4, 0.5)
    kept.save(tmp_path)
    assert asdict(records.load(tmp_path)) == asdict(kept)
