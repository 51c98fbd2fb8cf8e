"""How many pieces deep networks have between two CIFAR-10 images, and what finding them costs.

    python benchmarks/line.py --data-dir DATA [--part small|large|all] [--out results/line.json]

Small networks are walked from end to end; of the large ones a stretch with at least 2,000 pieces is walked and the
whole segment is estimated from cells drawn all along it. Each result is checked between breakpoints against a
plain forward pass. Weights are as initialised, batch-norm statistics are those of 512 training images.
"""

from __future__ import annotations

import argparse
import resource
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from splinecut.geometry.estimates import estimate_pieces
from splinecut.geometry.graph import Graph
from splinecut.geometry.line import Pieces, pieces_along
from splinecut.networks import models
from splinecut.networks.trace import trace
from splinecut.training import data
from studies.support.result_file import write

SMALL = [("vgg16", 0.25), ("preresnet20", 0.25)]
LARGE = [("vgg16", 1.0), ("preresnet101", 1.0)]
ENOUGH = 2_000


def network(name: str, width: float, images: Tensor) -> nn.Module:
    """The network as initialised, after one pass that fills its batch-norm statistics."""
    model = models.build(name, width=width, seed=0)
    for module in model.modules():
        if isinstance(module, nn.BatchNorm2d):
            module.momentum = None  # a plain mean over batches
    with torch.no_grad():
        for batch in images.split(128):
            model.train()(batch)
    return model.eval()


def error_between(graph: Graph, pieces: Pieces, a: Tensor, b: Tensor, n: int = 200) -> float:
    """The largest deviation of the interpolated outputs from a forward pass, relative to the largest output."""
    rng = np.random.default_rng(0)
    chosen = rng.choice(len(pieces), min(n, len(pieces)), replace=False)
    t = pieces.breakpoints[chosen] + rng.random(len(chosen)) * np.diff(pieces.breakpoints)[chosen]
    weight = torch.from_numpy(t).view(-1, 1, 1, 1)
    with torch.no_grad():
        outputs = graph.run((1 - weight) * a.double() + weight * b.double()).numpy()
    return float(np.abs(pieces.at(t) - outputs).max() / np.abs(outputs).max())


def walk(graph: Graph, a: Tensor, b: Tensor, is_whole: bool) -> tuple[Pieces, float]:
    """The pieces of the whole segment, or of a stretch from its middle on that is doubled until it holds enough."""
    start, width = (0.0, 1.0) if is_whole else (0.5, 2e-3)
    while True:
        begin = time.perf_counter()
        pieces = pieces_along(graph, a, b, start, start + width)
        if is_whole or len(pieces) >= ENOUGH:
            return pieces, time.perf_counter() - begin
        width *= max(2.0, 1.2 * ENOUGH / len(pieces))


def measure(name: str, width: float, images: Tensor, is_whole: bool) -> dict[str, Any]:
    a, b = images[:2]
    graph = trace(network(name, width, images), a[None])
    pieces, seconds = walk(graph, a, b, is_whole)
    row: dict[str, Any] = {
        "network": name,
        "width": width,
        "stretch": [float(pieces.breakpoints[0]), float(pieces.breakpoints[-1])],
        "pieces": len(pieces),
        "seconds": round(seconds, 1),
        "relative error between breakpoints": error_between(graph, pieces, a, b),
        "peak GB so far": round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20, 2),
    }
    if not is_whole:
        row["whole segment"] = str(estimate_pieces(graph, a, b, n_windows=8, width=2e-4))
    return row


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data-dir", type=Path, required=True)
    parser.add_argument("--part", choices=["small", "large", "all"], default="small")
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    dataset = data.load("cifar10", data_dir=options.data_dir)
    images = dataset.train.examples(list(range(512)))
    chosen = [(*each, True) for each in SMALL if options.part != "large"]
    chosen += [(*each, False) for each in LARGE if options.part != "small"]
    rows = []
    for name, width, is_whole in chosen:
        rows.append(measure(name, width, images, is_whole))
        print("; ".join(f"{key}: {value}" for key, value in rows[-1].items()), flush=True)
    if options.out:
        write(options.out, "benchmarks/line.py", options, {"threads": torch.get_num_threads(), "rows": rows})


if __name__ == "__main__":
    main()
