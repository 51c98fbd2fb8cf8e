"""How long it takes to score, select and cut VGG-16 and ResNet-50, and what scoring costs beside a training.

    python benchmarks/scoring.py [--networks vgg16 resnet50] [--out results/scoring.json]

Inputs are random images and weights are as initialised: neither changes what is computed. Reading the groups off the
network, which is done once whatever the method, stands apart. "score and select" holds all else that `sc.draw` does:
the default form `joint` runs the probe through the network, whose bare forward pass is a row of its own, and eliminates
units from covariances; the forms `corrected` and `paper` look at weights alone, as the paper does. Limits on two cores:
VGG-16 2 s, ResNet-50 10 s, its cut 3 s.

The share is of the FLOPs of a training as the paper counts it, 3 forward passes for each image of each epoch: 160
epochs of 50,000 images for VGG-16, 90 of ImageNet for ResNet-50. The paper states 1/30,000,000 for the latter.
"""

from __future__ import annotations

import argparse
import resource
import statistics
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import torch

from splinecut.networks import models
from splinecut.networks.cost import forward_flops
from splinecut.networks.groups.read import groups
from splinecut.pruning.apply import cut
from splinecut.pruning.budget import Budget
from splinecut.pruning.evidence import Evidence
from splinecut.pruning.methods.catalogue import resolve_method
from studies.support.result_file import write

FORMS = ("joint", "corrected", "paper")
SCOPES = ("layer", "global")
SHAPES = {"vgg16": (3, 32, 32), "resnet50": (3, 224, 224)}
CLASSES = {"vgg16": 10, "resnet50": 1000}
PROBE = {"vgg16": 64, "resnet50": 24}  # images
IMAGES = {"vgg16": 160 * 50_000, "resnet50": 90 * 1_281_167}  # that the paper's trainings look at, epochs x images


def timed(work: Callable[[], Any], turns: int) -> tuple[Any, dict[str, float]]:
    """What `work` gives, and the medians of its wall-clock and CPU seconds."""
    walls, cpus, result = [], [], None
    for _ in range(turns):
        wall, cpu = time.perf_counter(), time.process_time()
        result = work()
        walls.append(time.perf_counter() - wall)
        cpus.append(time.process_time() - cpu)
    return result, {"seconds": round(statistics.median(walls), 3), "cpu": round(statistics.median(cpus), 3)}


def measure(name: str, turns: int) -> list[dict[str, Any]]:
    """One row for each step of pruning this network."""
    shape = SHAPES[name]
    model = models.build(name, classes=CLASSES[name], input_shape=shape, seed=0).eval()
    probe = torch.randn(PROBE[name], *shape, generator=torch.Generator().manual_seed(0))
    flops = forward_flops(model, shape)
    found, took = timed(lambda: groups(model, probe), turns)
    rows = [{"network": name, "step": "read groups", **took}]
    with torch.no_grad():
        took = timed(lambda: [model(part) for part in probe.split(8)], turns)[1]
    rows.append({"network": name, "step": "forward pass of the probe, nothing else", **took})
    evidence = Evidence(model, found, probe)
    for form in FORMS:
        for scope in SCOPES:
            budget = Budget(0.5, scope=scope)  # type: ignore[arg-type]
            method = resolve_method("spline", {"form": form}, budget)[1]
            ticket, took = timed(partial(drawn, evidence, "spline", method, budget), turns)
            share = method.flops(evidence, flops) / (3 * flops * IMAGES[name])
            facts = {"FLOPs": method.flops(evidence, flops), "share of a training": f"1/{1 / share:,.0f}"}
            rows.append({"network": name, "step": f"score and select, {form}, {scope}", **took, **facts})
    rows.append({"network": name, "step": "cut", **timed(lambda: cut(model, ticket), turns)[1]})
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--networks", nargs="+", default=list(SHAPES), choices=list(SHAPES))
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--out", type=Path)
    asked = parser.parse_args()
    rows = []
    for name in asked.networks:
        for row in measure(name, asked.turns):
            rows.append(row)
            print("; ".join(f"{key}: {value}" for key, value in row.items()), flush=True)
    peak = round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20, 2)
    print(f"{torch.get_num_threads()} threads, peak {peak} GB")
    if asked.out:
        facts = {"probe": PROBE, "threads": torch.get_num_threads(), "peak GB": peak}
        write(asked.out, "benchmarks/scoring.py", asked, {**facts, "rows": rows})


if __name__ == "__main__":
    main()
