"""The stages of a run: train until the end or the early bird, draw and cut, train what is left.

Each stage can be entered again after a kill. Training goes on from its checkpoints, and one that has ended gives its
result at once; drawing and cutting follow from the weights and are simply done again.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from splinecut.experiments.spec import Experiment
from splinecut.networks import cost, models
from splinecut.networks.groups import groups as read_groups
from splinecut.pruning import apply
from splinecut.pruning.budget import Budget
from splinecut.pruning.detect import EarlyBird
from splinecut.pruning.draw import drawn, named
from splinecut.pruning.evidence import Evidence
from splinecut.pruning.ticket import Ticket
from splinecut.training import energy
from splinecut.training.data import DataSet
from splinecut.training.data.order import generator
from splinecut.training.devices import Processes
from splinecut.training.evaluate import evaluate
from splinecut.training.hooks import Hook, Moment
from splinecut.training.ledger import FORWARD, Ledger
from splinecut.training.loop import train
from splinecut.training.progress import Watch


@dataclass(frozen=True)
class Scene:
    """Where a run takes place: everything its stages share."""

    experiment: Experiment
    folder: Path
    dataset: DataSet
    device: torch.device
    processes: Processes
    watch: Watch
    ledger: Ledger = field(default_factory=Ledger)

    def probe(self, size: int) -> Tensor:
        """`size` training images, drawn by the seed, as the network sees them."""
        rows = torch.randperm(len(self.dataset.train), generator=generator(self.experiment.seed))[:size]
        return self.dataset.train.examples(rows, self.device)


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


class Detect(Hook):
    """Shows the network to an early bird and ends training when it is drawn; each look is charged."""

    name = "detector"

    def __init__(self, bird: EarlyBird) -> None:
        self.bird = bird

    def after_step(self, moment: Moment) -> bool | None:
        return self._look(moment) if self.bird.every != "epoch" else None

    def after_epoch(self, moment: Moment) -> bool:
        return self._look(moment) if self.bird.every == "epoch" else False

    def _look(self, moment: Moment) -> bool:
        before = len(self.bird.seen)
        verdict = self.bird.observe(moment.model)
        images = len(self.bird.probe) * (len(self.bird.seen) - before)
        moment.ledger.charge("detect", moment.forward_flops, images, FORWARD)
        return verdict.drawn

    def state(self) -> dict[str, Any]:
        return self.bird.state()

    def restore(self, state: dict[str, Any]) -> None:
        self.bird.restore(state)


@dataclass(frozen=True)
class Trained:
    """A network after a training stage, and what was learnt on the way."""

    model: nn.Module
    history: list[dict[str, Any]]
    best: KeepBest


def build_model(experiment: Experiment, dataset: DataSet, seed: int | None = None) -> nn.Module:
    """The untrained network an experiment names, fitted to its data; the same for the same seed."""
    asked, shape = experiment.model, dataset.input_shape
    model = models.build(
        asked.name,
        classes=dataset.outputs,
        input_shape=shape,
        width=asked.width,
        activation=asked.activation,
        seed=experiment.seed if seed is None else seed,
        **asked.options,
    )
    models.check_input(model, shape)
    return model


def train_stage(
    scene: Scene, model: nn.Module, phase: str, hooks: Sequence[Hook] = (), start_epoch: int = 0
) -> Trained:
    """Trains `model` by the experiment's plan, with checkpoints of its own."""
    best = KeepBest()
    with energy.Meter(scene.device) as meter:
        history = train(
            model,
            scene.dataset,
            scene.experiment.training,
            seed=scene.experiment.seed,
            device=scene.device,
            ledger=scene.ledger,
            phase=phase,
            hooks=(best, *hooks, ChargeEnergy(meter), *([scene.watch] if scene.processes.is_first else [])),
            checkpoints=scene.folder / "checkpoints" / phase,
            processes=scene.processes,
            say=scene.watch.say if scene.processes.is_first else None,
            start_epoch=start_epoch,
        )
    return Trained(model, history, best)


def early_bird(scene: Scene) -> EarlyBird | None:
    """The detector the experiment asks for."""
    asked = scene.experiment.detector
    if asked is None:
        return None
    return EarlyBird(
        scene.probe(asked.probe), asked.rule, asked.threshold, asked.window, asked.every, seed=scene.experiment.seed
    )


def chosen_method(experiment: Experiment) -> tuple[Any, Budget]:
    """The method and the budget an experiment asks for; refuses names and options there are not."""
    assert experiment.method is not None
    budget = Budget(**experiment.budget.model_dump())
    return named(experiment.method.name, budget, experiment.method.options), budget


def prune_stage(scene: Scene, model: nn.Module) -> tuple[nn.Module, Ticket]:
    """The cut network and its ticket; what scoring and refitting took is charged."""
    experiment, method = scene.experiment, scene.experiment.method
    assert method is not None
    chosen, budget = chosen_method(experiment)
    probe = scene.probe(experiment.probe)
    flops = cost.forward_flops(model, scene.dataset.input_shape)
    evidence = Evidence(model, read_groups(model, probe, experiment.residual), probe, experiment.seed)
    ticket = drawn(evidence, method.name, chosen, budget)
    scene.ledger.charge("score", chosen.flops(evidence, flops), 1, FORWARD)
    if experiment.retrain.weights == "reinit":
        fresh = build_model(experiment, scene.dataset, seed=experiment.seed + 1).to(scene.device)
        return apply.cut(fresh, ticket), ticket
    refit = None if experiment.refit == "none" else experiment.refit
    smaller = apply.cut(model, ticket, refit=refit, probe=probe)
    if refit == "least_squares":
        scene.ledger.charge("refit", flops, len(probe), FORWARD)
        scene.ledger.charge("refit", cost.forward_flops(smaller, scene.dataset.input_shape), len(probe), FORWARD)
    return smaller, ticket


def pruning_facts(ticket: Ticket, dense: Trained, bird: EarlyBird | None) -> dict[str, Any]:
    """What the record keeps of a pruned run: what was asked, what was achieved, when it was drawn."""
    return {
        "method": ticket.method,
        "options": dict(ticket.options),
        "budget": asdict(ticket.budget) if ticket.budget else None,
        "achieved": {**asdict(ticket.achieved), "density": ticket.achieved.density},
        "layers": {name: [int(kept.sum()), int(kept.size)] for name, kept in ticket.keep.items()},
        "drawn_epoch": dense.history[-1]["epoch"] if dense.history else 0,
        "drawn_step": dense.history[-1]["step"] if dense.history else 0,
        "is_early": bool(bird and bird.verdict.drawn),
        "distances": bird.by_layer() if bird else {},
        "dense_history": dense.history,
    }


def measure(scene: Scene, model: nn.Module, best: KeepBest | None = None) -> dict[str, dict[str, Any]]:
    """Test metrics of the last weights and of the ones best by validation; the model is left with the last."""
    flops = cost.forward_flops(model, scene.dataset.input_shape)

    def look() -> dict[str, Any]:
        scene.ledger.charge("test", flops, len(scene.dataset.test), FORWARD)
        dataset = scene.dataset
        return asdict(evaluate(model, dataset.test, dataset.task, device=scene.device, processes=scene.processes))

    test = {"last": look()}
    if best is not None and best.weights:
        last = {name: tensor.detach().clone() for name, tensor in model.state_dict().items()}
        model.load_state_dict(best.weights)
        test["best"] = {**look(), "epoch": best.epoch}
        model.load_state_dict(last)
    return test
