"""When a network may be pruned: its partition has settled once the codes of a fixed probe stop changing.

You et al. (2022), Sec. 3.3: the code of a sample names the region it lies in; the distance between two states of a
network in training is the share of differing bits. Training may stop when the distances in a short queue are all below
a threshold. The verdict does not look at any pruning method or ratio.
"""

from __future__ import annotations

import copy
import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor, nn

from splinecut.errors import InputError, unknown
from splinecut.geometry.codes import Codes, codes, distance, distance_matrix
from splinecut.geometry.graph import Graph
from splinecut.networks.model_state import unwrapped
from splinecut.networks.trace import trace
from splinecut.pruning.detection_rules import DETECTION_RULES

Compare = Callable[[Sequence[Codes], int], "list[float] | None"]
"""(codes so far, window) -> the distances that must all be small, or None while there are too few codes."""


def consecutive(seen: Sequence[Codes], window: int) -> list[float] | None:
    """The last `window` distances between one observation and the next."""
    if len(seen) <= window:
        return None
    recent = seen[-window - 1 :]
    return [distance(a, b) for a, b in itertools.pairwise(recent)]


def newest_against_each(seen: Sequence[Codes], window: int) -> list[float] | None:
    """The distances from the newest observation to each of the `window` before it."""
    if len(seen) <= window:
        return None
    return [distance(old, seen[-1]) for old in seen[-window - 1 : -1]]


COMPARE: dict[str, Compare] = {"paper": consecutive, "authors": newest_against_each}
"""Which distances each rule of `detection_rules` looks at. The functions' names are stored with shared trainings."""


@dataclass(frozen=True)
class Verdict:
    """What an observation said. `distance` is the largest one that counts, None until there are enough."""

    drawn: bool
    distance: float | None
    step: int

    def __bool__(self) -> bool:
        return self.drawn


