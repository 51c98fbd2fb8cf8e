"""Frames of a run: weights are held at chosen steps of its first training, and looked at once it has ended.

Only the trained network tells where its classes meet, so the window is chosen last; and training is not held up.
"""

from __future__ import annotations

import copy
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Float, Int64
from torch import Tensor, nn

from splinecut.errors import InputError
from splinecut.experiments.film.build import Measure, film, frame_of, graph_of, shrink_to_limit
from splinecut.experiments.film.frames import FILE, Frames
from splinecut.experiments.spec import FilmSpec
from splinecut.geometry.partition import subdivide
from splinecut.geometry.slices import Slice, slices_through
from splinecut.pruning.engine.context import RunContext, TrainingResult
from splinecut.pruning.methods.channels.boundary import predicted
from splinecut.training.evaluate import evaluate
from splinecut.training.hooks import Hook, TrainState

if TYPE_CHECKING:
    from splinecut.training.config import TrainingConfig

FILMED = "train"  # the phase that is filmed: the first training, of the whole network
SAMPLE = 2_000  # training inputs among which three are drawn, or which show where the data lie
SIDE = 61  # of the grid on which classes are looked for

Weights = dict[str, Tensor]


class WeightSnapshots(Hook):
    """Holds the weights before the first step, after each of `steps`, and at the end."""

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
        self.held[state.step] = {name: value.detach().clone() for name, value in state.model.state_dict().items()}

    def state(self) -> dict[str, Any]:
        return {str(step): weights for step, weights in self.held.items()}

    def restore(self, state: dict[str, Any]) -> None:
        self.held = {int(step): weights for step, weights in state.items()}


@dataclass(frozen=True)
class FilmedBench(RunContext):
    """A run context that leaves `frames.npz` in the run folder once the first training has ended."""

    title: str = ""
    asked: FilmSpec = field(default_factory=FilmSpec)

    def train(
        self,
        model: nn.Module,
        phase: str,
        hooks: Sequence[Hook] = (),
        plan: TrainingConfig | None = None,
        start_step: int = 0,
        decided_by: Mapping[str, Any] | None = None,
        in_paper: bool = True,
    ) -> TrainingResult:
        if phase != FILMED:
            return super().train(model, phase, hooks, plan, start_step, decided_by, in_paper)
        takes = WeightSnapshots(self.asked.steps)
        decided_by = None if decided_by is None else {**decided_by, "film": sorted(takes.steps)}
        done = super().train(model, phase, [*hooks, takes], plan, start_step, decided_by, in_paper)
        if self.folder and self.processes.is_main and not (self.folder / FILE).is_file():
            self.progress.message(f"storing {len(takes.held) + len(self.asked.keeps)} partitions")
            frames_of(self, done.model, takes.held, self.asked, self.title).save(self.folder / FILE)
        return done


def filmed(context: RunContext, asked: FilmSpec, title: str) -> FilmedBench:
    """The same bench, which keeps frames as `asked`; refuses data without a plane to look at."""
    dataset = context.dataset
    if dataset.task != "classification" or int(np.prod(dataset.input_shape)) < 2:
        raise InputError(
            f"a film shows classes on a plane, and {dataset.name!r} has none ({dataset.task}, inputs of shape "
            f"{dataset.input_shape}); leave [film] out"
        )
    return FilmedBench(**{each.name: getattr(context, each.name) for each in fields(context)}, title=title, asked=asked)


def frames_of(
    context: RunContext, model: nn.Module, held: Mapping[int, Weights], asked: FilmSpec, title: str
) -> Frames:
    """The partitions of `model` with the weights held at each step, and after cuts, in one window."""
    model = copy.deepcopy(model).cpu()
    networks = {step: _with(model, weights) for step, weights in sorted(held.items())}
    region, inputs, labels = _scene(context, asked)
    if context.dataset.input_shape != (2,):
        region = center_on_boundary(model, region)
    for network in networks.values():
        region = shrink_to_limit(network, region, asked.max_regions)
    measure = _measure(context)
    trained = [
        frame_of(subdivide(graph_of(network, region), region), "train", step, facts=measure(network))
        for step, network in networks.items()
    ]
    return film(
        title,
        model,
        region,
        inputs,
        labels,
        context.dataset.class_names,
        trained,
        asked.keeps,
        context.probe().cpu(),
        _about(asked, region, context.dataset.class_names, labels),
        method=asked.method,
        measure=measure,
        seed=context.seed,
    )


