"""The studies that compare routes: what each is charged, and how routes are set against the dense network."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from scipy import stats

from splinecut.errors import InputError
from splinecut.experiments import runner, spec
from splinecut.experiments.records import Record
from splinecut.training.progress import ConsoleProgress
from studies import headline, refit
from studies.support.result_file import command

RECIPE = """
probe = 64
model = { name = "convnet", preset = "digits" }
data = "digits"
method = "spline"
training = { epochs = 3, batch_size = 256 }
detector = { name = "early-bird-spline", rule = "paper", threshold = 1.0 }
budget = { keep = 0.5, of = "flops" }
"""


@pytest.fixture(scope="module")
def records(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Record]:
    """One seed of every route, at one budget."""
    folder = tmp_path_factory.mktemp("headline")
    recipe = folder / "tiny.toml"
    recipe.write_text(RECIPE)
    asked = headline.experiments(str(recipe), [0], list(headline.ROUTES), [0.5])
    return {one.name: runner.run(one, folder, progress=ConsoleProgress(), shared=folder / "shared") for one in asked}


def test_every_route_runs_once_and_dense_comes_first(records: dict[str, Record]) -> None:
    routes = ["dense", "early-bird-0.5", "train-prune-retrain-0.5", "from-scratch-0.5"]
    assert list(records) == [f"tiny-{route}" for route in routes]


def test_a_route_is_charged_all_it_takes(records: dict[str, Record]) -> None:
    dense, early, late, _ = records.values()
    assert headline.fact(dense)["full_flops"] == dense.costs.total.flops
    assert early.pruning is not None and early.pruning["drawn_epoch"] == 3
    assert late.costs.phases["train"].flops == dense.costs.phases["train"].flops
    for record in (early, late):
        known = headline.fact(record)
        assert known["full_flops"] == record.costs.total.flops > dense.costs.phases["train"].flops
        assert known["achieved"]["flops"] <= 0.5 * known["achieved"]["all_flops"]


def test_from_scratch_counts_its_own_training_alone(records: dict[str, Record]) -> None:
    _, early, _, scratch = records.values()
    assert scratch.forward_flops == early.forward_flops
    known = headline.fact(scratch)["full_flops"]
    assert (
        scratch.costs.phases["retrain"].flops
        <= known
        < scratch.costs.total.flops - scratch.costs.phases["train"].flops + 1
    )


def test_differences_are_paired_by_seed() -> None:
    def fact(name: str, seed: int, accuracy: float, flops: float) -> dict[str, Any]:
        return {
            "name": f"x-{name}",
            "seed": seed,
            "accuracy": accuracy,
            "full_flops": flops,
            "forward_flops": flops / 10,
            "drawn_epoch": 4,
        }

    dense = [fact("dense", seed, accuracy, 100) for seed, accuracy in enumerate((0.70, 0.60, 0.65))]
    early = [fact("early-bird-0.5", seed, accuracy, 50) for seed, accuracy in enumerate((0.71, 0.60, 0.67))]
    first, second = headline.compared([*dense, *early])
    assert first["against dense"] == [0, 0] and first["training flops"] == 1
    low, high = stats.t.interval(0.95, 2, 1.0, stats.sem([1.0, 0.0, 2.0]))
    mean, half = second["against dense"]
    assert (mean - half, mean + half) == pytest.approx((low, high))
    assert second["training flops"] == second["kept flops"] == 0.5 and second["drawn epochs"] == [4, 4, 4]


def test_runs_that_an_earlier_result_holds_are_not_done_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "tiny.toml").write_text(RECIPE)
    arguments = ["headline", str(tmp_path / "tiny.toml"), "--routes", "early bird", "--keeps", "0.5"]

    def result(name: str, *more: str) -> dict[str, Any]:
        out = tmp_path / f"{name}.json"
        monkeypatch.setattr("sys.argv", [*arguments, "--runs", str(tmp_path / name), "--out", str(out), *more])
        headline.main()
        found: dict[str, Any] = json.loads(out.read_text())
        return found

    first = result("first", "--seeds", "0")
    both = result("both", "--seeds", "0", "1", "--known", str(tmp_path / "first.json"))
    assert both["runs"][:2] == first["runs"] and [run["seed"] for run in both["runs"]] == [0, 0, 1, 1]
    assert len(list((tmp_path / "both").glob("tiny-*"))) == 2 and "--known" not in both["command"]


@pytest.mark.parametrize("text", ["", "{}", '{"runs": [{"name": "dense"}]}'])
def test_an_earlier_result_that_names_no_runs_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "old.json").write_text(text)
    with pytest.raises(SystemExit, match="expected a result of this study"):
        headline.held(tmp_path / "old.json")


def test_refitting_is_judged_on_the_dense_network_of_a_recipe(tmp_path: Path) -> None:
    (tmp_path / "tiny.toml").write_text(RECIPE)
    experiment = spec.load(str(tmp_path / "tiny.toml"))
    plain = refit.whole(experiment)
    assert plain.method is None and plain.detector is None and plain.training == experiment.training
    assert refit.whole(plain) is plain


def test_a_full_retraining_may_have_a_length_of_its_own(records: dict[str, Record], tmp_path: Path) -> None:
    (tmp_path / "tiny.toml").write_text(RECIPE)
    experiment = spec.load(str(tmp_path / "tiny.toml"), ["retrain.epochs=5"])
    longer = runner.run(experiment, tmp_path)
    early = records["tiny-early-bird-0.5"]
    assert len(longer.history) == 5 and len(early.history) == 3
    assert longer.costs.phases["retrain"].flops * 3 == early.costs.phases["retrain"].flops * 5
    assert longer.costs.phases["train"].flops == early.costs.phases["train"].flops


@pytest.mark.parametrize("length", ["remaining", "none"])
def test_a_length_is_refused_where_nothing_is_trained_in_full(tmp_path: Path, length: str) -> None:
    (tmp_path / "tiny.toml").write_text(RECIPE)
    experiment = spec.load(str(tmp_path / "tiny.toml"), ["retrain.epochs=5", f"retrain.length={length}"])
    with pytest.raises(InputError, match=f'got retrain.length = "{length}"; leave one of them out'):
        runner.run(experiment, tmp_path)


def test_a_result_says_the_command_that_gives_it_again() -> None:
    options = {
        "recipe": "headline-vgg16",
        "data_dir": Path("/somewhere"),
        "seeds": [0, 1],
        "routes": ["early bird"],
        "runs": Path("/elsewhere"),
        "out": Path("/tmp/r.json"),
        "task": None,
    }
    said = "python -m a.study headline-vgg16 --data-dir DATA --seeds 0 1 --routes 'early bird' --out results/r.json"
    assert command("a.study", options, ["recipe"]) == said