class EarlyBird:
    """Watches a network's partition on a fixed probe and says when it has settled.

        detector = EarlyBird(probe)
        for epoch in range(epochs):
            train_one_epoch(model)
            if detector.observe(model).drawn:
                break

    probe:      (samples, *input), kept as given: training, test or random images, or `image_grid(a, b)`.
    rule:       "paper" (two consecutive distances) or "authors" (newest against each of the previous three), which
                set `threshold` and `window` unless these are given; or a function like `consecutive`.
    every:      "epoch" when `observe` is called once an epoch; n when it is called every step and is to look at each
                n-th call only.
    per_layer:  the most units of a layer that are watched, drawn once by `seed`; None watches all.
    """

    def __init__(
        self,
        probe: Float[Tensor, "samples *input"],
        rule: str | Compare = "paper",
        threshold: float | None = None,
        window: int | None = None,
        every: Literal["epoch"] | int = "epoch",
        per_layer: int | None = 4096,
        seed: int = 0,
    ) -> None:
        if isinstance(rule, str) and rule not in COMPARE:
            raise unknown("rule", rule, COMPARE, "or pass a function of (codes, window)")
        self.compare = COMPARE[rule] if isinstance(rule, str) else rule
        published = DETECTION_RULES[rule if isinstance(rule, str) else "paper"]
        self.rule = published.with_overrides(threshold, window)
        if not 0 < self.rule.threshold <= 1:
            raise InputError(f"threshold must be in (0, 1], got {threshold}; the paper uses 0.15")
        if self.rule.window < 1:
            raise InputError(f"window must be at least 1, got {window}; the paper uses 2")
        if every != "epoch" and (not isinstance(every, int) or every < 1):
            raise InputError(f"every must be 'epoch' or a number of steps, got {every!r}")
        self.probe, self.every, self.per_layer, self.seed = probe, every, per_layer, seed
        self.seen: list[Codes] = []
        self.steps: list[int] = []
        self.calls = 0
        self.verdict = Verdict(drawn=False, distance=None, step=0)
        self._graph: Graph | None = None

    def facts(self) -> dict[str, Any]:
        """What decides the verdict beside the probe's inputs, as plain JSON."""
        rule = {"compare": self.compare.__name__, "threshold": self.rule.threshold, "window": self.rule.window}
        return {**rule, "every": self.every, "per_layer": self.per_layer, "seed": self.seed, "probe": len(self.probe)}

    def observe(self, model: nn.Module) -> Verdict:
        """Looks at `model`, which is left as found, and says whether its partition has settled.

        Once drawn it stays drawn; later observations still enter the history.
        """
        self.calls += 1
        if self.every != "epoch" and self.calls % self.every:
            return self.verdict
        self.seen.append(codes(self._trace(model), self.probe, per_layer=self.per_layer, seed=self.seed))
        self.steps.append(self.calls)
        distances = self.compare(self.seen, self.rule.window)
        largest = max(distances) if distances else None
        has_settled = self.verdict.drawn or (largest is not None and largest < self.rule.threshold)
        self.verdict = Verdict(has_settled, largest, self.calls)
        return self.verdict

    def matrix(self, normalised: bool = False) -> Float[np.ndarray, "observations observations"]:
        """The distance between every two observations; `normalised` stretches it to [0, 1] as the paper's figure does.

        The detector itself always judges the raw shares.
        """
        matrix = distance_matrix(self.seen)
        if not normalised or not matrix.size:
            return matrix
        return (matrix - matrix.min()) / max(float(np.ptp(matrix)), np.finfo(float).tiny)

    def by_layer(self) -> dict[str, list[float]]:
        """For every layer, the distance between each observation and the next."""
        rows = [distance(a, b, by_layer=True) for a, b in zip(self.seen, self.seen[1:], strict=False)]
        return {layer: [row[layer] for row in rows] for layer in (self.seen[0].layers if self.seen else ())}

    def _trace(self, model: nn.Module) -> Graph:
        """The graph of `model`: traced once, then only its weights are exchanged."""
        model = unwrapped(model)
        if self._graph is not None:
            try:  # exchanging weights is cheap, tracing is not, and an observation may come every step
                return self._graph.with_state(model.state_dict())
            except InputError:
                self._graph = None  # weights derived from parameters, or another network: trace again
        like = next(p for p in model.parameters() if p.is_floating_point())
        # A copy: tracing runs the network in eval mode, and this one is in the middle of a training.
        self._graph = trace(copy.deepcopy(model).eval(), self.probe[:1]).to(like.dtype, like.device)
        return self._graph

    def state(self) -> dict[str, Any]:
        """What a resumed run needs: everything observed so far, as numbers, strings and tensors."""
        first = self.seen[0] if self.seen else None
        return {
            "calls": self.calls,
            "steps": self.steps,
            "verdict": [self.verdict.drawn, self.verdict.distance, self.verdict.step],
            "layers": list(first.layers) if first else [],
            "n_units": list(first.n_units) if first else [],
            "units": [torch.from_numpy(units) for units in first.units] if first else [],
            "packed": [[torch.from_numpy(layer) for layer in one.packed] for one in self.seen],
        }

    def restore(self, state: dict[str, Any]) -> None:
        """Takes back what `state` gave."""
        layers, n_units = tuple(state["layers"]), tuple(state["n_units"])
        units = tuple(watched.numpy() for watched in state["units"])
        self.calls, self.steps = state["calls"], list(state["steps"])
        self.verdict = Verdict(*state["verdict"])
        self.seen = [Codes(layers, n_units, units, tuple(p.numpy() for p in packed)) for packed in state["packed"]]


def image_grid(
    a: Float[Tensor, "*input"], b: Float[Tensor, "*input"], side: int = 100
) -> Float[Tensor, "samples *input"]:
    """The authors' probe: alpha a + beta b for a side x side grid of alpha, beta in [0, 1]."""
    weights = torch.linspace(0, 1, side, dtype=a.dtype, device=a.device)
    alpha, beta = torch.meshgrid(weights, weights, indexing="ij")
    axes = (-1, *([1] * a.dim()))
    return alpha.reshape(axes) * a + beta.reshape(axes) * b
