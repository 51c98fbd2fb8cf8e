"""An experiment's words turned into the things that do the work: network, bench, method, detector, measurements."""

from __future__ import annotations

import math
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import torch
from torch import nn

from splinecut.errors import InputError
from splinecut.experiments.film.snapshots import filmed
from splinecut.experiments.spec import Experiment
from splinecut.geometry.codes import Codes, distance_matrix
from splinecut.networks import models
from splinecut.pruning.budget import Budget
from splinecut.pruning.detect import EarlyBird
from splinecut.pruning.engine.context import Bench, KeepBest
from splinecut.pruning.engine.driver import Outcome
from splinecut.pruning.method import Method, Recovery
from splinecut.pruning.methods.catalogue import resolve_method
from splinecut.pruning.methods.channels.slimming import emptied
from splinecut.pruning.weight_mask import nonzeros
from splinecut.training.data import DataSet
from splinecut.training.devices import Processes
from splinecut.training.evaluate import evaluate
from splinecut.training.ledger import FORWARD
from splinecut.training.loop import Diverged
from splinecut.training.progress import Watch

MOST_DISTANCES = 50_000  # between observations, over all layers, that a record holds: under half a megabyte


def build_model(experiment: Experiment, dataset: DataSet, seed: int | None = None) -> nn.Module:
    """The untrained network an experiment names, fitted to its data; the same for the same seed."""
    asked, shape = experiment.model, dataset.input_shape
    usual = {name: field.default for name, field in type(asked).model_fields.items()}
    model = models.build(
        asked.name,
        classes=dataset.outputs,
        input_shape=shape,
        # A stored spec has every key, so that what a user set is only known where it differs from what is usual.
        width=None if asked.width == usual["width"] else asked.width,
        activation=None if asked.activation == usual["activation"] else asked.activation,
        seed=experiment.seed if seed is None else seed,
        **asked.options,
    )
    models.check_input(model, shape)
    return model


def bench_of(
    experiment: Experiment,
    folder: Path,
    dataset: DataSet,
    device: torch.device,
    processes: Processes,
    watch: Watch,
    shared: Path | None = None,
) -> Bench:
    """The bench on which an experiment's run takes place."""
    method, budget = chosen_method(experiment) if experiment.method else (None, None)
    facts = {"model": experiment.model.model_dump(mode="json"), "data": dataset.hash}
    residual = experiment.residual or (method.residual if method else "tied")
    if method and budget and method.first_training(budget):  # a training of its own, which may look at its units
        facts["residual"] = residual
    if experiment.start.is_trained:  # absent otherwise: shared trainings keep the names they had before starts
        facts["initial weights"] = experiment.start.model_dump(mode="json")
    refit = experiment.refit or (method.refit if method else "none")
    bench = Bench(
        build=lambda seed: build_model(experiment, dataset, seed),
        dataset=dataset,
        plan=experiment.training,
        seed=experiment.seed,
        folder=folder,
        shared=shared,
        facts=facts,
        device=device,
        processes=processes,
        watch=watch,
        residual=residual,
        refit=None if refit == "none" else refit,
        probe_size=experiment.probe,
        start=experiment.start,
    )
    if experiment.film is None:
        return bench
    if experiment.method and method and not method.trains_first:
        raise InputError(
            f"{experiment.method.name} prunes before any training, so there is none to film; leave [film] out"
        )
    return filmed(bench, experiment.film, experiment.name)


def early_bird(experiment: Experiment, bench: Bench) -> EarlyBird | None:
    """The detector the experiment asks for."""
    asked = experiment.detector
    if asked is None:
        return None
    return EarlyBird(bench.probe(asked.probe), asked.rule, asked.threshold, asked.window, asked.every, seed=bench.seed)


def chosen_method(experiment: Experiment) -> tuple[Method, Budget]:
    """The method and the budget an experiment asks for; refuses names, options and currencies there are not."""
    assert experiment.method is not None
    asked = experiment.budget
    own = experiment.method.options.get("scope", asked.scope)
    if "scope" in asked.model_fields_set and own != asked.scope:
        raise InputError(
            f"one scope decides the selection, got method.scope = {own!r} and budget.scope = {asked.scope!r}; "
            "leave one of them out"
        )
    budget = Budget(**{**asked.model_dump(), "scope": own})
    method = resolve_method(experiment.method.name, experiment.method.options, budget)[1]
    if method.units == "weights":
        if "of" in asked.model_fields_set and asked.of != "weights":
            raise InputError(
                f"{experiment.method.name} removes single weights, so its budget is one of weights, "
                f"got budget.of = {asked.of!r}; leave it out"
            )
        budget = replace(budget, of="weights")
    return method, budget


