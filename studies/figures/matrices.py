"""How far apart the partitions of any two epochs lie, seen on training, test and random inputs of the same training.

    python -m studies.figures.matrices --data-dir DATA --out results/matrices.json

You et al. (2022), Fig. 5 and its twin in the appendix: small networks on part of CIFAR-10, by the paper's schedule.
Several early birds, each with a probe of its own, look at the network before the first step and after every epoch,
and never stop it. Two matrices look alike when their entries have the same order (rank correlation) and the same size
(mean absolute difference). Entries grow with the gap between two epochs in any training, so the correlation with the
gap alone stands beside them: so much is to be expected of matrices that have nothing else in common. The result is
written after each network; called again, the study goes on with the next.
"""

from __future__ import annotations

import argparse
import itertools
import json
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from rich.console import Console
from torch import Tensor

from splinecut.experiments import runner
from splinecut.experiments.building import build_model
from splinecut.experiments.spec import Experiment
from splinecut.pruning.detect import EarlyBird
from splinecut.pruning.detection_rules import DETECTION_RULES
from splinecut.training.data import DataSet
from splinecut.training.hooks import Hook, TrainState
from splinecut.training.loop import train
from splinecut.training.seeding import generator
from studies.support.result_file import figure, write

NETWORKS: dict[str, dict[str, Any]] = {
    "AlexNet": {"name": "alexnet", "width": 0.25},
    "VGG-16": {"name": "vgg16", "width": 0.25},
    "PreResNet-20": {"name": "preresnet20", "width": 0.5},
}
IMAGES, EPOCHS, PROBE = 4000, 16, 256

Matrix = Float[np.ndarray, "epochs epochs"]


class Watchers(Hook):
    """Shows the network to several early birds, before the first step and after every epoch."""

    def __init__(self, detectors: dict[str, EarlyBird]) -> None:
        self.detectors = detectors

    def start(self, state: TrainState) -> None:
        self.after_epoch(state)

    def after_epoch(self, state: TrainState) -> bool:
        for detector in self.detectors.values():
            detector.observe(state.model)
        return False


def probes(data: DataSet, size: int, seed: int) -> dict[str, Float[Tensor, "samples *input"]]:
    """`size` training images, as many test images, and noise with the mean and deviation that images have."""
    random = generator(seed)
    rows = {name: torch.randperm(len(split), generator=random)[:size] for name, split in _splits(data).items()}
    seen = {name: split.examples(rows[name]) for name, split in _splits(data).items()}
    noise = torch.randn(seen["train"].shape, generator=random) * seen["train"].std() + seen["train"].mean()
    return {**seen, "random": noise}


def _splits(data: DataSet) -> dict[str, Any]:
    return {"train": data.train, "test": data.test}


def watched(experiment: Experiment, data: DataSet, size: int = PROBE) -> tuple[dict[str, EarlyBird], list[dict]]:
    """One training from beginning to end: what each early bird saw, and the history."""
    seed = experiment.seed
    detectors = {name: EarlyBird(probe, seed=seed) for name, probe in probes(data, size, seed).items()}
    model = build_model(experiment, data)
    return detectors, train(model, data, experiment.training, seed=seed, hooks=[Watchers(detectors)])


def alike(a: Matrix, b: Matrix) -> dict[str, float]:
    """How alike two symmetric matrices are, off their diagonals: rank correlation and mean absolute difference."""
    from scipy.stats import spearmanr

    above = np.triu_indices(len(a), 1)
    correlation = float(spearmanr(a[above], b[above]).statistic)
    return {"rank_correlation": round(correlation, 4), "mean_difference": round(float(abs(a - b)[above].mean()), 4)}


def comparisons(matrices: dict[str, Matrix]) -> dict[str, Any]:
    """Every pair of probes, and each against the gap between the epochs alone."""
    pairs = {f"{a} and {b}": alike(matrices[a], matrices[b]) for a, b in itertools.combinations(matrices, 2)}
    epochs = np.arange(len(next(iter(matrices.values()))))
    gap = abs(epochs[:, None] - epochs).astype(float)
    return {
        **pairs,
        "rank correlation with the gap": {k: alike(m, gap)["rank_correlation"] for k, m in matrices.items()},
    }


def facts_of(detector: EarlyBird) -> dict[str, Any]:
    """What one early bird saw; its epochs count from 0, the network before training."""
    matrix = detector.matrix()
    rounded = {layer: [round(share, 4) for share in shares] for layer, shares in detector.by_layer().items()}
    return {
        "drawn_epoch": drawn_epoch(matrix, detector.rule.threshold, detector.rule.window),
        "between_epochs": matrix.diagonal(1).round(4).tolist(),
        "between_epochs_by_layer": rounded,
        "matrix": matrix.round(4).tolist(),
    }


def drawn_epoch(matrix: Matrix, threshold: float, window: int) -> int | None:
    """The first epoch at which the last `window` distances between neighbours are below `threshold`."""
    small = matrix.diagonal(1) < threshold
    first = window + 1  # a run's detector looks after epoch 1 for the first time, not before training
    return next((epoch for epoch in range(first, len(matrix)) if small[epoch - window : epoch].all()), None)


