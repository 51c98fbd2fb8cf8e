"""A pruning method of one's own, in one file: checked, drawn, and compared in a sweep on two workers.

python examples/own_method.py
"""

from __future__ import annotations

import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

import splinecut as sc
from splinecut.networks import models
from splinecut.pruning import Evidence, Method, consumer_layers

RECIPE = """
model = { name = "convnet", preset = "digits", width = 0.5 }
data = { name = "digits", train_size = 200 }
training = { epochs = 2, batch_size = 50 }
[sweep]
seeds = [0]
keeps = [0.5]
methods = ["l2", { label = "outgoing", name = "own_method:Outgoing", power = 2.0 }]
"""


@dataclass(frozen=True)
class Outgoing(Method):
    """The length of each unit's outgoing weights, to a power: what the next layer would miss."""

    reference = "an example"
    power: float = 1.0

    def score(self, evidence: Evidence, budget: sc.Budget) -> dict[str, np.ndarray]:
        scores = {}
        for group in evidence.groups:  # one number a unit, larger stays
            consumers = consumer_layers(evidence.model, group)
            squares = sum(layer.weight(evidence.model).square().sum((1, 2)) for layer in consumers)
            scores[group.name] = torch.as_tensor(squares).sqrt().numpy() ** self.power
        return scores


if __name__ == "__main__":
    from own_method import Outgoing  # by the name that workers import it by, not as part of __main__

    from splinecut.cli.app import app
    from splinecut.testing import check_method

    check_method(Outgoing)
    model = models.build("convnet", preset="digits", seed=0).eval()
    print(sc.draw(model, torch.randn(8, 1, 8, 8), method=Outgoing(power=2.0), keep=0.5))
    with tempfile.TemporaryDirectory() as folder:
        recipe = Path(folder) / "own.toml"
        recipe.write_text(RECIPE)
        sys.argv = ["splinecut", "sweep", str(recipe), "--workers", "2", "--out", folder]
        app()