def _with(model: nn.Module, weights: Weights) -> nn.Module:
    other = copy.deepcopy(model)
    other.load_state_dict(weights)
    return other


def _scene(
    context: RunContext, asked: FilmSpec
) -> tuple[Slice, Float[Tensor, "points *input"], Int64[Tensor, " points"]]:
    """The slice, and those training inputs that lie in it with their classes."""
    train = context.dataset.train
    if asked.through is not None:
        rows = list(asked.through)
        if not all(0 <= row < len(train) for row in rows):
            raise InputError(f"film.through names rows {rows} of {len(train)} training inputs; count from 0")
        inputs, labels = train.examples(rows), train.targets[rows]
        region = Slice.through(*inputs)
    else:
        classes = context.labels(SAMPLE)
        assert classes is not None
        inputs, labels = context.probe(SAMPLE).cpu(), classes.cpu()
        (region,) = slices_through(inputs, labels.numpy(), 1, context.seed)
    nearest = region.embed(region.coordinates(inputs))
    off = (nearest - inputs.double()).flatten(1).abs().amax(dim=1)
    lies_in_it = off <= 1e-6 * float(inputs.abs().max())
    return region, inputs[lies_in_it], labels[lies_in_it]


def center_on_boundary(model: nn.Module, region: Slice) -> Slice:
    """`region` with its window moved, so that its middle is where most classes meet; of several such, the nearest.

    Looked for on a grid: of the cells whose corners have the most different classes, the one nearest to the middle.
    """
    low, high = region.window.min(axis=0), region.window.max(axis=0)
    ticks = np.linspace(low, high, SIDE)
    uv = np.stack(np.meshgrid(ticks[:, 0], ticks[:, 1], indexing="ij"), axis=-1)
    winner = predicted(model, region.embed(uv.reshape(-1, 2))).reshape(SIDE, SIDE)
    corners = np.sort([winner[:-1, :-1], winner[1:, :-1], winner[:-1, 1:], winner[1:, 1:]], axis=0)
    n_classes = 1 + (np.diff(corners, axis=0) != 0).sum(axis=0)
    centres, middle = (uv[:-1, :-1] + uv[1:, 1:]) / 2, region.window.mean(axis=0)
    far = np.where(n_classes == n_classes.max(), np.linalg.norm(centres - middle, axis=-1), np.inf)
    chosen = centres.reshape(-1, 2)[far.argmin()]
    return replace(region, window=region.window + chosen - middle)


def _measure(context: RunContext) -> Measure:
    """Accuracy on the validation split; the test split is read once, at the end of a run."""

    def measure(model: nn.Module) -> dict[str, float]:
        accuracy = evaluate(model, context.dataset.validation).accuracy if len(context.dataset.validation) else None
        return {} if accuracy is None else {"validation accuracy": accuracy}

    return measure


def _about(
    asked: FilmSpec, region: Slice, class_names: Sequence[str], labels: Int64[Tensor, " points"]
) -> dict[str, str]:
    width, height = np.ptp(region.window, axis=0)
    window = f"window {width:.3g} x {height:.3g}"
    shown = f"the plane of the inputs, {window}"
    if region.input_shape != (2,):
        classes = ", ".join(class_names[label] for label in labels.tolist())
        shown = f"a plane through three training inputs (classes {classes}), {window} about a place where classes meet"
    return {"slice": shown, "cuts": f"{asked.method}, refitted, not trained further"}
