"""What 0.1.0 wrote is read by this version: records, tickets, networks, checkpoints, recipes.

`tests/data/0.1.0` holds the two runs of `RUNS`, made at commit 47234c7 with `runner.run(..., shared=...)`, without lock
files and best weights. They are never written again.
"""

from __future__ import annotations

import shutil
import tomllib
from pathlib import Path

import pytest
import torch

from splinecut.experiments import records, runner, spec
from splinecut.experiments.building import build_model
from splinecut.networks import cost, surgery
from splinecut.pruning.apply import cut
from splinecut.pruning.ticket import Ticket
from splinecut.pruning.weight_mask import apply_weight_mask
from splinecut.training import checkpoint, data

OLD = Path(__file__).parents[2] / "tests" / "data" / "0.1.0"
SHARED = OLD / "shared" / "train-157b3177f6485714"
RUNS = {"channels": "ticket.json", "weights": "ticket.safetensors"}


def folder(name: str) -> Path:
    (found,) = OLD.glob(f"{name}-*")
    return found


@pytest.mark.parametrize("name", RUNS)
def test_a_record_is_read_whole(name: str) -> None:
    record = records.load(folder(name))
    assert record.name == name and record.spec["seed"] == 3 and record.schema == 1
    assert record.shared == [SHARED.name] and record.costs.total.flops > 0
    assert 0 < record.test["last"]["accuracy"] < 1
    found, skipped = records.find([OLD])
    assert {each.digest for each in found} >= {record.digest} and not skipped


@pytest.mark.parametrize("name", RUNS)
def test_a_recipe_names_the_folder_that_it_lies_in(name: str) -> None:
    experiment = spec.load(folder(name) / "recipe.toml")
    assert experiment.folder == folder(name).name
    assert spec.Experiment.from_dict(records.load(folder(name)).spec).folder == folder(name).name


@pytest.mark.parametrize("name", RUNS)
def test_a_finished_run_is_not_done_again(name: str, tmp_path: Path) -> None:
    shutil.copytree(folder(name), tmp_path / folder(name).name)
    again = runner.run(spec.load(folder(name) / "recipe.toml"), tmp_path, device="cpu")
    assert again == records.load(folder(name))


@pytest.mark.parametrize(("name", "file"), RUNS.items())
def test_a_ticket_fits_its_network_and_is_saved_as_it_was(name: str, file: str, tmp_path: Path) -> None:
    ticket = Ticket.load(folder(name) / file)
    record = records.load(folder(name))
    assert record.pruning is not None
    assert ticket.method == record.pruning["method"] and ticket.kind == name
    kept = {layer: [int(each.sum()), int(each.size)] for layer, each in ticket.keep.items()}
    assert kept == record.pruning["layers"]
    again = Ticket.load(ticket.save(tmp_path / file))
    assert all((again.keep[layer] == each).all() for layer, each in ticket.keep.items())
    network = checkpointed()
    if name == "channels":
        assert cost.parameters(cut(network, ticket)) == record.parameters
    else:
        apply_weight_mask(network, ticket.keep)
        zeros = sum(int((network.get_parameter(layer) == 0).sum()) for layer in ticket.keep)
        assert zeros == sum(size - n for n, size in kept.values())


@pytest.mark.parametrize("name", RUNS)
def test_a_saved_network_does_as_well_as_its_record_says(name: str) -> None:
    record = records.load(folder(name))
    model = surgery.load(folder(name) / "model.safetensors", checkpointed())
    digits = runner.load_data(spec.load(folder(name) / "recipe.toml"))
    assert digits.hash == record.data_hash
    inputs = digits.test.examples(torch.arange(len(digits.test)))
    with torch.no_grad():
        right = (model.eval()(inputs).argmax(1) == digits.test.targets).double().mean()
    assert float(right) == pytest.approx(record.test["last"]["accuracy"], abs=2 / len(digits.test))


def checkpointed() -> torch.nn.Module:
    """The dense network of both runs, trained."""
    experiment = spec.load(folder("channels") / "recipe.toml")
    state = checkpoint.load(SHARED / "000000000004")
    model = build_model(experiment, data.load("digits"))
    model.load_state_dict(state["weights"])
    return model


def test_a_checkpoint_is_loaded_and_a_damaged_one_gives_way_to_the_one_before(tmp_path: Path) -> None:
    shutil.copytree(SHARED, tmp_path, dirs_exist_ok=True)
    state = checkpoint.load_newest(tmp_path)
    assert state is not None and (state["epoch"], state["step"]) == (2, 4) and len(state["history"]) == 2
    file = tmp_path / "000000000004.safetensors"
    file.write_bytes(file.read_bytes()[:-1])
    with pytest.warns(checkpoint.CheckpointWarning, match="000000000004"):
        state = checkpoint.load_newest(tmp_path)
    assert state is not None and (state["epoch"], state["step"]) == (1, 2)


@pytest.mark.parametrize("name", RUNS)
def test_a_run_without_its_record_goes_on_from_the_shared_training(name: str, tmp_path: Path) -> None:
    shutil.copytree(OLD / "shared", tmp_path / "shared")
    before = {file.name: file.read_bytes() for file in SHARED.iterdir()}
    experiment = spec.Experiment.from_dict(records.load(folder(name)).spec)
    # As written anew: 0.1.0 spelled out a budget of channels in the recipe of any method, which "weights" refuses.
    experiment = spec.Experiment.from_dict(tomllib.loads(experiment.to_toml()))
    record = runner.run(experiment, tmp_path, device="cpu", shared=tmp_path / "shared")
    assert [place.name for place in (tmp_path / "shared").iterdir()] == [SHARED.name]
    after = {file.name: file.read_bytes() for file in (tmp_path / "shared" / SHARED.name).iterdir()}
    assert {file: after[file] for file in before} == before
    old = records.load(folder(name))
    assert record.pruning is not None and old.pruning is not None
    assert record.pruning["layers"] == old.pruning["layers"]
    assert record.pruning["dense_history"] == old.pruning["dense_history"]
    assert record.costs.phases["train"].flops == old.costs.phases["train"].flops
