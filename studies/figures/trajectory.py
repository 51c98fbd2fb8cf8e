"""How a partition moves in training (Fig. 4): exact pictures on the way, and when the codes of each layer settle.

    python -m studies.figures.trajectory --task fcnet --out results/fig4-fcnet.json
    python -m studies.figures.trajectory --task convnet --data-dir DATA --out results/fig4-convnet.json

The distance of a layer to its end is the share of its code's bits, on a fixed sample of training inputs, that differ
from those after the last step. A layer has come 90 % of its way once that distance stays below a tenth of what it was
before the first step. A network that drifts evenly comes 90 % of its way after 90 % of the steps.
"""

from __future__ import annotations

import copy
import itertools
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from rich.progress import track
from torch import nn

from splinecut.experiments.film.window import graph_of
from splinecut.experiments.summaries import Estimate
from splinecut.geometry.codes import Codes, distance
from splinecut.geometry.partition import Partition, subdivide
from splinecut.geometry.plotting import layer_colours
from splinecut.pruning.detect import EarlyBird
from splinecut.training.evaluate import evaluate
from splinecut.training.hooks import Hook, TrainState
from splinecut.training.loop import train
from splinecut.training.seeding import generator
from studies.support.panels import Chart, near_boundary, parser, sheet
from studies.support.partition_facts import shape_of
from studies.support.result_file import write
from studies.support.tasks import TASKS, Task

PROBE = 512  # training inputs whose codes are kept
LOOKS = 100  # at the codes, evenly over the training
WAYS = {"50 %": 0.5, "75 %": 0.75, "90 %": 0.9}  # shares of the way to the end that are timed

ByLayer = dict[str, list[float]]


@dataclass
class Follow(Hook):
    """Keeps the codes after every step in `steps`, a copy of the network at those in `pictured`; stops after `last`."""

    detector: EarlyBird
    steps: frozenset[int]
    pictured: frozenset[int]
    last: int
    seen: dict[int, Codes] = field(default_factory=dict)
    networks: dict[int, nn.Module] = field(default_factory=dict)

    def start(self, state: TrainState) -> None:
        self._look(state)

    def after_step(self, state: TrainState) -> bool:
        self._look(state)
        return state.step >= self.last

    def _look(self, state: TrainState) -> None:
        if state.step in self.steps:
            self.detector.observe(state.model)
            self.seen[state.step] = self.detector.seen[-1]
        if state.step in self.pictured:
            self.networks[state.step] = copy.deepcopy(state.model).eval()


def followed(task: Task, seed: int) -> Follow:
    """The training of one seed, with what was seen on the way."""
    dataset = task.load(seed)
    rows = torch.randperm(len(dataset.train), generator=generator(seed))[:PROBE]
    pictured = frozenset(round(share * task.steps) for share in task.pictured)
    looks = frozenset(round(n * task.steps / LOOKS) for n in range(LOOKS + 1)) | pictured
    follow = Follow(EarlyBird(dataset.train.examples(rows), seed=seed), looks, pictured, task.steps)
    train(task.build(seed), dataset, task.plan, seed=seed, hooks=(follow, *task.hooks))
    return follow


def to_the_end(codes: Sequence[Codes]) -> ByLayer:
    """For every layer, the distance of each observation to the last."""
    rows = [distance(each, codes[-1], by_layer=True) for each in codes]
    return {layer: [row[layer] for row in rows] for layer in codes[-1].layers}


def onward(codes: Sequence[Codes]) -> ByLayer:
    """For every layer, the distance of each observation to the next."""
    rows = [distance(a, b, by_layer=True) for a, b in itertools.pairwise(codes)]
    return {layer: [row[layer] for row in rows] for layer in codes[-1].layers}


def arrived(steps: Sequence[int], distances: Sequence[float], way: float) -> int:
    """The first step from which on the distance to the end stays within (1 - way) of the first distance."""
    is_far = [value > (1 - way) * distances[0] for value in distances]
    return steps[max((place + 1 for place, far in enumerate(is_far) if far), default=0)]


def covered(steps: Sequence[int], distances: Sequence[float], step: int) -> float:
    """The share of the way to the end that a layer has come at `step`; 1 for a layer that never moves."""
    return 1 - distances[list(steps).index(step)] / distances[0] if distances[0] else 1.0


