"""Where a network starts is a choice of the recipe: named, paid for, shared, and taken up again after a kill."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from splinecut.errors import InputError
from splinecut.experiments import runner, spec
from splinecut.experiments.building import build_model, run_context
from splinecut.experiments.paper_numbers import published
from splinecut.experiments.records import Record
from splinecut.experiments.spec import Experiment
from splinecut.experiments.sweep import spec as grid
from splinecut.experiments.sweep.accounting import compute
from splinecut.experiments.sweep.scheduler import shared_stages
from splinecut.networks.cost import forward_flops
from splinecut.training import loop
from splinecut.training.devices import SINGLE_PROCESS
from splinecut.training.initialization import ADVERSARIAL, LAYERWISE
from splinecut.training.progress import ConsoleProgress
from support.interrupted_runs import outcome

TINY: dict[str, Any] = {
    "model": {"name": "convnet", "preset": "digits", "width": 0.25},
    "data": {"name": "digits", "train_size": 300, "validation": 0.2},
    "training": {"epochs": 2, "batch_size": 64},
    "probe": 64,
}
NONSENSE = {"name": "adversarial", "plan": {"epochs": 3, "batch_size": 64}}
BY_LAYER = {"name": "layerwise", "plan": {"epochs": 1, "batch_size": 64}}
BIRD = {"name": "early-bird-spline"}
TURNED = {**BY_LAYER, "name": "layerwise-rotation"}
N = 300  # images that TINY trains on


def asked(**changes: Any) -> Experiment:
    return Experiment.from_dict({**TINY, **changes})


def test_a_spelled_out_kaiming_start_is_the_experiment_there_was_before_starts() -> None:
    plain = Experiment.from_dict({"model": "mlp", "data": "x-shape", "seed": 3})
    assert plain.digest == "b7c48c0e8efa"
    spelled = {"start": "kaiming", "retrain": {"start": {"name": "kaiming"}}}
    assert Experiment.from_dict({"model": "mlp", "data": "x-shape", "seed": 3, **spelled}).digest == plain.digest
    digests = {asked(start=start).digest for start in ("kaiming", "adversarial", NONSENSE, BY_LAYER, TURNED)}
    assert len(digests) == 5


def test_what_a_plan_leaves_out_is_the_authors() -> None:
    for name, plan in (("adversarial", ADVERSARIAL), ("layerwise", LAYERWISE), ("layerwise-rotation", LAYERWISE)):
        assert asked(start=name).start.plan == plan
        changed = asked(start={"name": name, "plan": {"epochs": 7, "optimizer": {"lr": 0.5}}}).start.plan
        faster = plan.optimizer.model_copy(update={"lr": 0.5})
        assert changed == plan.model_copy(update={"epochs": 7, "optimizer": faster})
    assert asked().start.plan is None


def test_a_start_can_be_set_by_name_and_reads_back_from_the_run_folder(tmp_path: Path) -> None:
    (tmp_path / "one.toml").write_text('model = "mlp"\ndata = "digits"\n')
    set_ = spec.load(tmp_path / "one.toml", ["start.name=adversarial", "start.copies=5", "start.plan.epochs=9"])
    assert (set_.start.name, set_.start.copies) == ("adversarial", 5)
    assert set_.start.plan == ADVERSARIAL.model_copy(update={"epochs": 9})
    (tmp_path / "two.toml").write_text(set_.to_toml())
    assert spec.load(tmp_path / "two.toml", ["name=one"]) == set_


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"start": "adverserial"}, "start.name should be kaiming, adversarial, layerwise or layerwise-rotation, got"),
        ({"start": {"name": "adversarial", "copy": 2}}, "unknown key 'start.copy'; did you mean 'start.copies'?"),
        ({"start": {"name": "adversarial", "plan": {"epoch": 2}}}, "did you mean 'start.plan.epochs'?"),
        ({"start": {"name": "layerwise", "copies": 2}}, "start: copies is not an option of start layerwise; leave it"),
        ({"start": {"plan": {"epochs": 2}}}, "start: plan is not an option of start kaiming; leave it out"),
        ({"retrain": {"start": {"name": "adversarial", "copies": 0}}}, "retrain.start.copies should be greater than"),
    ],
)
def test_a_start_that_cannot_be_is_one_line(change: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError) as caught:
        asked(**change)
    assert message in str(caught.value) and "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("method", "retrain"), [("l2", {"start": "layerwise"}), ("magnitude", {"start": "layerwise", "weights": "reinit"})]
)
def test_only_fresh_weights_of_a_cut_network_have_a_start(method: str, retrain: dict[str, Any], tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"is for fresh weights of a cut network, got .*retrain.weights = .reinit"):
        grid.expand(grid.from_dict({**TINY, "sweep": {"methods": [{"name": method, "retrain": retrain}]}}))
    with pytest.raises(InputError, match="is for fresh weights of a cut network"):
        runner.run(asked(method=method, retrain=retrain), tmp_path)


def charged(record: Record, phase: str) -> dict[str, Any]:
    return record.ledger[phase]


def test_fitting_nonsense_is_charged_as_a_phase_of_its_own(tmp_path: Path) -> None:
    plain, experiment = runner.run(asked(), tmp_path), asked(start=NONSENSE)
    record = runner.run(experiment, tmp_path)
    data = runner.load_data(experiment)
    flops = forward_flops(build_model(experiment, data), data.input_shape)
    assert charged(record, "initialise")["flops"] == 3 * flops * N * 3
    assert charged(record, "initialise")["paper_flops"] == charged(record, "initialise")["flops"]
    assert charged(record, "train")["flops"] == charged(plain, "train")["flops"]
    assert next(iter(record.ledger)) == "initialise" and "initialise" not in plain.ledger
    assert record.spec["start"]["name"] == "adversarial"
    assert "start" not in plain.spec and "start" not in plain.spec["retrain"]
    assert [row["epoch"] for row in record.history] == [1, 2]


def test_a_rewound_network_goes_back_to_where_it_started(tmp_path: Path) -> None:
    rewound = asked(start=NONSENSE, method="l2", retrain={"weights": "rewind", "length": "none"})
    runner.run(rewound, tmp_path)
    found = load_file(tmp_path / rewound.folder / "model.safetensors")
    data = runner.load_data(rewound)
    context = run_context(rewound, tmp_path / "again", data, torch.device("cpu"), SINGLE_PROCESS, ConsoleProgress())
    model = context.initial_model()
    first = next(name for name, value in model.state_dict().items() if value.dim() == 4)
    weight, kept = model.state_dict()[first], next(value for name, value in found.items() if name.endswith(first))
    assert 0 < len(kept) < len(weight)
    assert all(any(torch.allclose(row, other, atol=1e-6) for other in weight) for row in kept)


@pytest.mark.parametrize(("start", "shown"), [(BY_LAYER, N), (TURNED, 4 * N)])
def test_layers_of_a_cut_network_are_trained_one_by_one_before_it_is(
    start: dict[str, Any], shown: int, tmp_path: Path
) -> None:
    fresh = {"weights": "reinit"}
    plain = runner.run(asked(method="l2", retrain=fresh), tmp_path)
    record = runner.run(asked(method="l2", retrain={**fresh, "start": start}), tmp_path)
    layers = [phase for phase in record.ledger if phase.startswith("reinitialise")]
    assert layers == ["reinitialise-1", "reinitialise-2"]
    assert [charged(record, layer)["images"] for layer in layers] == [shown, shown]
    assert record.parameters == plain.parameters and record.forward_flops == plain.forward_flops
    assert 0 < charged(record, layers[0])["flops"] < 3 * record.forward_flops * shown
    assert set(record.ledger) - set(layers) == set(plain.ledger)
    assert record.history[0]["train_loss"] != plain.history[0]["train_loss"]


class Interrupted(Exception):
    """Raised where a run is to end early."""


def interrupt(run: Experiment, out: Path, n: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Begins or goes on with a run, and ends it when it is about to write its `n`-th checkpoint."""
    original, calls = loop._Training._save, iter(range(1, 1000))

    def save(training: Any) -> None:
        if next(calls) == n:
            raise Interrupted
        original(training)

    with monkeypatch.context() as patched, pytest.raises(Interrupted):
        patched.setattr(loop._Training, "_save", save)
        runner.run(run, out)


