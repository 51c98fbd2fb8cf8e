"""Builds what a run works with from its plan: the network, the run context and the detector."""

from __future__ import annotations

from pathlib import Path

import torch
from torch import nn

from splinecut.errors import InputError
from splinecut.experiments.film.snapshots import film_observer
from splinecut.experiments.plan import Plan, plan
from splinecut.experiments.spec import Experiment
from splinecut.networks import models
from splinecut.pruning.detect import EarlyBird
from splinecut.pruning.engine.context import RunContext
from splinecut.pruning.engine.stages import FIRST
from splinecut.training.data import DataSet
from splinecut.training.devices import Processes
from splinecut.training.progress import ConsoleProgress


def build_model(experiment: Experiment, dataset: DataSet, seed: int | None = None) -> nn.Module:
    """The untrained network an experiment names, fitted to its data; the same for the same seed."""
    spec, shape = experiment.model, dataset.input_shape
    defaults = {name: field.default for name, field in type(spec).model_fields.items()}
    model = models.build(
        spec.name,
        classes=dataset.outputs,
        input_shape=shape,
        # A stored spec has every key: what a user set is only known where it differs from the default.
        width=None if spec.width == defaults["width"] else spec.width,
        activation=None if spec.activation == defaults["activation"] else spec.activation,
        seed=experiment.seed if seed is None else seed,
        **spec.options,
    )
    models.check_input(model, shape)
    return model


def run_context(
    planned: Experiment | Plan,
    folder: Path,
    dataset: DataSet,
    device: torch.device,
    processes: Processes,
    progress: ConsoleProgress,
    shared: Path | None = None,
) -> RunContext:
    """Everything that a run works with; a film adds an observer of the first training."""
    planned = plan(planned)
    experiment, method = planned.experiment, planned.method
    observers = {}
    if experiment.film is not None:
        if experiment.method and method and not method.trains_first:
            raise InputError(
                f"{experiment.method.name} prunes before any training, so there is none to film; leave [film] out"
            )
        observers[FIRST.kind] = film_observer(experiment.film, dataset, experiment.name)
    return RunContext(
        build=lambda seed: build_model(experiment, dataset, seed),
        dataset=dataset,
        plan=experiment.training,
        seed=experiment.seed,
        folder=folder,
        shared=shared,
        cache_facts=planned.facts(dataset.hash),
        device=device,
        processes=processes,
        progress=progress,
        residual=planned.residual,
        refit=planned.refit,
        probe_size=experiment.probe,
        start=experiment.start,
        observers=observers,
    )


def build_detector(experiment: Experiment, context: RunContext) -> EarlyBird | None:
    """The detector the experiment asks for, watching training inputs drawn by its seed."""
    spec = experiment.detector
    if spec is None:
        return None
    return EarlyBird(context.probe(spec.probe), spec.rule, spec.threshold, spec.window, spec.every, seed=context.seed)
