"""Weights kept at chosen steps of a run's first training; their partitions are computed once it has ended.

Only the trained network tells where its classes meet, so the window is chosen last; and training is not slowed down.
"""

from __future__ import annotations

import copy
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import numpy as np
from jaxtyping import Int64
from torch import Tensor, nn

from splinecut.errors import InputError
from splinecut.experiments.film.build import Measure, build_frames, frame_of
from splinecut.experiments.film.frames import FILE, Frames
from splinecut.experiments.film.window import center_on_boundary, graph_of, scene, shrink_to_limit
from splinecut.experiments.spec import FilmSpec
from splinecut.geometry.partition import subdivide
from splinecut.geometry.slices import Slice
from splinecut.moved import renamed
from splinecut.networks.model_state import clone_state
from splinecut.pruning.engine.context import Observer, RunContext, TrainingResult
from splinecut.training.data import DataSet
from splinecut.training.evaluate import evaluate
from splinecut.training.hooks import Hook, TrainState

Weights = dict[str, Tensor]


class WeightSnapshots(Hook):
    """Keeps the weights before the first step, after each of `steps`, and at the end."""

    name = "takes"

    def __init__(self, steps: Collection[int]) -> None:
        self.steps = frozenset(steps)
        self.held: dict[int, Weights] = {}

    def start(self, state: TrainState) -> None:
        if state.step == 0:
            self._take(state)

    def after_step(self, state: TrainState) -> None:
        if state.step in self.steps:
            self._take(state)

    def end(self, state: TrainState) -> None:
        self._take(state)

    def _take(self, state: TrainState) -> None:
        self.held[state.step] = clone_state(state.model)

    def state(self) -> dict[str, Any]:
        return {str(step): weights for step, weights in self.held.items()}

    def restore(self, state: dict[str, Any]) -> None:
        self.held = {int(step): weights for step, weights in state.items()}


def film_observer(spec: FilmSpec, dataset: DataSet, title: str) -> Observer:
    """Leaves `frames.npz` in the run folder once the first training has ended; refuses data without a plane."""
    if dataset.task != "classification" or int(np.prod(dataset.input_shape)) < 2:
        raise InputError(
            f"a film shows classes on a plane, and {dataset.name!r} has none ({dataset.task}, inputs of shape "
            f"{dataset.input_shape}); leave [film] out"
        )
    snapshots = WeightSnapshots(spec.steps)

    def finished(context: RunContext, result: TrainingResult) -> None:
        if context.folder and context.processes.is_main and not (context.folder / FILE).is_file():
            context.progress.message(f"storing {len(snapshots.held) + len(spec.keeps)} partitions")
            frames_of_run(context, result.model, snapshots.held, spec, title).save(context.folder / FILE)

    return Observer([snapshots], finished, {"film": sorted(snapshots.steps)})


def frames_of_run(
    context: RunContext, model: nn.Module, weights_by_step: Mapping[int, Weights], spec: FilmSpec, title: str
) -> Frames:
    """The partitions of `model` with the weights held at each step, and after cuts, in one window."""
    model = copy.deepcopy(model).cpu()
    networks = {step: _with(model, weights) for step, weights in sorted(weights_by_step.items())}
    region, inputs, labels = scene(context, spec)
    if context.dataset.input_shape != (2,):
        region = center_on_boundary(model, region)
    for network in networks.values():
        region = shrink_to_limit(network, region, spec.max_regions)
    measure = _measure(context)
    trained = [
        frame_of(subdivide(graph_of(network, region), region), "train", step, facts=measure(network))
        for step, network in networks.items()
    ]
    return build_frames(
        title,
        model,
        region,
        inputs,
        labels,
        context.dataset.class_names,
        trained,
        spec.keeps,
        context.probe().cpu(),
        _about(spec, region, context.dataset.class_names, labels),
        method=spec.method,
        measure=measure,
        seed=context.seed,
    )


def _with(model: nn.Module, weights: Weights) -> nn.Module:
    other = copy.deepcopy(model)
    other.load_state_dict(weights)
    return other


def _measure(context: RunContext) -> Measure:
    """Accuracy on the validation split; the test split is read once, at the end of a run."""

    def measure(model: nn.Module) -> dict[str, float]:
        accuracy = evaluate(model, context.dataset.validation).accuracy if len(context.dataset.validation) else None
        return {} if accuracy is None else {"validation accuracy": accuracy}

    return measure


def _about(
    spec: FilmSpec, region: Slice, class_names: Sequence[str], labels: Int64[Tensor, " points"]
) -> dict[str, str]:
    width, height = np.ptp(region.window, axis=0)
    window = f"window {width:.3g} x {height:.3g}"
    shown = f"the plane of the inputs, {window}"
    if region.input_shape != (2,):
        classes = ", ".join(class_names[label] for label in labels.tolist())
        shown = f"a plane through three training inputs (classes {classes}), {window} about a place where classes meet"
    return {"slice": shown, "cuts": f"{spec.method}, refitted, not trained further"}


__getattr__ = renamed(__name__, {"Takes": "WeightSnapshots", "where_classes_meet": "center_on_boundary"})