def recovery_of(experiment: Experiment, method: Method) -> Recovery:
    """What follows the cut: the method's own way, where the experiment does not say otherwise."""
    own, asked = method.recovery, experiment.retrain
    weights = asked.weights or own.weights
    if asked.start.is_trained and (weights != "reinit" or method.units == "weights"):
        raise InputError(
            f'retrain.start = "{asked.start.name}" is for fresh weights of a cut network, got {weights} '
            f"{method.units} of {experiment.method.name if experiment.method else 'no method'}; "
            'use a method that cuts channels and retrain.weights = "reinit"'
        )
    length = asked.length or own.length
    if asked.epochs is not None and (length != "full" or own.step):
        raise InputError(
            f"retrain.epochs = {asked.epochs} is how long a full retraining takes, got "
            f'retrain.length = "{length}"{f" from step {own.step}" if own.step else ""}; leave one of them out'
        )
    return Recovery(length, weights, own.step, asked.start, asked.epochs)


def pruning_facts(outcome: Outcome, bird: EarlyBird | None) -> dict[str, Any]:
    """What the record keeps of a pruned run: what was asked, what was achieved, when it was drawn."""
    ticket, dense = outcome.ticket, outcome.dense
    history = dense.history if dense else []
    facts = {
        "method": ticket.method,
        "units": ticket.kind,
        "options": dict(ticket.options),
        "budget": asdict(ticket.budget) if ticket.budget else None,
        "achieved": {**asdict(ticket.achieved), "density": ticket.achieved.density},
        "layers": {name: [int(kept.sum()), int(kept.size)] for name, kept in ticket.keep.items()},
        "emptied": emptied(ticket.keep),
        "drawn_epoch": history[-1]["epoch"] if history else 0,
        "drawn_step": history[-1]["step"] if history else 0,
        "is_early": bool(history and history[-1].get("stopped")),
        "distances": bird.by_layer() if bird else {},
        "matrix": bird.matrix().round(5).tolist() if bird else [],
        "matrices": matrices(bird) if bird else {},
        "dense_history": history,
    }
    if ticket.kind == "weights":
        facts["nonzero"], facts["weights"] = nonzeros(outcome.final.model)
    return facts


def matrices(bird: EarlyBird) -> dict[str, list[list[float]]]:
    """For every layer, the distance between every two observations; nothing where that is too much for a record."""
    seen = bird.seen
    layers = seen[0].layers if seen else ()
    if len(layers) * len(seen) ** 2 > MOST_DISTANCES:
        return {}
    return {
        layer: distance_matrix([_one_layer(codes, number) for codes in seen]).round(5).tolist()
        for number, layer in enumerate(layers)
    }


def _one_layer(codes: Codes, i: int) -> Codes:
    return Codes((codes.layers[i],), (codes.n_units[i],), (codes.units[i],), (codes.packed[i],))


def measure(
    bench: Bench, model: nn.Module, best: KeepBest | None = None, when: str = "after training"
) -> dict[str, dict[str, Any]]:
    """Test metrics of the last weights and of the ones best by validation; the model is left with the last.

    Refuses a loss that is not finite: the last step of a training is seen by no later loss.
    """
    flops = bench.flops(model)

    def look() -> dict[str, Any]:
        dataset = bench.dataset
        bench.ledger.charge("test", flops, len(dataset.test), FORWARD)
        metrics = evaluate(model, dataset.test, dataset.task, device=bench.device, processes=bench.processes)
        if not math.isfinite(metrics.loss):
            raise Diverged(
                f"the test loss {when} is {metrics.loss}; lower the learning rate (training.optimizer.lr is "
                f"{bench.plan.optimizer.lr:g}) or check the network and the inputs"
            )
        return asdict(metrics)

    test = {"last": look()}
    if best is not None and best.weights:
        last = {name: tensor.detach().clone() for name, tensor in model.state_dict().items()}
        model.load_state_dict(best.weights)
        test["best"] = {**look(), "epoch": best.epoch}
        model.load_state_dict(last)
    return test
