"""Exact affine pieces of a network along a segment between two inputs.

The same idea as in the plane, in one dimension, where it reaches deep networks. The segment starts as two vertices.
The network runs on the vertices; before each folding step, a unit that is strictly on one side of its kink at one
vertex and strictly on the other at the next changes state in between, at a point that linear interpolation gives
exactly. That point becomes a vertex, with the interpolated row in every tensor still needed. Then the activation is
affine between neighbours and may be applied to the rows.

A vertex of a deep network is a row of many megabytes in all, so the work goes depth first: when a refined stretch has
too many rows it is cut into parts, and each part runs to the end of the network before the next is built.
"""

from __future__ import annotations

import itertools
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from splinecut.errors import InputError, SplinecutError
from splinecut.geometry.graph import Graph, Node, refuse_smooth
from splinecut.geometry.line_crossings import Crossings, crossings

Progress = Callable[[float], object]


class PieceLimit(SplinecutError):
    """There are more pieces than allowed; nothing is returned rather than a part."""


@dataclass(frozen=True)
class Pieces:
    """A network along x(t) = a + t (b - a): affine between neighbouring breakpoints, in float64.

    breakpoints: t ascending, both ends of the stretch included; n pieces have n + 1 of them
    layer, unit: which unit's change of state makes each inner breakpoint (the first found, where several coincide);
                 `layer` counts in `layers`, `unit` in C order
    values:      the network's outputs at each breakpoint
    """

    breakpoints: Float[np.ndarray, " points"]
    layer: Int[np.ndarray, " inner"]
    unit: Int[np.ndarray, " inner"]
    values: Float[np.ndarray, "points outputs"]
    layers: tuple[str, ...]

    def __len__(self) -> int:
        return len(self.breakpoints) - 1

    def at(self, t: Float[np.ndarray, " points"]) -> Float[np.ndarray, "points outputs"]:
        """The outputs at any t of the stretch, by linear interpolation, which is exact."""
        return np.stack([np.interp(t, self.breakpoints, column) for column in self.values.T], axis=-1)

    def per_layer(self) -> dict[str, int]:
        """How many breakpoints each layer makes."""
        counts = np.bincount(self.layer, minlength=len(self.layers))
        return dict(zip(self.layers, counts.tolist(), strict=True))


@dataclass
class _Stretch:
    """Neighbouring vertices on their way through the network: one row per vertex in every live tensor."""

    t: Float[Tensor, " rows"]
    layer: Int[Tensor, " rows"]
    unit: Int[Tensor, " rows"]
    live: dict[str, Tensor]


def pieces_along(
    graph: Graph,
    a: Float[Tensor, " *input"],
    b: Float[Tensor, " *input"],
    start: float = 0.0,
    stop: float = 1.0,
    max_pieces: int = 5_000_000,
    tolerance: float = 1e-12,
    chunk_bytes: int = 64 * 2**20,
    progress: Progress | None = None,
) -> Pieces:
    """Every breakpoint of the network on a + t (b - a), start <= t <= stop, with its outputs there.

    A value within `tolerance` times the largest of its layer counts as zero, and breakpoints closer than `tolerance`
    times the stretch as one. Memory is about `chunk_bytes` per folding layer on the way down; `progress` is told the
    t reached. More than `max_pieces` pieces raise; the answer is never cut short.
    """
    _check(graph, a, b, start, stop)
    double = graph.to(torch.float64)
    run = _Run(double, tolerance, tolerance * (stop - start), _row_limit(double, chunk_bytes))
    done: list[tuple[Tensor, ...]] = []
    n_pieces = 0
    with torch.no_grad():
        for stretch in run.descend(1, _first_stretch(double, a, b, start, stop)):
            n_pieces += len(stretch.t) - 1
            if n_pieces > max_pieces:
                raise PieceLimit(
                    f"more than {max_pieces:,} pieces up to t = {float(stretch.t[-1]):.4g}; "
                    "raise max_pieces or shorten the stretch with start and stop"
                )
            columns = (stretch.t, stretch.layer, stretch.unit, stretch.live[double.output].flatten(1))
            # Stretches share their end vertices: all but the first leave out the one they begin with.
            done.append(tuple(column[1:] if done else column for column in columns))
            if progress is not None:
                progress(float(stretch.t[-1]))
    t, layer, unit, values = (torch.cat(column).numpy() for column in zip(*done, strict=True))
    return Pieces(t, layer[1:-1], unit[1:-1], values, tuple(folding.name for folding in graph.layers))


def _first_stretch(graph: Graph, a: Tensor, b: Tensor, start: float, stop: float) -> _Stretch:
    t = torch.tensor([start, stop], dtype=torch.float64)
    weight = t.view(2, *[1] * a.dim())
    ends = (1 - weight) * a.detach().double() + weight * b.detach().double()
    nowhere = torch.full((2,), -1)
    return _Stretch(t, nowhere, nowhere, {graph.nodes[0].name: ends})


