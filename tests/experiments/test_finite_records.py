"""A record holds finite numbers or is not written; a training that diverged ends with one line."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from splinecut.cli.app import main
from splinecut.errors import InputError
from splinecut.experiments import records, runner
from splinecut.experiments.records import Record
from splinecut.experiments.spec import Experiment
from splinecut.training.loop import Diverged

# One step with a rate that no network survives, and no validation images on which it would show.
DIVERGING: dict[str, Any] = {
    "name": "diverging",
    "model": {"name": "convnet", "preset": "digits", "width": 0.25},
    "data": {"name": "digits", "validation": 0.0},
    "training": {"epochs": 1, "batch_size": 2000, "optimizer": {"lr": 1e30}},
}
KEYS = ["test.last.accuracy", "test.last.loss", "forward_flops", "ledger.train.flops", "history.0.train_loss"]


@pytest.fixture(scope="module")
def record(tmp_path_factory: pytest.TempPathFactory) -> Record:
    asked = {**DIVERGING, "training": {"epochs": 1, "batch_size": 256}}
    return runner.run(Experiment.from_dict(asked), tmp_path_factory.mktemp("runs"), device="cpu")


@pytest.mark.parametrize("key", KEYS)
@pytest.mark.parametrize("value", [float("nan"), float("inf"), float("-inf")])
def test_a_number_that_is_not_finite_is_refused_by_its_key(
    record: Record, key: str, value: float, tmp_path: Path
) -> None:
    first, *rest = key.split(".")
    facts = json.loads(json.dumps(getattr(record, first)))
    place = facts
    for part in rest[:-1]:
        place = place[int(part)] if isinstance(place, list) else place[part]
    if rest:
        place[rest[-1]] = value
    with pytest.raises(InputError, match=rf"{key} is {value}"):
        replace(record, **{first: facts if rest else value}).save(tmp_path)
    assert not records.is_complete(tmp_path)


def test_a_record_that_an_older_version_wrote_with_nan_still_loads(record: Record, tmp_path: Path) -> None:
    record.save(tmp_path)
    file = tmp_path / records.FILE
    facts = json.loads(file.read_text())
    facts["test"]["last"]["loss"] = float("nan")
    file.write_text(json.dumps(facts))
    assert records.load(tmp_path).test["last"]["loss"] != records.load(tmp_path).test["last"]["loss"]


def test_a_training_whose_last_step_diverges_leaves_no_record(tmp_path: Path) -> None:
    experiment = Experiment.from_dict(DIVERGING)
    with pytest.raises(Diverged, match=r"the test loss .* is (nan|inf).*learning rate") as caught:
        runner.run(experiment, tmp_path, device="cpu")
    assert "\n" not in str(caught.value)
    left = {file.name for file in (tmp_path / experiment.folder).iterdir()}
    assert not left & {records.FILE, "model.safetensors"}


def test_the_command_line_says_so_and_ends_with_2(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    recipe = tmp_path / "diverging.toml"
    recipe.write_text(Experiment.from_dict(DIVERGING).to_toml())
    monkeypatch.setattr("sys.argv", ["splinecut", "run", str(recipe), "--out", str(tmp_path), "--device", "cpu"])
    with pytest.raises(SystemExit) as ended:
        main()
    said = " ".join(capsys.readouterr().err.split())
    assert ended.value.code == 2 and "the test loss" in said and "Traceback" not in said
