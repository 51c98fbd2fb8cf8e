"""Facts that must not change by accident: stored names, keys of stored files, region counts, tickets.

    python -m tools.golden            # compare with tests/data/golden.json, and say what differs
    python -m tools.golden --write    # after a deliberate change

A run folder, a shared training or a key of a record that changes its name orphans the results people have. Region
counts and tickets of fixed networks say that a change of the code's shape changed no result.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import sys
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from io import StringIO
from pathlib import Path
from typing import Any

import numpy as np
import torch
from rich.console import Console
from torch import nn

import splinecut as sc
from splinecut.experiments import recipes, spec
from splinecut.experiments.runner import run
from splinecut.experiments.sweep import spec as grid
from splinecut.experiments.sweep.scheduler import shared_stages
from splinecut.networks.models import build
from splinecut.pruning.budget import Budget
from splinecut.pruning.methods.catalogue import METHODS
from splinecut.training.progress import ConsoleProgress

FILE = Path(__file__).parents[1] / "tests" / "data" / "golden.json"

TINY: dict[str, Any] = {"data": {"name": "digits", "train_size": 200}, "training": {"epochs": 2, "batch_size": 50}}
RUNS: dict[str, dict[str, Any]] = {
    "dense": {},
    "spline": {"method": "spline", "budget": {"keep": 0.5}, "detector": "early-bird-spline"},
    "slimming": {"method": "slimming", "budget": {"keep": 0.5, "of": "flops"}},
    "slimming-iterative": {"method": "slimming-iterative", "budget": {"keep": 0.5}},
    "snip": {"method": "snip", "budget": {"keep": 0.3}},
    "rigl": {"method": "rigl", "budget": {"keep": 0.3}},
    "film": {"film": {"steps": [2], "keeps": [0.5], "max_regions": 300}},
}
"""Small runs whose stored files are looked at: label -> what is added to TINY."""

PLANES = [(2, 8, 2), (2, 16, 16, 2), (2, 20, 20, 2), (2, 5, 5, 5, 5, 2), (2, 32, 2), (2, 3, 2)]
"""Widths of networks on the plane."""


def facts() -> dict[str, Any]:
    """Everything that is held fixed."""
    return {
        "recipes": {recipe: recipe_names(recipe) for recipe in recipes.shipped()},
        "methods": {name: method_facts(name) for name in METHODS},
        "runs": run_facts(),
        "regions": region_counts(),
        "tickets": ticket_digests(),
    }


def recipe_names(recipe: str) -> dict[str, Any]:
    """How many runs a recipe has, and digests of their folders and of which runs share a stage."""
    tables = recipes.read(recipe)
    runs = grid.expand(grid.from_dict(tables)) if "sweep" in tables else [spec.Experiment.from_dict(tables)]
    users: dict[str, list[int]] = {}
    for number, one in enumerate(runs):
        for stage in shared_stages(one):
            users.setdefault(stage, []).append(number)
    # Keys of the scheduler are stored nowhere; that the same runs share is what must not change.
    sharing = [str(numbers) for numbers in sorted(users.values())]
    return {"runs": len(runs), "folders": digest([one.folder for one in runs]), "stages": digest(sharing)}


def method_facts(name: str) -> dict[str, Any]:
    """Options with their defaults, as records store them, and what names the method's first training."""
    method = METHODS[name]()
    facts = {"options": asdict(method), "first training": method.first_training(Budget(0.5, method.units))}
    return json.loads(json.dumps(facts))