def draw(result: dict[str, Any], path: Path) -> None:
    """One row a network: raw matrices on the three probes, then the first one stretched to [0, 1] as the paper's is.

    A red line goes round what is nearer than the detector's threshold.
    """
    kinds = list(next(iter(result.values()))["probes"])
    top = max(np.max(each["matrix"]) for one in result.values() for each in one["probes"].values())
    size = (2.2 * (len(kinds) + 1) + 0.6, 2.0 * len(result) + 0.5)
    with figure(path, size, columns=len(kinds) + 1, rows=len(result)) as panels:
        axes = np.reshape(panels, (len(result), len(kinds) + 1))
        for row, (name, one) in zip(axes, result.items(), strict=True):
            raw = {kind: np.array(one["probes"][kind]["matrix"]) for kind in kinds}
            for panel, matrix in zip(row, raw.values(), strict=False):
                shown = panel.imshow(matrix, cmap="viridis_r", vmin=0, vmax=float(top))
                panel.contour(matrix, levels=[DETECTION_RULES["paper"].threshold], colors="tab:red", linewidths=1)
            _bar(row[-2], shown)
            _bar(row[-1], row[-1].imshow(stretched(raw[kinds[0]]), cmap="viridis_r", vmin=0, vmax=1))
            row[0].set_ylabel(f"{name}\nepoch", fontsize=8)
        _label(axes, [*(f"{kind} inputs" for kind in kinds), f"{kinds[0]} inputs, min-max"])


def _bar(panel: Any, shown: Any) -> None:
    panel.figure.colorbar(shown, ax=panel, fraction=0.046, pad=0.03).ax.tick_params(labelsize=7)


def _label(axes: Any, titles: list[str]) -> None:
    from matplotlib.ticker import MaxNLocator

    for panel in axes.flat:
        panel.spines[:].set_visible(False)
        panel.tick_params(labelsize=7)
        panel.xaxis.set_major_locator(MaxNLocator(5, integer=True))
        panel.yaxis.set_major_locator(MaxNLocator(5, integer=True))
    for panel, title in zip(axes[0], titles, strict=True):
        panel.set_title(title, fontsize=9)
    for panel in axes[-1]:
        panel.set_xlabel("epoch", fontsize=8)


def stretched(matrix: Matrix) -> Matrix:
    """The matrix moved to [0, 1]; the smallest entry is the diagonal's 0."""
    return matrix / max(float(matrix.max()), np.finfo(float).tiny)


def asked_for(network: dict[str, Any], args: argparse.Namespace) -> Experiment:
    """One network's training."""
    model = {**network, "activation": args.activation}
    tables = {"model": model, "data": {"name": "cifar10", "train_size": args.images}, "seed": args.seed}
    return Experiment.from_dict({**tables, "training": {"epochs": args.epochs, "batch_size": 128}})


def studied(experiment: Experiment, data_dir: Path | None) -> dict[str, Any]:
    """One training and all that was seen of it."""
    detectors, history = watched(experiment, runner.load_data(experiment, data_dir))
    return {
        "spec": _spec(experiment),
        "validation_accuracy": [round(row["validation_accuracy"], 4) for row in history],
        "probes": {name: facts_of(detector) for name, detector in detectors.items()},
        "alike": comparisons({name: detector.matrix() for name, detector in detectors.items()}),
    }


def _spec(experiment: Experiment) -> dict[str, Any]:
    return experiment.model_dump(mode="json", include={"model", "data", "training", "seed"})


def finished(path: Path, experiments: dict[str, Experiment]) -> dict[str, Any]:
    """The networks in an earlier result whose training was the one asked for now."""
    if not path.is_file():
        return {}
    stored = json.loads(path.read_text(encoding="utf-8"))["networks"].items()
    return {name: one for name, one in stored if name in experiments and one["spec"] == _spec(experiments[name])}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--images", type=int, default=IMAGES)
    parser.add_argument("--epochs", type=int, default=EPOCHS)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--activation", default="relu", help="leaky_relu for the twin of Fig. 5 in the appendix")
    parser.add_argument("--networks", nargs="+", choices=NETWORKS, help="left out: all")
    parser.add_argument("--data-dir", type=Path)
    parser.add_argument("--out", type=Path, default=Path("results/matrices.json"))
    args = parser.parse_args()
    experiments = {name: asked_for(NETWORKS[name], args) for name in args.networks or NETWORKS}
    networks = finished(args.out, experiments)
    for name, experiment in experiments.items():
        if name not in networks:
            networks[name] = studied(experiment, args.data_dir)
        write(args.out, __spec__, args, {"probe": PROBE, "networks": networks})
        drawn = {kind: seen["drawn_epoch"] for kind, seen in networks[name]["probes"].items()}
        Console().print(f"{name}: drawn at {drawn}, {networks[name]['alike']}")
    draw({name: networks[name] for name in experiments}, args.out.with_suffix(".png"))


if __name__ == "__main__":
    main()
