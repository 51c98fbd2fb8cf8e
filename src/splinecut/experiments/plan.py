"""What a recipe alone decides, settled once: `plan(experiment)` resolves method, budget, recovery and refit.

Everything that runs an experiment reads its plan: the runner, the scheduler of a sweep, its workers, to which it is
pickled. The network, the context and the detector of a run are built from it here too.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

import torch
from torch import nn

from splinecut.errors import InputError
from splinecut.experiments.film.snapshots import filmed
from splinecut.experiments.spec import Experiment
from splinecut.networks import models
from splinecut.pruning.budget import Budget
from splinecut.pruning.detect import EarlyBird
from splinecut.pruning.engine.context import RunContext
from splinecut.pruning.method import Method, Recovery
from splinecut.pruning.methods.catalogue import resolve_method
from splinecut.training.data import DataSet
from splinecut.training.devices import Processes
from splinecut.training.progress import ConsoleProgress


@dataclass(frozen=True)
class Plan:
    """An experiment, and what it means: no method, budget or recovery is resolved a second time.

    residual: how residual streams are read, the experiment's or the method's way.
    refit:    what follows a cut; None for nothing.
    """

    experiment: Experiment
    method: Method | None = None
    budget: Budget | None = None
    recovery: Recovery | None = None
    residual: str = "tied"
    refit: str | None = None


def plan(experiment: Experiment | Plan) -> Plan:
    """The plan of an experiment; raises InputError for a method, option or budget there is not. A plan is its own."""
    if isinstance(experiment, Plan):
        return experiment
    if experiment.method is None:
        return Plan(experiment, residual=experiment.residual or "tied", refit=_refit(experiment.refit or "none"))
    method, budget = chosen_method(experiment)
    recovery = recovery_of(experiment, method)
    residual, refit = experiment.residual or method.residual, _refit(experiment.refit or method.refit)
    return Plan(experiment, method, budget, recovery, residual, refit)


def _refit(name: str) -> str | None:
    return None if name == "none" else name


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


def run_context(
    asked: Experiment | Plan,
    folder: Path,
    dataset: DataSet,
    device: torch.device,
    processes: Processes,
    progress: ConsoleProgress,
    shared: Path | None = None,
) -> RunContext:
    """Everything that a run works with."""
    made = plan(asked)
    experiment, method, budget = made.experiment, made.method, made.budget
    facts = {"model": experiment.model.model_dump(mode="json"), "data": dataset.hash}
    if method and budget and method.first_training(budget):  # a training of its own, which may look at its units
        facts["residual"] = made.residual
    if experiment.start.is_trained:  # absent otherwise: shared trainings keep the names they had before starts
        facts["initial weights"] = experiment.start.model_dump(mode="json")
    context = RunContext(
        build=lambda seed: build_model(experiment, dataset, seed),
        dataset=dataset,
        plan=experiment.training,
        seed=experiment.seed,
        folder=folder,
        shared=shared,
        facts=facts,
        device=device,
        processes=processes,
        progress=progress,
        residual=made.residual,
        refit=made.refit,
        probe_size=experiment.probe,
        start=experiment.start,
    )
    if experiment.film is None:
        return context
    if experiment.method and method and not method.trains_first:
        raise InputError(
            f"{experiment.method.name} prunes before any training, so there is none to film; leave [film] out"
        )
    return filmed(context, experiment.film, experiment.name)


def early_bird(experiment: Experiment, context: RunContext) -> EarlyBird | None:
    """The detector the experiment asks for."""
    asked = experiment.detector
    if asked is None:
        return None
    return EarlyBird(
        context.probe(asked.probe), asked.rule, asked.threshold, asked.window, asked.every, seed=context.seed
    )


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
