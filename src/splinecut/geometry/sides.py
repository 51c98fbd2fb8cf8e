"""Which side of a cut a point lies on, decided once: above the kink is on, on the kink and below is off."""

from __future__ import annotations

from jaxtyping import Bool, Float
from torch import Tensor

from splinecut.geometry.graph import Graph


def is_on(values: Float[Tensor, "points ..."], kink: float = 0.0) -> Bool[Tensor, "points ..."]:
    """True where a unit's input is above its kink; the only place where `>` is chosen over `>=`."""
    return values > kink


def activation_bits(graph: Graph, x: Float[Tensor, "points ..."]) -> list[Bool[Tensor, "points units"]]:
    """Which units are on at each point: one table per layer of `graph.layers` that has bits, units in C order."""
    layers = [layer for layer in graph.layers if layer.bits]
    sources = [graph[layer.node].inputs[0] for layer in layers]
    values = graph.trail(x, sources)
    return [is_on(values[source], layer.kink).flatten(1) for source, layer in zip(sources, layers, strict=True)]
