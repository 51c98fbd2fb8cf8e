"""Exact partitions of trained image networks on slices through images, each certified, with its decision boundary.

    python benchmarks/slices.py --data-dir DATA [--out results/slices.json] [--pictures FOLDER]

The paper's ConvNet is trained on MNIST, 6 against 9, and cut in the middle of the plane of two images. VGG-16
(width 0.25) and PreResNet-29 are trained for a few steps on CIFAR-10 and cut in a window around a point of the decision
boundary, of a size that gives 10,000 to 30,000 regions. Certifying runs the network a dozen times per region.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

import splinecut as sc
from splinecut.geometry.partition import Partition
from splinecut.networks import models
from splinecut.training import data
from studies.support.result_file import write

FEWEST, MOST = 10_000, 30_000


def taught(model: nn.Module, x: Tensor, labels: Tensor, epochs: int) -> nn.Module:
    """The network after a few epochs of plain SGD."""
    generator = torch.Generator().manual_seed(0)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9, weight_decay=1e-4)
    model.train()
    for _ in range(epochs):
        for rows in torch.randperm(len(x), generator=generator).split(128):
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(x[rows]), labels[rows]).backward()
            optimizer.step()
    return model.eval()


def between(model: nn.Module, a: Tensor, b: Tensor) -> Tensor:
    """A point of the segment from a to b where the decision changes, by bisection."""
    low, high = 0.0, 1.0
    with torch.no_grad():
        start = model(a[None]).argmax()
        for _ in range(40):
            middle = (low + high) / 2
            stays = model((a + middle * (b - a))[None]).argmax() == start
            low, high = (middle, high) if stays else (low, middle)
    return a + high * (b - a)


def window_with_enough_regions(model: nn.Module, centre: Tensor, a: Tensor, b: Tensor) -> Partition:
    """The partition of a square around `centre` in the plane of a and b, halved or widened until it fits the range."""
    axes = torch.linalg.qr(torch.stack([a, b]).flatten(1).T.double())[0].T.reshape(2, *a.shape)
    square = np.array([[-1.0, -1.0], [1.0, -1.0], [1.0, 1.0], [-1.0, 1.0]])
    smallest, largest, half_width = 0.0, np.inf, 0.5
    while True:
        try:
            found = sc.subdivide(model, sc.Slice(centre, axes, half_width * square), max_regions=MOST)
            if len(found) >= FEWEST:
                return found
            smallest = half_width
        except sc.RegionLimit:
            largest = half_width
        half_width = 2 * smallest if largest == np.inf else (smallest + largest) / 2


def tie_error(model: nn.Module, partition: Partition) -> tuple[float, float]:
    """On the boundary: the largest gap between the two classes, and the largest lead of any third one over them."""
    line = partition.boundary()
    uv = np.concatenate([line.ends[:, 0], line.ends.mean(axis=1), line.ends[:, 1]])
    classes = np.tile(line.classes, (3, 1))
    with torch.no_grad():
        logits = np.concatenate([model.double()(part).numpy() for part in partition.slice.embed(uv).split(256)])
    tied = np.take_along_axis(logits, classes, axis=1)
    return float(np.ptp(tied, axis=1).max()), float((logits.max(axis=1) - tied.max(axis=1)).max())


def measure(name: str, model: nn.Module, partition: Partition, seconds: float, pictures: Path | None) -> dict[str, Any]:
    findings = sc.certify(partition, model)
    gap, lead = tie_error(model, partition)
    kinks = partition.kinks()
    if pictures is not None:
        partition.plot(pictures / f"{name}.png")
    return {
        "network": name,
        "regions": len(partition),
        "seconds": round(seconds, 2),
        "certified": str(findings) if findings.ok else [str(finding) for finding in findings],
        "boundary segments": len(partition.boundary()),
        "kinks": len(kinks),
        "units that make a kink": len(kinks.per_unit()),
        "units that cut": len(np.unique(np.stack([partition.edge_layer, partition.edge_unit]), axis=1).T),
        "largest gap of the tied logits": gap,
        "largest lead of a third class": lead,
    }


def mnist(data_dir: Path) -> tuple[nn.Module, Tensor, Tensor]:
    """The paper's ConvNet taught 6 against 9, and an image of each from the test set."""
    dataset = data.load("mnist", data_dir=data_dir)
    rows = [(dataset.train.targets == digit).nonzero()[:, 0] for digit in (6, 9)]
    chosen = torch.cat(rows)
    labels = (dataset.train.targets[chosen] == 9).long()
    model = models.build("convnet", classes=2, in_channels=1, preset="paper", seed=0)
    taught(model, dataset.train.examples(chosen), labels, epochs=2)
    six, nine = (int((dataset.test.targets == digit).nonzero()[0, 0]) for digit in (6, 9))
    a, b = dataset.test.examples([six, nine])
    return model, a, b


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data-dir", type=Path, required=True)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--pictures", type=Path)
    asked = parser.parse_args()
    rows = []

    def report(name: str, model: nn.Module, partition: Partition, seconds: float) -> None:
        rows.append(measure(name, model, partition, seconds, asked.pictures))
        print("; ".join(f"{key}: {value}" for key, value in rows[-1].items()), flush=True)

    model, a, b = mnist(asked.data_dir)
    begin = time.perf_counter()
    partition = sc.subdivide(model, sc.Slice.span(a, b, margin=-0.25))  # mixtures with shares from 1/4 to 3/4
    report("convnet-mnist-6-9", model, partition, time.perf_counter() - begin)
    dataset = data.load("cifar10", data_dir=asked.data_dir, train_size=2_000)
    x, labels = dataset.train.examples(list(range(2_000))), dataset.train.targets
    for name, width in (("vgg16", 0.25), ("preresnet29", 1.0)):
        model = taught(models.build(name, width=width, seed=0), x, labels, epochs=5)
        with torch.no_grad():
            decided = model(x[:200]).argmax(dim=1)
        other = int((decided != decided[0]).nonzero()[0, 0])
        centre = between(model, x[0], x[other])
        begin = time.perf_counter()
        partition = window_with_enough_regions(model, centre, x[0], x[other])
        report(f"{name}-width-{width:g}", model, partition, time.perf_counter() - begin)
    if asked.out:
        write(asked.out, "benchmarks/slices.py", asked, {"threads": torch.get_num_threads(), "rows": rows})


if __name__ == "__main__":
    main()
