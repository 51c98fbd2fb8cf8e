"""What pruning leaves of a partition and of its training (Figs. 2 and 3): exact pictures, accuracy and speed by share.

    python -m studies.figures.pruned_pictures --task fcnet-small --out results/fig2-fcnet.json
    python -m studies.figures.pruned_pictures --task convnet-small --out results/fig3-convnet.json

A network is trained, cut to each share of its units and trained by the same plan again; `keep 1` is the dense network
trained as long again, so that every share is compared with an equally long training. Speed is CPU time of that second
training, validation included, on one thread. MNIST is read from `--data-dir`.
"""

from __future__ import annotations

import copy
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from rich.progress import track
from torch import nn

from splinecut.experiments.film.window import graph_of
from splinecut.experiments.summaries import Estimate
from splinecut.geometry.graph import Graph
from splinecut.geometry.partition import Partition, subdivide
from splinecut.networks import cost
from splinecut.pruning.apply import cut
from splinecut.pruning.draw_ticket import draw
from splinecut.training.data import DataSet
from splinecut.training.evaluate import evaluate
from splinecut.training.hooks import Hook
from splinecut.training.loop import train
from splinecut.training.seeding import generator
from studies.support.panels import Chart, near_boundary, parser, sheet
from studies.support.partition_facts import removed, shape_of
from studies.support.result_file import write
from studies.support.tasks import TASKS, Task

KEEPS = (1.0, 0.8, 0.6, 0.4, 0.2, 0.1, 0.05)
PROBE = 512  # training inputs that criteria and refit look at
MEASURED = ("test accuracy", "accuracy right after the cut", "relative CPU time", "relative FLOPs", "regions")


@dataclass(frozen=True)
class Cut:
    """A network at one share, and what is known of it."""

    graph: Graph
    partition: Partition
    facts: dict[str, Any]

    @property
    def title(self) -> str:
        kept = " + ".join(str(n) for n in self.facts["kept"].values())
        return f"keep {self.facts['keep']:g} ({kept}): {self.facts['test accuracy']:.1%} right"


def cuts_of(task: Task, seed: int, keeps: Sequence[float] = KEEPS) -> list[Cut]:
    """One network, trained, then cut to each share and trained again."""
    dataset = task.load(seed)
    model = task.build(seed)
    taught(task, model, dataset, seed, task.hooks)
    rows = torch.randperm(len(dataset.train), generator=generator(seed))[:PROBE]
    probe = dataset.train.examples(rows)
    graph = graph_of(model, task.region)
    before = subdivide(graph, task.region)
    cuts: list[Cut] = []
    for keep in keeps:
        ticket = draw(model, probe, method=task.method, keep=keep, seed=seed)
        smaller = copy.deepcopy(model) if keep == 1 else cut(model, ticket, refit=task.refit, probe=probe)
        facts = {
            "keep": keep,
            "achieved keep": ticket.achieved.density,
            "kept": {name: int(kept.sum()) for name, kept in ticket.keep.items()},
            "accuracy right after the cut": evaluate(smaller, dataset.test).accuracy,
            "CPU seconds an epoch": taught(task, smaller, dataset, seed) / task.plan.epochs,
            "FLOPs an epoch": 3 * cost.forward_flops(smaller, dataset.input_shape) * len(dataset.train),
            "test accuracy": evaluate(smaller, dataset.test).accuracy,
            "removed": removed(graph, before, ticket),
        }
        smaller_graph = graph_of(smaller, task.region)
        partition = subdivide(smaller_graph, task.region)
        cuts.append(Cut(smaller_graph, partition, facts | shape_of(partition)))
    for each in cuts:
        for fact, of in (("relative CPU time", "CPU seconds an epoch"), ("relative FLOPs", "FLOPs an epoch")):
            each.facts[fact] = each.facts[of] / cuts[0].facts[of]
    return cuts


def taught(task: Task, model: nn.Module, dataset: DataSet, seed: int, hooks: Sequence[Hook] = ()) -> float:
    """Trains the network by the task's plan; the CPU seconds it took."""
    begin = time.process_time()
    train(model, dataset, task.plan, seed=seed, hooks=hooks)
    return time.process_time() - begin


