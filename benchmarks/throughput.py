"""How fast our training loop is, beside a bare hand-written one in the same process.

    python benchmarks/throughput.py --data-dir DATA [--out results/throughput.json]

Both train the same network on the same CIFAR-10 images with the same augmentation (pad-4 crop, flip) and the same
optimiser. They take turns of a few epochs, so that a noisy machine disturbs both alike and what our loop does once
(counting FLOPs, half a second) weighs as it would in a real training, or more; the figure is the median over turns of
(bare time / our time), wall-clock and CPU. Also: how long it takes to turn the parquet files into tensors.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from pathlib import Path

import torch
from torch import nn
from torch.nn import functional as F

from splinecut.networks import models
from splinecut.training import data
from splinecut.training.config import TrainingConfig
from splinecut.training.data import DataSet
from splinecut.training.loop import train
from studies.support.result_file import write

MEAN, STD = (0.4914, 0.4822, 0.4465), (0.2023, 0.1994, 0.2010)


def bare_epoch(model: nn.Module, images: torch.Tensor, labels: torch.Tensor, batch: int, channels_last: bool) -> None:
    """What one would write by hand for a tensor of images: shuffle, crop, flip, normalise, step."""
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, weight_decay=1e-4)
    criterion = nn.CrossEntropyLoss()
    mean, std = torch.tensor(MEAN).view(1, 3, 1, 1), torch.tensor(STD).view(1, 3, 1, 1)
    model.train()
    order = torch.randperm(len(images))
    for start in range(0, len(order), batch):
        chosen = order[start : start + batch]
        padded, n = F.pad(images[chosen], (4, 4, 4, 4)), len(chosen)
        rows = torch.randint(0, 9, (n, 1)) + torch.arange(32)
        columns = torch.randint(0, 9, (n, 1)) + torch.arange(32)
        flip = torch.rand(n, 1) < 0.5
        columns = torch.where(flip, columns.flip(1), columns)
        x = padded[torch.arange(n)[:, None, None], :, rows[:, :, None], columns[:, None, :]].permute(0, 3, 1, 2)
        x = x.float().div(255).sub(mean).div(std)
        if channels_last:
            x = x.contiguous(memory_format=torch.channels_last)
        loss = criterion(model(x), labels[chosen])
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()


def compare(name: str, width: float, dataset: DataSet, batch: int, turns: int, epochs: int) -> dict[str, float]:
    """Median ratio of the bare loop's time to ours, wall-clock and CPU."""
    plan = TrainingConfig(epochs=epochs, batch_size=batch)
    ours = models.build(name, classes=10, width=width, seed=0)
    bare = models.build(name, classes=10, width=width, seed=0).to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    images, labels = dataset.train.inputs, dataset.train.targets
    ratios: list[tuple[float, float]] = []
    for turn in range(turns + 1):
        clocks = []
        for work in (
            lambda: [bare_epoch(bare, images, labels, batch, channels_last=True) for _ in range(epochs)],
            lambda seed=turn: train(ours, dataset, plan, seed=seed),
        ):
            wall, cpu = time.perf_counter(), time.process_time()
            work()
            clocks.append((time.perf_counter() - wall, time.process_time() - cpu))
        if turn:  # the first turn warms caches up
            ratios.append((clocks[0][0] / clocks[1][0], clocks[0][1] / clocks[1][1]))
    wall_ratios, cpu_ratios = zip(*ratios, strict=True)
    return {"wall": statistics.median(wall_ratios), "cpu": statistics.median(cpu_ratios), "turns": turns}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data-dir", type=Path, required=True)
    parser.add_argument("--images", type=int, default=2000)
    parser.add_argument("--turns", type=int, default=5)
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--networks", nargs="+", default=["vgg16", "preresnet29"], choices=["vgg16", "preresnet29"])
    parser.add_argument("--out", type=Path)
    asked = parser.parse_args()
    start = time.perf_counter()
    whole = data.load("cifar10", data_dir=asked.data_dir, validation=0)
    seconds = time.perf_counter() - start
    facts: dict[str, object] = {"parquet_images": len(whole.train) + len(whole.test), "parquet_seconds": seconds}
    dataset = data.load("cifar10", data_dir=asked.data_dir, validation=0, train_size=asked.images)
    for name in asked.networks:
        width = {"vgg16": 0.25, "preresnet29": 1.0}[name]
        facts[f"{name} width {width:g}"] = compare(name, width, dataset, 128, asked.turns, asked.epochs)
    facts |= {
        "images": asked.images,
        "epochs": asked.epochs,
        "threads": torch.get_num_threads(),
    }
    print(json.dumps(facts, indent=2))
    if asked.out:
        write(asked.out, "benchmarks/throughput.py", asked, facts)


if __name__ == "__main__":
    main()