def test_a_run_interrupted_on_its_way_to_a_start_ends_as_if_it_had_not_been(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tables = {**TINY, "start": NONSENSE, "method": "l2", "retrain": {"weights": "reinit", "start": TURNED}}
    experiment = Experiment.from_dict(tables)
    runner.run(experiment, tmp_path / "whole")
    interrupt(experiment, tmp_path / "killed", 2, monkeypatch)  # in the second epoch of nonsense
    interrupt(experiment, tmp_path / "killed", 6, monkeypatch)  # two of nonsense, two of training: in the second layer
    folder = tmp_path / "killed" / experiment.folder / "checkpoints"
    assert {place.name for place in folder.iterdir()} == {"initialise", "train", "reinitialise-1"}
    runner.run(experiment, tmp_path / "killed")
    assert outcome(tmp_path / "killed", tables) == outcome(tmp_path / "whole", tables)


def test_runs_with_one_start_share_the_way_there_and_pay_for_it_each(tmp_path: Path) -> None:
    axes = {"seeds": 1, "methods": ["l2", {"name": "slimming", "keeps": [0.5]}], "over": {"start": [NONSENSE]}}
    runs = grid.expand(grid.from_dict({**TINY, "sweep": axes}))
    assert [run.name for run in runs] == ["dense [adversarial]", "l2 [adversarial]", "slimming [adversarial]"]
    assert len(frozenset.intersection(*map(shared_stages, runs))) == 1  # slimming trains otherwise, from the same start
    records = [runner.run(run, tmp_path, shared=tmp_path / "shared") for run in runs]
    assert len(list((tmp_path / "shared").glob("initialise-*"))) == 1
    paid = {charged(record, "initialise")["flops"] for record in records}
    assert len(paid) == 1
    account = compute(tmp_path, runs)
    assert account["charged_flops"] - account["executed_flops"] == 2 * paid.pop() + sum(
        charged(records[0], phase)["flops"] for phase in ("train", "train: validate")
    )


def test_a_training_is_not_taken_for_one_from_another_start(tmp_path: Path) -> None:
    runs = [asked(), asked(start=NONSENSE), asked(start=BY_LAYER)]
    records = [runner.run(run, tmp_path, shared=tmp_path / "shared") for run in runs]
    assert len(list((tmp_path / "shared").glob("train-*"))) == 3
    assert len({record.history[0]["train_loss"] for record in records}) == 3
    alone = [runner.run(run, tmp_path / "alone") for run in runs]
    for record, same in zip(records, alone, strict=True):
        assert record.costs.without_time() == same.costs.without_time() and record.history == same.history


def test_starts_do_not_share_what_follows_them() -> None:
    axes = {"seeds": 1, "methods": ["l2"], "over": {"start": ["kaiming", NONSENSE, BY_LAYER, TURNED]}}
    runs = grid.expand(grid.from_dict({**TINY, "sweep": axes}))
    assert [run.name for run in runs if run.method is None] == [
        f"dense [{name}]" for name in ("kaiming", "adversarial", "layerwise", "layerwise-rotation")
    ]
    trainings = [shared_stages(run) for run in runs]
    assert len(set(trainings)) == 4  # the whole network and the pruned one of each start
    assert not frozenset.intersection(*trainings)


TINY_RECIPES = {
    "adversarial-initialisation-small": (
        4,
        ["sweep.over.model=[{ name = 'convnet', preset = 'digits', width = 0.25 }]"],
    ),
    "pruned-initialisation-small": (
        6,
        ["model={ name = 'convnet', preset = 'digits', width = 0.25 }", "sweep.over={}", "sweep.keeps=[0.5]"],
    ),
}


@pytest.mark.parametrize("recipe", TINY_RECIPES)
def test_the_recipes_on_starts_run_to_their_end(recipe: str, tmp_path: Path) -> None:
    n_runs, changes = TINY_RECIPES[recipe]
    smaller = ["data.name=digits", "data.train_size=200", "training.epochs=2", "training.batch_size=64", "probe=64"]
    runs = grid.expand(grid.load(recipe, [*changes, *smaller, "sweep.seeds=1"]))
    assert len(runs) == n_runs
    records = {run.name: runner.run(run, tmp_path, shared=tmp_path / "shared") for run in runs}
    phases = {name: {phase.split("-")[0] for phase in record.ledger} for name, record in records.items()}
    for name in records:
        assert ("initialise" in phases[name]) == ("adversarial" in name)
        assert ("reinitialise" in phases[name]) == ("layerwise" in name)


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"start": {"name": "adversarial"}, "detector": BIRD, "keep": 0.5, "method": "spline"}, 91.66),
        ({"start": {"name": "adversarial"}, "method": None}, 92.20),
        ({"detector": BIRD, "keep": 0.5, "method": "spline"}, 93.05),
        ({"method": "slimming", "keep": 0.1, "retrain": {"weights": "rewind"}}, 90.41),
        ({"method": "slimming", "keep": 0.1, "retrain": {"weights": "reinit"}}, 90.48),
        (
            {
                "method": "slimming",
                "keep": 0.1,
                "retrain": {"weights": "reinit", "start": {"name": "layerwise-rotation"}},
            },
            90.88,
        ),
        ({"method": "slimming", "keep": 0.1, "retrain": {"weights": "reinit", "start": {"name": "layerwise"}}}, None),
        ({"method": "slimming", "keep": 0.1, "retrain": {"weights": None}}, 89.13),
    ],
)
def test_the_papers_numbers_stand_beside_the_start_they_belong_to(changes: dict[str, Any], expected: float) -> None:
    rest = {key: value for key, value in changes.items() if key not in ("keep", "method")}
    method = {"name": changes["method"], "form": "paper"} if changes["method"] else None
    base = {"model": {"name": "vgg16"}, "data": {"name": "cifar10"}, "training": {"optimizer": {"name": "sgd"}}}
    budget = {"keep": changes.get("keep", 1.0), "scope": "global"}
    assert published({**base, "method": method, "budget": budget, **rest}) == expected
