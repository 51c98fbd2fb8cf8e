"""What the early-bird detector costs: one look as a share of the epoch it watches, and a matrix of distances.

    python benchmarks/observing.py --data-dir DATA [--out results/observing.json]

The epoch is one of VGG-16 at width 0.25 on 16,000 CIFAR-10 images in batches of 128: 125 times a step of our own loop,
evaluation left out. A look runs 256 probe images, packs their codes and compares them with the last ones; the first
look traces the network once and is reported apart. Steps and looks take turns, so that a noisy machine disturbs both
alike; the share is the median over turns, by wall-clock and by CPU time. The matrix is that of 160 epochs over 10^7
bits each. Limits on two cores: 1.5 % and 10 s.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from splinecut.geometry.codes import Codes, distance_matrix
from splinecut.networks import models
from splinecut.pruning.detect import EarlyBird
from splinecut.training import data
from splinecut.training.config import TrainingConfig
from splinecut.training.data import DataSet
from splinecut.training.hooks import Hook, TrainState
from splinecut.training.loop import train
from studies.support.result_file import write

EPOCH, BATCH, PROBE = 16_000, 128, 256
N_CODES, N_BITS, N_LAYERS = 160, 10**7, 13


def now() -> np.ndarray:
    """Wall-clock and CPU seconds."""
    return np.array([time.perf_counter(), time.process_time()])


def clocks(work: Callable[[], Any]) -> np.ndarray:
    """Wall-clock and CPU seconds that `work` takes."""
    start = now()
    work()
    return now() - start


class Clock(Hook):
    """Notes the time at the end of every step."""

    def __init__(self) -> None:
        self.times: list[np.ndarray] = []

    def after_step(self, state: TrainState) -> None:
        self.times.append(now())


def epoch_seconds(model: nn.Module, dataset: DataSet, seed: int) -> np.ndarray:
    """Seconds of the whole epoch, from the mean step of a short one; the first step, which sets up, is left out."""
    clock = Clock()
    train(model, dataset, TrainingConfig(epochs=1, batch_size=BATCH), seed=seed, hooks=(clock,))
    return (clock.times[-1] - clock.times[0]) / (len(clock.times) - 1) * EPOCH / BATCH


def looking(data_dir: Path, steps: int, turns: int) -> dict[str, Any]:
    """One look beside one epoch, the epoch scaled up from `steps` steps."""
    dataset = data.load("cifar10", data_dir=data_dir, validation=0, train_size=(steps + 1) * BATCH)
    model = models.build("vgg16", classes=10, width=0.25, seed=0)
    bird = EarlyBird(dataset.train.examples(list(range(PROBE))))
    first = clocks(lambda: bird.observe(model))
    bird.observe(model)
    looks, epochs = [], []
    for turn in range(turns + 1):
        epoch, look = epoch_seconds(model, dataset, turn), clocks(lambda: bird.observe(model))
        if turn:  # the first turn warms caches up
            epochs.append(epoch)
            looks.append(look)
    wall, cpu = (
        statistics.median(look[i] / epoch[i] for look, epoch in zip(looks, epochs, strict=True)) for i in (0, 1)
    )
    return {
        "share of an epoch, wall": round(wall, 4),
        "share of an epoch, CPU": round(cpu, 4),
        "look, CPU seconds": round(statistics.median(look[1] for look in looks), 3),
        "epoch, CPU seconds": round(statistics.median(epoch[1] for epoch in epochs), 1),
        "first look (traces), CPU seconds": round(float(first[1]), 2),
        "steps timed": steps,
        "turns": turns,
    }


def comparing() -> dict[str, Any]:
    """The matrix of distances between random codes of the asked size."""
    rng = np.random.default_rng(0)
    n_bytes = N_BITS // N_LAYERS // PROBE // 8
    layers, units = tuple(f"layer {i}" for i in range(N_LAYERS)), (np.arange(8 * n_bytes),) * N_LAYERS

    def random_codes() -> Codes:
        packed = tuple(rng.integers(256, size=(PROBE, n_bytes), dtype=np.uint8) for _ in layers)
        return Codes(layers, (8 * n_bytes,) * N_LAYERS, units, packed)

    codes = [random_codes() for _ in range(N_CODES)]
    wall, cpu = clocks(lambda: distance_matrix(codes))
    bits = N_LAYERS * 8 * n_bytes * PROBE
    return {"epochs": N_CODES, "bits each": bits, "seconds": round(wall, 2), "CPU seconds": round(cpu, 2)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data-dir", type=Path, required=True)
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--turns", type=int, default=5)
    parser.add_argument("--out", type=Path)
    asked = parser.parse_args()
    facts: dict[str, Any] = {"one look": looking(asked.data_dir, asked.steps, asked.turns), "matrix": comparing()}
    facts["threads"] = torch.get_num_threads()
    print(json.dumps(facts, indent=2))
    if asked.out:
        write(asked.out, "benchmarks/observing.py", asked, facts)


if __name__ == "__main__":
    main()