def facts_of(task: Task, follow: Follow) -> dict[str, Any]:
    """What one training says: the way of each layer, and when it was there."""
    steps = list(follow.seen)
    ends = to_the_end(list(follow.seen.values()))
    early = round(task.early * task.steps)
    return {
        "steps": " ".join(map(str, steps)),
        "distance to the end": {layer: _line(values) for layer, values in ends.items()},
        "distance onward": {layer: _line(values) for layer, values in onward(list(follow.seen.values())).items()},
        "moved in all": {layer: values[0] for layer, values in ends.items()},
        f"way covered at step {early}": {layer: covered(steps, values, early) for layer, values in ends.items()},
        "step of arrival": {
            layer: {name: arrived(steps, values, way) for name, way in WAYS.items()} for layer, values in ends.items()
        },
    }


def _line(values: Sequence[float]) -> str:
    """Many numbers on one line, which a reader of the file can take in."""
    return " ".join(f"{value:.4f}" for value in values)


def conclusions(task: Task, by_seed: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Means over seeds with intervals; for deep networks, how much later each layer arrives than the first."""
    early = f"way covered at step {round(task.early * task.steps)}"
    layers = list(by_seed[0]["moved in all"])
    result: dict[str, Any] = {"steps of the training": task.steps}
    for fact in ("moved in all", early):
        result[fact] = {layer: Estimate.of([seed[fact][layer] for seed in by_seed])._asdict() for layer in layers}
    when = {way: {layer: [seed["step of arrival"][layer][way] for seed in by_seed] for layer in layers} for way in WAYS}
    result["step of arrival"] = {
        way: {layer: Estimate.of(steps)._asdict() for layer, steps in found.items()} for way, found in when.items()
    }
    result["steps later than the first layer"] = {
        way: {
            layer: Estimate.of(
                [late - first for late, first in zip(found[layer], found[layers[0]], strict=True)]
            )._asdict()
            for layer in layers[1:]
        }
        for way, found in when.items()
    }
    return result


def pictures(task: Task, follow: Follow, path: Path, charts: Sequence[Chart]) -> list[dict[str, Any]]:
    """Writes the sheet of partitions, and one near the boundary where the task asks for it; says what they show."""
    test = task.load(0).test
    wide: dict[str, Partition] = {}
    near: dict[str, Partition] = {}
    rows = []
    for step, network in follow.networks.items():
        graph, accuracy = graph_of(network, task.region), evaluate(network, test).accuracy
        title = f"step {step:,}: {accuracy:.1%} right"
        partition = wide[title] = subdivide(graph, task.region)
        if task.zoom:
            near[title] = near_boundary(graph, partition, task.zoom)
        rows.append({"step": step, "test accuracy": accuracy, **shape_of(partition)})
    sheet(wide, charts, path)
    if near:
        sheet(near, (), path.with_stem(f"{path.stem}-near"), with_kinks=True)
    return rows


def curves(task: Task, by_seed: Sequence[dict[str, Any]]) -> list[Chart]:
    """Two charts: the distance to the end, and between looks, one colour a layer, one line a seed."""
    steps = [int(step) for step in by_seed[0]["steps"].split()]

    def chart(fact: str, label: str, at: Sequence[int]) -> Chart:
        def draw(axes: Any) -> None:
            layers = list(by_seed[0][fact])
            for number, (layer, colour) in enumerate(zip(layers, layer_colours(len(layers)), strict=True)):
                for place, seed in enumerate(by_seed):
                    values = [float(value) for value in seed[fact][layer].split()]
                    name = f"layer {number + 1}" if place == 0 else None
                    axes.plot(at, values, color=colour, lw=1, alpha=0.8, label=name)
            axes.axvline(task.early * task.steps, color="grey", lw=0.8, ls=":")
            axes.set_ylim(0, None)
            axes.set_xlabel("step", fontsize=9)
            axes.set_ylabel(label, fontsize=9)
            axes.legend(frameon=False, fontsize=8)

        return draw

    return [
        chart("distance to the end", "share of bits unlike the end", steps),
        chart("distance onward", "share of bits changed a look", steps[1:]),
    ]


def main() -> None:
    args = parser(__doc__, ("fcnet", "fcnet-deep", "fcnet-leaky", "convnet")).parse_args()
    task = TASKS[args.task](args.data_dir)
    courses = [followed(task, seed) for seed in track(range(args.seeds), "seeds")]
    by_seed = [facts_of(task, follow) for follow in courses]
    shown = pictures(task, courses[0], args.out, curves(task, by_seed))
    result = conclusions(task, by_seed)
    write(args.out, __spec__, args, {**result, "pictures, seed 0": shown, "by seed": by_seed})
    for fact, found in result.items():
        print(f"{fact}: {found}")


if __name__ == "__main__":
    main()