def run_facts() -> dict[str, Any]:
    """Of small runs: folder, shared trainings, ledger phases, and the keys of record, ticket and frames."""
    facts = {}
    with tempfile.TemporaryDirectory() as folder:
        for label, extra in RUNS.items():
            experiment = spec.Experiment.from_dict(
                {"name": label, "model": {"name": "convnet", "preset": "digits"}, **TINY, **extra}
            )
            quiet = ConsoleProgress(Console(file=StringIO()))
            record = run(experiment, Path(folder), device="cpu", progress=quiet, shared=Path(folder) / "shared")
            there = Path(folder) / experiment.folder
            stored = json.loads((there / "record.json").read_text(encoding="utf-8"))
            facts[label] = {
                "folder": experiment.folder,
                "shared": record.shared,
                "phases": list(record.ledger),
                "files": sorted(str(file.relative_to(there)) for file in there.rglob("*") if file.is_file()),
                "record": digest(sorted(set(_keys(stored)))),
                "ticket": _ticket_keys(there),
                "frames": _frame_names(there),
            }
    return facts


def _ticket_keys(folder: Path) -> str | None:
    file = folder / "ticket.json"
    return digest(sorted(set(_keys(json.loads(file.read_text(encoding="utf-8")))))) if file.exists() else None


def _frame_names(folder: Path) -> str | None:
    file = folder / "frames.npz"
    if not file.exists():
        return None
    with np.load(file) as arrays:
        return digest(sorted(arrays.files))


def _keys(value: Any, path: str = "") -> Iterator[str]:
    """Paths of keys; places in a list do not count."""
    if isinstance(value, Mapping):
        for key, inner in value.items():
            yield f"{path}.{key}"
            yield from _keys(inner, f"{path}.{key}")
    elif isinstance(value, list):
        for inner in value:
            yield from _keys(inner, f"{path}[]")


def region_counts() -> dict[str, int]:
    """Regions on the square [-1, 1]^2."""
    return {"-".join(map(str, widths)): len(sc.subdivide(plane(widths), sc.Slice.square(1.0))) for widths in PLANES}


def plane(widths: tuple[int, ...]) -> nn.Module:
    torch.manual_seed(0)
    layers: list[nn.Module] = []
    for inputs, outputs in itertools.pairwise(widths):
        layers += [nn.Linear(inputs, outputs), nn.ReLU()]
    return nn.Sequential(*layers[:-1]).double().eval()


def ticket_digests() -> dict[str, str]:
    """What several methods keep of fixed networks, by group."""
    networks = {
        "convnet": (build("convnet", preset="digits", input_shape=(1, 8, 8), seed=0), (1, 8, 8)),
        "vgg16": (build("vgg16", width=0.125, seed=0), (3, 32, 32)),
        "preresnet11": (build("preresnet11", width=0.5, seed=0), (3, 16, 16)),
        "resnet18": (build("resnet18", width=0.125, seed=0), (3, 32, 32)),
    }
    settings: dict[str, dict[str, Any]] = {"random": {}, "l2": {}, "slimming": {}, "spline": {"form": "paper"}}
    digests = {}
    for name, (model, shape) in networks.items():
        x = torch.randn(8, *shape, generator=torch.Generator().manual_seed(0))
        for method, options in settings.items():
            if method == "slimming" and name == "convnet":
                continue
            drawn = sc.draw(model.eval(), x, method=method, keep=0.6, **options)
            bits = [f"{group}:{''.join('01'[int(stays)] for stays in kept)}" for group, kept in drawn.keep.items()]
            digests[f"{name} {method}"] = digest(bits)
    return digests


def digest(names: list[str]) -> str:
    return hashlib.sha256("\n".join(names).encode()).hexdigest()[:16]


def differences(stored: Any, found: Any, path: str = "") -> list[str]:
    """Where two trees of facts differ, one line a place."""
    if isinstance(stored, dict) and isinstance(found, dict):
        return [
            line
            for key in sorted(stored.keys() | found.keys())
            for line in differences(stored.get(key), found.get(key), f"{path}/{key}")
        ]
    return [] if stored == found else [f"{path}: {stored} -> {found}"]


if __name__ == "__main__":
    now = json.loads(json.dumps(facts()))
    if "--write" in sys.argv:
        FILE.write_text(json.dumps(now, indent=1) + "\n", encoding="utf-8")
    else:
        lines = differences(json.loads(FILE.read_text(encoding="utf-8")), now)
        print("\n".join(lines) or "all facts as stored")
        sys.exit(1 if lines else 0)
