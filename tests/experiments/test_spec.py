"""A recipe becomes a typed experiment, or one line that says what is wrong with it."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from splinecut.errors import InputError
from splinecut.experiments import recipes, spec
from splinecut.experiments.plan import method_and_budget
from splinecut.experiments.spec import Experiment

SMALLEST: dict[str, Any] = {"model": "mlp", "data": "x-shape"}


def write(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "recipe.toml"
    path.write_text(text)
    return path


def test_a_name_alone_is_short_for_its_table() -> None:
    short = Experiment.from_dict(SMALLEST)
    long = Experiment.from_dict({"model": {"name": "mlp"}, "data": {"name": "x-shape"}})
    assert short == long


def test_overrides_are_typed_and_reach_inside_shorthands(tmp_path: Path) -> None:
    path = write(tmp_path, 'model = "mlp"\ndata = "x-shape"\n')
    overrides = ["model.width=0.5", "training.schedule.name=cosine", "training.epochs=3", "model.hidden=[4, 4]"]
    experiment = spec.load(path, overrides)
    assert experiment.model.width == 0.5
    assert experiment.model.options == {"hidden": [4, 4]}
    assert experiment.training.schedule.name == "cosine"
    assert experiment.training.epochs == 3
    assert experiment.name == "recipe"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"trainin": {}}, "unknown key 'trainin'; did you mean 'training'?"),
        ({"training": {"epoch": 3}}, "unknown key 'training.epoch'; did you mean 'training.epochs'?"),
        ({"training": {"optimizer": {"l_r": 1}}}, "did you mean 'training.optimizer.lr'?"),
        ({"training": {"epochs": -1}}, "training.epochs should be greater than or equal to 0, got -1"),
        (
            {"training": {"optimizer": {"name": "sdg"}}},
            "training.optimizer.name should be sgd, adam, adagrad or rmsprop",
        ),
        ({"model": {"name": "mlp", "width": 0}}, "model.width should be greater than 0, got 0"),
        ({"data": {"name": "digits", "validation": 1.5}}, "data.validation should be less than 1, got 1.5"),
        ({"model": {}}, "the recipe does not say 'model.name'"),
    ],
)
def test_a_bad_recipe_is_one_line_that_names_the_key(change: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError) as caught:
        Experiment.from_dict({**SMALLEST, **change})
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_quotes_hold_a_key_with_dots_together() -> None:
    tables = recipes.read("table2-global-small", ['sweep.over."data.name"=["cifar10"]'])
    assert tables["sweep"]["over"]["data.name"] == ["cifar10"]
    assert tables["sweep"]["over"]["model"] == [{"name": "vgg16", "width": 0.25}]


@pytest.mark.parametrize("override", ["epochs", "=3", "seed.x=3", ".=3", "data..name=x", 'data."name=x', '"=3'])
def test_an_override_that_cannot_be_is_refused(tmp_path: Path, override: str) -> None:
    path = write(tmp_path, 'seed = 1\nmodel = "mlp"\ndata = "x-shape"\n')
    with pytest.raises(InputError):
        spec.load(path, [override])


def test_a_file_that_is_not_toml_is_refused_by_name(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"recipe .*recipe.toml is not TOML"):
        spec.load(write(tmp_path, "model = = 3"))


def test_an_unknown_recipe_names_the_nearest() -> None:
    with pytest.raises(InputError, match="did you mean 'demo-digits'"):
        spec.load("demo-digit")


def test_the_digest_ignores_names_and_spelled_out_defaults_and_nothing_else() -> None:
    base = Experiment.from_dict(SMALLEST)
    same = Experiment.from_dict({**SMALLEST, "name": "other", "training": {"batch_size": 256}})
    assert base.digest == same.digest
    for change in ({"seed": 1}, {"training": {"epochs": 1}}, {"model": {"name": "mlp", "hidden": [3]}}):
        assert Experiment.from_dict({**SMALLEST, **change}).digest != base.digest


def test_a_folder_name_is_safe_whatever_the_experiment_is_called() -> None:
    folder = Experiment.from_dict({**SMALLEST, "name": "../<script>/x y"}).folder
    assert "/" not in folder and "<" not in folder and not folder.startswith(".")


@settings(derandomize=True, deadline=None, max_examples=30)
@given(
    name=st.text(max_size=20),
    seed=st.integers(0, 2**40),
    rate=st.floats(1e-9, 1e3),
    milestones=st.lists(st.floats(0.01, 100), max_size=3),
)
def test_an_experiment_written_as_toml_reads_back_equal(
    tmp_path_factory: pytest.TempPathFactory, name: str, seed: int, rate: float, milestones: list[float]
) -> None:
    training = {"optimizer": {"lr": rate}, "schedule": {"milestones": milestones}}
    experiment = Experiment.from_dict(
        {"name": name, "seed": seed, "model": {"name": "mlp", "hidden": [3, 4]}, "data": "digits", "training": training}
    )
    path = tmp_path_factory.mktemp("toml") / "r.toml"
    path.write_text(experiment.to_toml(), encoding="utf-8")
    assert spec.load(path) == experiment
    assert spec.load(path).digest == experiment.digest


NUMBERS = st.integers() | st.floats(allow_nan=False, allow_infinity=False)
VALUES = st.recursive(
    st.booleans() | NUMBERS | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=12,
)
OPTIONS = st.dictionaries(st.text().filter(lambda key: key not in ("name", "width", "activation")), VALUES, max_size=4)


@settings(derandomize=True, deadline=None, max_examples=200)
@given(options=OPTIONS)
def test_options_of_any_shape_are_read_back_as_they_were_written(options: dict[str, Any]) -> None:
    experiment = Experiment.from_dict({**SMALLEST, "model": {"name": "mlp", **options}})
    again = Experiment.from_dict(tomllib.loads(experiment.to_toml()))
    assert again == experiment and again.model.options == options and again.digest == experiment.digest


@pytest.mark.parametrize(
    "options",
    [{"a key": 1, "a.b": 2, '"': 3, "": 4}, {"layers": [{"width": 3}, {"width": 4, "inner": [{"x": []}]}]}, {"x": {}}],
)
def test_quoted_keys_and_lists_of_tables_are_valid_toml(options: dict[str, Any]) -> None:
    experiment = Experiment.from_dict({**SMALLEST, "model": {"name": "mlp", **options}})
    assert tomllib.loads(experiment.to_toml())["model"].items() >= options.items()


@pytest.mark.parametrize("value", [[3, None], [{"x": None}], {"y": [[None]]}, {"z": None}])
def test_nothing_inside_an_option_has_no_toml_and_is_refused_by_name(value: Any) -> None:
    experiment = Experiment.from_dict({**SMALLEST, "model": {"name": "mlp", "hidden": value}})
    with pytest.raises(InputError, match=r"model\.hidden.* is None"):
        experiment.to_toml()


def test_the_recipe_of_a_run_that_removes_single_weights_runs_again() -> None:
    """Its budget counts weights; the default, channels, is not written down as if it had been asked for."""
    experiment = spec.load("digits-weights")
    again = Experiment.from_dict(tomllib.loads(experiment.to_toml()))
    assert again == experiment and method_and_budget(again) == method_and_budget(experiment)


def test_every_recipe_that_ships_can_be_read() -> None:
    assert recipes.shipped()
    for path in recipes.shipped().values():
        assert recipes.read(path).get("description"), f"{path.name} has no description"
