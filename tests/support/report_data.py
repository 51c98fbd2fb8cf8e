"""Records and frames made up for the tests of the report: many, quickly, with facts that are known."""

from __future__ import annotations

import copy
from functools import cache
from typing import Any

import numpy as np
import torch
from torch import nn

import splinecut as sc
from splinecut.experiments.film.build import build_frames, folding_layers, frame_of, redundancies
from splinecut.experiments.film.frames import Frames
from splinecut.experiments.records import Record
from splinecut.experiments.spec import Experiment
from splinecut.geometry.partition import Partition
from splinecut.networks import models
from splinecut.training.ledger import Ledger

HOSTILE = "<script>alert(1)</script><img src=x onerror=alert(2)> \"'&{{facts}}</textarea>"


def record(
    name: str = "digits",
    seed: int = 0,
    method: str | None = "spline",
    keep: float = 0.5,
    accuracy: float = 0.9,
    early: bool = True,
    flops: int = 10**9,
) -> Record:
    """A record as a run leaves it; the early bird looked five times and was drawn at the last look."""
    recipe: dict[str, Any] = {
        "name": name,
        "seed": seed,
        "model": "convnet",
        "data": "digits",
        "budget": {"keep": keep},
    }
    if method:
        recipe |= {"method": method} | ({"detector": "early-bird-spline"} if early else {})
    experiment = Experiment.from_dict(recipe)
    ledger = Ledger()
    ledger.charge("train", flops, 10, seconds=1.5)
    ledger.charge("test", flops, 5, passes=1)
    metrics = {"loss": 0.5, "accuracy": accuracy, "top5": 1.0, "images": 100}
    return Record(
        name=name,
        digest=experiment.digest,
        spec=experiment.model_dump(mode="json"),
        test={"last": metrics, "best": metrics | {"epoch": 3}} | ({"after cut": metrics} if method else {}),
        history=[],
        parameters=int(10_000 * keep),
        forward_flops=flops,
        ledger=ledger.to_dict(),
        energy={"measured_joules": None, "estimate_tx2_joules": 1.0},
        data_hash="0" * 64,
        versions={"splinecut": "0.1.0", "torch": "2.13.0"},
        commit=None,
        device="cpu",
        pruning=pruning(early) if method else None,
    )


STEPS = {"features.2": [0.4, 0.3, 0.14, 0.1], "features.5": [0.2, 0.2, 0.1, 0.06]}  # distances from look to look


def pruning(early: bool) -> dict[str, Any]:
    mean = np.mean(list(STEPS.values()), axis=0)
    at = np.concatenate([[0.0], np.cumsum(mean)])
    return {
        "method": "spline",
        "options": {},
        "budget": {"keep": 0.5, "of": "channels", "scope": "global", "floor": 1},
        "achieved": {"kept": 24, "of": 48, "flops": 1, "all_flops": 2, "density": 0.5},
        "layers": {},
        "drawn_epoch": 5,
        "drawn_step": 100,
        "is_early": early,
        "distances": copy.deepcopy(STEPS) if early else {},
        "matrix": np.abs(at[:, None] - at).tolist() if early else None,
    }


def many_records(n: int) -> list[Record]:
    """`n` runs of five methods, twenty budgets and up to five seeds, and the dense network."""
    methods = ("spline", "l2", "random", "magnitude", "slimming")
    rng = np.random.default_rng(0)
    found = [record("dense", seed, None, 1.0, 0.95 + 0.001 * seed) for seed in range(5)]
    for i in range(n - len(found)):
        keep = round(0.05 + 0.045 * (i // 5 % 20), 3)
        accuracy = float(0.9 + 0.05 * keep + 0.003 * rng.normal())
        found.append(
            record(f"run {i}", i % 5, methods[i // 100 % 5], keep, accuracy, i % 2 == 0, int(2e8 * (1 + 4 * keep)))
        )
    return found


@cache
def network(*hidden: int) -> nn.Module:
    return models.build("mlp", classes=2, hidden=hidden, seed=0).eval()


@cache
def big_partition(half_width: float) -> Partition:
    """54,131 regions at half width 4."""
    return sc.subdivide(network(128, 128, 128), sc.Slice.square(half_width))


def film_of(partition: Partition, name: str = "random") -> Frames:
    """One partition with points of two classes."""
    points = np.random.default_rng(1).uniform(*partition.slice.window[[0, 2], 0], size=(200, 2))
    return Frames(
        name,
        folding_layers(partition.layers),
        (frame_of(partition),),
        points,
        np.arange(200, dtype=np.int32) % 2,
        ("left", "right"),
        redundancies(network(128, 128, 128), partition.slice, sc.groups(network(128, 128, 128), torch.zeros(1, 2))),
    )


@cache
def small_film(n_steps: int = 12, hidden: tuple[int, ...] = (16, 8)) -> Frames:
    """A network on its way from one set of weights to another, then cut to three sizes."""
    region = sc.Slice.square(2.0)
    start, end = (models.build("mlp", classes=2, hidden=hidden, seed=seed).eval() for seed in (0, 1))
    trained = []
    for step in range(n_steps):
        now = copy.deepcopy(end)
        for parameter, a, b in zip(now.parameters(), start.parameters(), end.parameters(), strict=True):
            parameter.data = a.data + (b.data - a.data) * step / (n_steps - 1)
        trained.append(
            frame_of(sc.subdivide(now, region), "train", 10 * step, facts={"test accuracy": 0.5 + step / 100})
        )
    points = torch.rand(60, 2, generator=torch.Generator().manual_seed(0)) * 4 - 2
    labels = (points[:, 0] > 0).long()
    return build_frames(
        "toy",
        end,
        region,
        points,
        labels,
        ("left", "right"),
        trained,
        keeps=(0.75, 0.5, 0.25),
        about={"slice": "the whole plane", "cuts": "spline, refitted"},
    )
