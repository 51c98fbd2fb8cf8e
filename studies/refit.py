"""What refitting is worth: accuracy right after a cut, by criterion and by refit, with no training after it.

    python -m studies.refit convnet-fashion --data-dir DATA --out results/refit.json
    python -m studies.refit headline-vgg16 --seeds 3 4 5 6 7 --data-dir DATA \\
        --out results/refit-vgg.json

The same share of every layer's channels stays, so criteria differ only in which ones. Networks are trained by the
recipe, one for each seed, and kept in the run folder: a second call reads them.
"""

from __future__ import annotations

import argparse
import itertools
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import track
from rich.table import Table
from safetensors.torch import load_file
from torch import nn

from splinecut.experiments import runner, spec
from splinecut.experiments.building import build_model
from splinecut.pruning.apply import cut
from splinecut.pruning.budget import Budget
from splinecut.pruning.draw_ticket import draw
from splinecut.training.data import DataSet
from splinecut.training.evaluate import evaluate
from splinecut.training.seeding import generator
from studies.support.intervals import plus_minus
from studies.support.result_file import write

CRITERIA: dict[str, tuple[str, dict[str, Any]]] = {
    "random": ("random", {}),
    "L2": ("l2", {}),
    "batch-norm scale": ("slimming", {}),
    "spline, paper": ("spline", {"form": "paper"}),
    "spline, corrected": ("spline", {"form": "corrected"}),
    "spline, joint": ("spline", {"form": "joint"}),
}
REFITS = (None, "fold", "least_squares")
KEEPS = (0.7, 0.5, 0.3)
PROBE = 512


def accuracies(model: nn.Module, dataset: DataSet, seed: int) -> dict[str, float]:
    """Test accuracy of the dense network and right after each cut."""
    import torch

    rows = torch.randperm(len(dataset.train), generator=generator(seed))[:PROBE]
    probe = dataset.train.examples(rows)
    by_method = {"dense": _accuracy(model, dataset)}
    for keep, (name, (method, options)) in itertools.product(KEEPS, CRITERIA.items()):
        ticket = draw(model, probe, method, budget=Budget(keep, scope="layer"), seed=seed, **options)
        for refit in REFITS:
            smaller = cut(model, ticket, refit=refit, probe=probe)
            by_method[f"{name} | {keep} | {refit or 'none'}"] = _accuracy(smaller, dataset)
    return by_method


def _accuracy(model: nn.Module, dataset: DataSet) -> float:
    accuracy = evaluate(model, dataset.test, dataset.task).accuracy
    assert accuracy is not None
    return accuracy


def whole(experiment: spec.Experiment) -> spec.Experiment:
    """The same training with nothing cut."""
    if experiment.method is None:
        return experiment
    return experiment.model_copy(update={"name": f"{experiment.name}-dense", "method": None, "detector": None})


def trained(experiment: spec.Experiment, out: Path, data_dir: Path | None) -> tuple[nn.Module, DataSet]:
    """The experiment's network as its run left it, and its data."""
    runner.run(experiment, out, data_dir, shared=out / "shared")
    dataset = runner.load_data(experiment, data_dir)
    model = build_model(experiment, dataset)
    model.load_state_dict(load_file(out / experiment.folder / "model.safetensors"))
    return model.eval(), dataset


def show(by_seed: list[dict[str, float]]) -> None:
    """Mean and interval over seeds, in per cent."""
    table = Table(title="accuracy right after the cut, no retraining, %")
    for column in ("criterion", "keep", *(refit or "none" for refit in REFITS)):
        table.add_column(column, justify="left" if column == "criterion" else "right")
    for keep, name in itertools.product(KEEPS, CRITERIA):
        places = [f"{name} | {keep} | {refit or 'none'}" for refit in REFITS]
        cells = [plus_minus([100 * seed[place] for seed in by_seed]) for place in places]
        table.add_row(name, f"{keep:g}", *cells)
    dense = plus_minus([100 * seed["dense"] for seed in by_seed])
    table.caption = f"dense network: {dense} ({len(by_seed)} seeds, 95 % intervals)"
    Console().print(table)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("recipe")
    parser.add_argument("--data-dir", type=Path)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2, 3, 4])
    parser.add_argument("--runs", type=Path, default=Path("runs"))
    parser.add_argument("--out", type=Path)
    args = parser.parse_args()
    by_seed = []
    for seed in track(args.seeds, "seeds"):
        experiment = whole(spec.load(args.recipe, [f"seed={seed}"]))
        by_seed.append(accuracies(*trained(experiment, args.runs, args.data_dir), seed))
    show(by_seed)
    if args.out:
        facts = {"recipe": args.recipe, "probe": PROBE, "accuracy by seed": by_seed}
        write(args.out, __spec__, args, facts, first=["recipe"])


if __name__ == "__main__":
    main()
