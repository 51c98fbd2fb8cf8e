"""Runs an experiment: every stage leaves what it made in the run folder and is not done twice."""

from __future__ import annotations

import copy
import shutil
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any

from splinecut.experiments import records
from splinecut.experiments.folder import commit, describe, locked, versions
from splinecut.experiments.records import Record
from splinecut.experiments.stages import (
    Detect,
    Scene,
    Trained,
    build_model,
    chosen_method,
    early_bird,
    measure,
    prune_stage,
    pruning_facts,
    train_stage,
)
from splinecut.networks import cost, surgery
from splinecut.networks.latency import latency
from splinecut.training import data, devices, tx2
from splinecut.training.progress import Watch

if TYPE_CHECKING:
    from torch import nn

    from splinecut.experiments.spec import Experiment
    from splinecut.pruning.ticket import Ticket
    from splinecut.training.data import DataSet

LATENCY_BATCHES = (1, 128)


def run(
    experiment: Experiment,
    out: str | Path = "runs",
    data_dir: str | Path | None = None,
    device: str = "auto",
    watch: Watch | None = None,
) -> Record:
    """The record of `experiment`: read if its run folder is complete, else made, going on where a killed run stood.

    The folder is `out`/<name>-<digest>. Under torchrun all processes call this; the first one writes.
    """
    folder = Path(out) / experiment.folder
    if records.is_complete(folder):
        return records.load(folder)
    watch = watch or Watch()
    with devices.processes(devices.choose(device)) as (processes, place):
        holding = locked(folder) if processes.is_first else nullcontext()
        try:
            with holding:
                dataset = load_data(experiment, data_dir)
                scene = Scene(experiment, folder, dataset, place, processes, watch)
                return _run(scene)
        finally:
            watch.close()


def load_data(experiment: Experiment, data_dir: str | Path | None = None) -> DataSet:
    """The data set an experiment names."""
    asked = experiment.data
    return data.load(
        asked.name,
        data_dir=data_dir,
        seed=experiment.seed,
        validation=asked.validation,
        train_size=asked.train_size,
        image_size=asked.image_size,
    )


def _run(scene: Scene) -> Record:
    """Train -> detect -> prune -> retrain -> measure -> record."""
    experiment = scene.experiment
    if experiment.method is not None:
        chosen_method(experiment)  # what cannot be is refused before hours of training, not after
    model = build_model(experiment, scene.dataset)
    if scene.processes.is_first:
        describe(scene.folder, experiment)
    bird = early_bird(scene)
    final = train_stage(scene, model, "train", [Detect(bird)] if bird else [])
    test: dict[str, dict[str, Any]] = {}
    ticket, pruning = None, None
    if experiment.method is not None:
        dense = final
        smaller, ticket = prune_stage(scene, dense.model)
        test["after cut"] = measure(scene, smaller)["last"]
        start = dense.history[-1]["epoch"] if dense.history and experiment.retrain.length == "remaining" else 0
        final = train_stage(scene, smaller, "retrain", start_epoch=start)
        pruning = pruning_facts(ticket, dense, bird)
    test |= measure(scene, final.model, final.best)
    record = _record(scene, final, test, pruning)
    if scene.processes.is_first:
        _finish(scene.folder, final, ticket, record)
    scene.processes.wait()
    return record


def _record(scene: Scene, final: Trained, test: dict[str, dict[str, Any]], pruning: dict[str, Any] | None) -> Record:
    experiment, model, shape = scene.experiment, final.model, scene.dataset.input_shape
    return Record(
        name=experiment.name,
        digest=experiment.digest,
        spec=experiment.model_dump(mode="json"),
        test=test,
        history=final.history,
        parameters=cost.parameters(model),
        forward_flops=cost.forward_flops(model, shape),
        ledger=scene.ledger.to_dict(),
        energy=_energy(scene, model),
        latency={str(batch): latency(model, shape, batch) for batch in LATENCY_BATCHES},
        pruning=pruning,
        data_hash=scene.dataset.hash,
        versions=versions(),
        commit=commit(),
        device=str(scene.device),
    )


def _energy(scene: Scene, model: nn.Module) -> dict[str, Any]:
    """Measured joules (None where no meter could be read) and, named an estimate, what a Jetson TX2 would use."""
    total, spent = scene.ledger.total, cost.cost(model, scene.dataset.input_shape, batch=tx2.BATCH)
    moved = spent.bytes * total.flops // max(1, spent.flops)
    return {"measured_joules": total.joules, "estimate_tx2_joules": tx2.tx2_estimate(total.flops, moved)}


def _finish(folder: Path, final: Trained, ticket: Ticket | None, record: Record) -> None:
    """Ticket and weights first, the record after them: it marks the run complete."""
    if ticket is not None:
        ticket.save(folder / "ticket.json")
    surgery.save(final.model, folder / "model.safetensors")
    if final.best.weights:
        best = copy.deepcopy(final.model)
        best.load_state_dict(final.best.weights)
        surgery.save(best, folder / "best.safetensors")
    record.save(folder)
    shutil.rmtree(folder / "checkpoints", ignore_errors=True)