def conclusions(by_seed: Sequence[Sequence[Cut]]) -> list[dict[str, Any]]:
    """One row a share: means over seeds with intervals, and the accuracy lost against the dense network, paired."""
    rows = []
    for place, first in enumerate(by_seed[0]):
        seeds = [seed[place].facts for seed in by_seed]
        lost = [seed[0].facts["test accuracy"] - seed[place].facts["test accuracy"] for seed in by_seed]
        bends = [facts["units that make a kink"] / max(1, facts["units that cut"]) for facts in seeds]
        row: dict[str, Any] = {"keep": first.facts["keep"], "achieved keep": first.facts["achieved keep"]}
        row |= {name: Estimate.of([facts[name] for facts in seeds])._asdict() for name in MEASURED}
        row["accuracy lost"] = Estimate.of(lost)._asdict()
        row["share of cutting units that make a kink"] = Estimate.of(bends)._asdict()
        for fact in first.facts["removed"]:
            row[f"removed: {fact}"] = Estimate.of([facts["removed"][fact] for facts in seeds])._asdict()
        rows.append(row)
    return rows


def charts(rows: Sequence[dict[str, Any]]) -> list[Chart]:
    """Accuracy, cost of training and number of regions against the share kept, with 95 % intervals."""
    keeps = [row["achieved keep"] for row in rows]

    def line(axes: Any, fact: str, label: str, scale: float = 1.0, style: str = "o-") -> None:
        means = [scale * row[fact]["mean"] for row in rows]
        halves = [scale * (row[fact]["half"] or 0.0) for row in rows]
        axes.errorbar(keeps, means, halves, fmt=style, ms=3.5, lw=1.2, capsize=2, label=label)

    def finish(axes: Any, label: str) -> None:
        axes.set_xlabel("share of the units kept", fontsize=9)
        axes.set_ylabel(label, fontsize=9)
        axes.legend(frameon=False, fontsize=8)

    def accuracy(axes: Any) -> None:
        line(axes, "test accuracy", "trained again", 100)
        line(axes, "accuracy right after the cut", "right after the cut", 100, "s--")
        finish(axes, "test accuracy, %")

    def speed(axes: Any) -> None:
        line(axes, "relative CPU time", "CPU seconds")
        line(axes, "relative FLOPs", "FLOPs", style="s--")
        axes.set_ylim(0, None)
        finish(axes, "an epoch, whole = 1")

    def regions(axes: Any) -> None:
        line(axes, "regions", "regions of the window")
        axes.set_yscale("log")
        finish(axes, "regions")

    return [accuracy, speed, regions]


def draw_sheets(task: Task, cuts: Sequence[Cut], rows: Sequence[dict[str, Any]], path: Path) -> None:
    """The whole window with charts below, and where the task asks for it a second sheet near the boundary."""
    sheet({each.title: each.partition for each in cuts}, charts(rows), path, columns=4)
    if task.zoom:
        near = {each.title: near_boundary(each.graph, each.partition, task.zoom) for each in cuts}
        sheet(near, (), path.with_stem(f"{path.stem}-near"), columns=4, with_kinks=True)


def main() -> None:
    args = parser(__doc__, ("fcnet-small", "fcnet", "convnet-small", "convnet", "convnet-ten")).parse_args()
    task = TASKS[args.task](args.data_dir)
    by_seed = [cuts_of(task, seed) for seed in track(range(args.seeds), "seeds")]
    rows = conclusions(by_seed)
    facts = [[each.facts for each in cuts] for cuts in by_seed]
    write(args.out, __spec__, args, {"rows": rows, "by seed": facts})
    draw_sheets(task, by_seed[0], rows, args.out)
    for row in rows:
        numbers = (f"{name} {row[name]['mean']:.4g} +- {row[name]['half'] or 0:.2g}" for name in MEASURED)
        print(f"achieved keep {row['achieved keep']:.3f}: {', '.join(numbers)}")


if __name__ == "__main__":
    main()
