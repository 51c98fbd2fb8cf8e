"""Runs an experiment: every stage leaves what it made in the run folder and is not done twice."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from splinecut.experiments import records
from splinecut.experiments.folder import commit, describe, locked, versions
from splinecut.experiments.records import Record
from splinecut.files import write_atomically
from splinecut.networks import cost, models
from splinecut.training import checkpoint, data, devices, energy, tx2
from splinecut.training.evaluate import evaluate
from splinecut.training.hooks import Hook, Moment
from splinecut.training.ledger import FORWARD, Ledger
from splinecut.training.loop import train
from splinecut.training.progress import Watch

if TYPE_CHECKING:
    from torch import Tensor, nn

    from splinecut.experiments.spec import Experiment
    from splinecut.training.data import DataSet
    from splinecut.training.devices import Processes


class KeepBest(Hook):
    """Holds the weights of the epoch with the best validation accuracy (regression: loss); the earlier wins ties."""

    name = "best"

    def __init__(self) -> None:
        self.epoch = 0
        self.value = float("-inf")
        self.weights: dict[str, Tensor] = {}

    def after_epoch(self, moment: Moment) -> bool:
        row = moment.history[-1]
        accuracy, loss = row.get("validation_accuracy"), row.get("validation_loss")
        value = accuracy if accuracy is not None else -loss if loss is not None else None
        if value is not None and value > self.value:
            self.epoch, self.value = moment.epoch, value
            self.weights = {name: tensor.detach().clone() for name, tensor in moment.model.state_dict().items()}
        return False

    def state(self) -> dict[str, Any]:
        return {"epoch": self.epoch, "value": self.value if self.epoch else None, "weights": self.weights}

    def restore(self, state: dict[str, Any]) -> None:
        if state["epoch"]:
            self.epoch, self.value, self.weights = state["epoch"], state["value"], state["weights"]


class ChargeEnergy(Hook):
    """Charges the joules of each epoch to the phase, so that they are in the checkpoint like everything else."""

    def __init__(self, meter: energy.Meter) -> None:
        self.meter, self.charged = meter, 0.0

    def after_epoch(self, moment: Moment) -> bool:
        if self.meter.joules is not None:
            moment.ledger.spend(moment.phase, joules=self.meter.joules - self.charged)
            self.charged = self.meter.joules
        return False


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
                return _run(experiment, folder, data_dir, place, processes, watch)
        finally:
            watch.close()


def _run(
    experiment: Experiment,
    folder: Path,
    data_dir: str | Path | None,
    device: torch.device,
    processes: Processes,
    watch: Watch,
) -> Record:
    dataset = load_data(experiment, data_dir)
    model = build_model(experiment, dataset)
    if processes.is_first:
        describe(folder, experiment)
    ledger, best = Ledger(), KeepBest()
    with energy.Meter(device) as meter:
        hooks: Sequence[Hook] = (best, ChargeEnergy(meter), *([watch] if processes.is_first else []))
        history = train(
            model,
            dataset,
            experiment.training,
            seed=experiment.seed,
            device=device,
            ledger=ledger,
            hooks=hooks,
            checkpoints=folder / "checkpoints",
            processes=processes,
            say=watch.say if processes.is_first else None,
        )
    test = _measure(model, dataset, best, ledger, device, processes)
    record = Record(
        name=experiment.name,
        digest=experiment.digest,
        spec=experiment.model_dump(mode="json"),
        test=test,
        history=history,
        parameters=cost.parameters(model),
        forward_flops=cost.forward_flops(model, dataset.input_shape),
        ledger=ledger.to_dict(),
        energy=_energy(model, dataset, ledger),
        data_hash=dataset.hash,
        versions=versions(),
        commit=commit(),
        device=str(device),
    )
    if processes.is_first:
        _finish(folder, model, best, record)
    processes.wait()
    return record


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


def build_model(experiment: Experiment, dataset: DataSet) -> nn.Module:
    """The untrained network an experiment names, fitted to its data; the same for the same seed."""
    asked, shape = experiment.model, dataset.input_shape
    model = models.build(
        asked.name,
        classes=dataset.outputs,
        input_shape=shape,
        width=asked.width,
        activation=asked.activation,
        seed=experiment.seed,
        **asked.options,
    )
    models.check_input(model, shape)
    return model


def _measure(
    model: nn.Module,
    dataset: DataSet,
    best: KeepBest,
    ledger: Ledger,
    device: torch.device,
    processes: Processes,
) -> dict[str, dict[str, Any]]:
    """Test metrics of the last weights and of the ones best by validation; the model is left with the last."""
    flops = cost.forward_flops(model, dataset.input_shape)

    def look() -> dict[str, Any]:
        ledger.charge("test", flops, len(dataset.test), FORWARD)
        return asdict(evaluate(model, dataset.test, dataset.task, device=device, processes=processes))

    test = {"last": look()}
    if best.weights:
        last = {name: tensor.detach().clone() for name, tensor in model.state_dict().items()}
        model.load_state_dict(best.weights)
        test["best"] = {**look(), "epoch": best.epoch}
        model.load_state_dict(last)
    return test


def _energy(model: nn.Module, dataset: DataSet, ledger: Ledger) -> dict[str, Any]:
    """Measured joules (None where no meter could be read) and, named an estimate, what a Jetson TX2 would use."""
    total, spent = ledger.total, cost.cost(model, dataset.input_shape, batch=tx2.BATCH)
    moved = spent.bytes * total.flops // max(1, spent.flops)
    return {"measured_joules": total.joules, "estimate_tx2_joules": tx2.tx2_estimate(total.flops, moved)}


def _finish(folder: Path, model: nn.Module, best: KeepBest, record: Record) -> None:
    """Weights first, the record after them: it marks the run complete."""
    _save_weights(folder / "model.safetensors", model.state_dict())
    if best.weights:
        _save_weights(folder / "best.safetensors", best.weights)
    record.save(folder)
    checkpoint.clear(folder / "checkpoints")


def _save_weights(path: Path, weights: dict[str, Tensor]) -> None:
    from safetensors.torch import save

    tensors = {name: tensor.detach().cpu().contiguous().clone() for name, tensor in weights.items()}
    write_atomically(path, lambda file: file.write_bytes(save(tensors)))