@dataclass(frozen=True)
class _Run:
    graph: Graph
    tolerance: float  # of values, relative to the layer
    width: float  # of t: crossings closer than this are one
    row_limit: int

    def descend(self, place: int, stretch: _Stretch, is_refined: bool = False) -> Iterator[_Stretch]:
        """Runs the stretch from node `place` to the output, in parts where it grows too long."""
        for here in range(place, len(self.graph.nodes)):
            node = self.graph.nodes[here]
            # A part that was cut off here has its crossings already.
            if node.role != "affine" and not (is_refined and here == place):
                crossings = self.crossings(node, stretch)
                parts = _parts(len(stretch.t) + len(crossings.left), self.row_limit)
                if len(parts) > 1:
                    for first, last in parts:
                        yield from self.descend(here, _refine(node, stretch, crossings, first, last), is_refined=True)
                    return
                stretch = _refine(node, stretch, crossings, *parts[0])
            stretch.live[node.name] = self.graph.step(node, stretch.live)
            for name in {*node.inputs, node.name}:
                if self.graph.last_use.get(name, -1) <= here:
                    del stretch.live[name]
        yield stretch

    def crossings(self, node: Node, stretch: _Stretch) -> Crossings:
        """Where the units of a folding node change state along the stretch."""
        layers = [(place, layer) for place, layer in enumerate(self.graph.layers) if layer.node == node.name]
        values = torch.cat([stretch.live[name].flatten(1) for name in node.inputs], dim=1)
        return crossings(node, layers, values, stretch.t, self.tolerance, self.width)


def _refine(node: Node, stretch: _Stretch, crossings: Crossings, first: int, last: int) -> _Stretch:
    """Rows first..last of the stretch with the crossings inserted; the row of a crossing is interpolated."""
    place = crossings.left + 1 + torch.arange(len(crossings.left))
    n_rows = len(stretch.t) + len(place)
    if len(place) == 0 and last - first == n_rows:
        return stretch
    is_new = torch.zeros(n_rows, dtype=torch.bool).index_fill_(0, place, True)
    left = torch.empty(n_rows, dtype=torch.long)
    left[place], left[~is_new] = crossings.left, torch.arange(len(stretch.t))
    tau = torch.zeros(n_rows, dtype=torch.float64).index_copy_(0, place, crossings.tau)
    left, tau, is_new = left[first:last], tau[first:last], is_new[first:last]

    def rows(value: Tensor) -> Tensor:
        taken = value[left]
        weight = tau[is_new].view(-1, *[1] * (value.dim() - 1))
        taken[is_new] = torch.lerp(value[left[is_new]], value[left[is_new] + 1], weight)
        return taken

    live = {name: rows(value) for name, value in stretch.live.items()}
    if node.role == "fold":
        row = place[crossings.snap_vertex] - first
        is_here = (row >= 0) & (row < last - first)
        values = live[node.inputs[0]].flatten(1)
        # Exactly on the kink: an interpolated value off by rounding would have a side, and cross once more.
        values[row[is_here], crossings.snap_unit[is_here]] = crossings.snap_kink[is_here]
        live[node.inputs[0]] = values.view_as(live[node.inputs[0]])
    layer, unit = stretch.layer[left], stretch.unit[left]
    chosen = (place >= first) & (place < last)
    layer[is_new], unit[is_new] = crossings.layer[chosen], crossings.unit[chosen]
    return _Stretch(rows(stretch.t), layer, unit, live)


def _parts(n_rows: int, limit: int) -> list[tuple[int, int]]:
    """Ranges of about equal length, at most `limit` intervals each, that share their end rows."""
    n_parts = max(1, -(-(n_rows - 1) // limit))
    ends = [round(i * (n_rows - 1) / n_parts) for i in range(n_parts + 1)]
    return [(first, last + 1) for first, last in itertools.pairwise(ends)]


def _row_limit(graph: Graph, chunk_bytes: int) -> int:
    """How many rows fit: a row is at its widest where the most values are live at once."""
    size = {node.name: 8 * node.size for node in graph.nodes}
    widest, live = 0, set()
    for place, node in enumerate(graph.nodes):
        live.add(node.name)
        widest = max(widest, sum(size[name] for name in live))
        live -= {name for name in live if graph.last_use.get(name, -1) <= place}
    # Some rows at least: parts share their end rows, and tiny parts would compute little else.
    return max(16, chunk_bytes // max(widest, 1))


def _check(graph: Graph, a: Tensor, b: Tensor, start: float, stop: float) -> None:
    refuse_smooth(graph)
    for name, end in (("a", a), ("b", b)):
        if tuple(end.shape) != graph.input_shape:
            raise InputError(
                f"{name} must be one input of shape {graph.input_shape}, got {tuple(end.shape)}; "
                "leave out the batch axis"
            )
    if not bool((a != b).any()):
        raise InputError("a and b are the same input, so there is no segment between them; pass two different ones")
    if not start < stop:
        raise InputError(f"start must be below stop, got {start} and {stop}; the whole segment is 0 to 1")


def __getattr__(name: str) -> Any:
    """`estimate_pieces` and `Estimate`, which 0.1 had here."""
    if name in ("estimate_pieces", "Estimate"):
        from splinecut.geometry import estimates

        text = f"splinecut.geometry.line.{name} is now splinecut.geometry.estimates.{name}; the old name goes in 0.3"
        warnings.warn(text, DeprecationWarning, stacklevel=2)
        return getattr(estimates, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
