"""Checks a partition against the network it claims to describe, and says what fails and where."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Float, Int

from splinecut.errors import InputError
from splinecut.geometry.graph import Graph
from splinecut.geometry.partition import Partition
from splinecut.geometry.polygons import next_place
from splinecut.geometry.sides import is_on
from splinecut.geometry.vertices import magnitudes

_SLACK = 1e-9  # relative; a thousand times the tolerance vertices are decided with
_SHOWN = 10  # the worst of each kind
_ROWS = 4096  # points run at once


class Finding(NamedTuple):
    """One thing that is wrong: its kind, the region, vertex or edge, where that lies in (u, v), and by how much."""

    kind: str
    place: str
    uv: tuple[float, float]
    magnitude: float

    def __str__(self) -> str:
        return f"{self.kind}: {self.place} at ({self.uv[0]:.6g}, {self.uv[1]:.6g}), off by {self.magnitude:.3g}"


@dataclass(frozen=True)
class Findings:
    """What `certify` found; a sequence that is empty, and `ok`, when nothing is wrong."""

    found: tuple[Finding, ...]
    n_regions: int

    @property
    def ok(self) -> bool:
        return not self.found

    def __len__(self) -> int:
        return len(self.found)

    def __iter__(self) -> Iterator[Finding]:
        return iter(self.found)

    def __str__(self) -> str:
        if self.ok:
            return f"certified: {self.n_regions:,} regions"
        return "\n".join(map(str, self.found))


def certify(partition: Partition, graph: Graph) -> Findings:
    """The worst violations of each kind, none when the partition is right:

    area      the areas of the regions sum to the window's
    convex    every region turns left at every corner
    overlap   the centroid of a region lies in that region and no other
    seam      every edge inside the window belongs to two regions
    value     the output stored at a vertex is the network's
    affine    the affine map of a region gives the network's output at its centroid
    code      the code of a region holds at its centroid and near its corners
    cut       an edge lies where its unit is zero
    neighbour the unit of an edge is on on one side and off on the other
    """
    if graph.layers != partition.layers:
        raise InputError("the partition was made from a network with other layers; pass the model it was made from")
    checks: tuple[Callable[[Partition, Graph], Iterator[Finding]], ...] = (
        _areas,
        _convexity,
        _overlaps,
        _seams,
        _outputs,
        _affine,
        _codes,
        _cuts,
        _neighbours,
    )
    with torch.no_grad():
        found = tuple(finding for check in checks for finding in check(partition, graph))
    return Findings(found, len(partition))


def _worst(
    kind: str, what: str, size: np.ndarray, uv: np.ndarray, allowed: np.ndarray | float = 0.0
) -> Iterator[Finding]:
    """Findings for the entries that exceed what is allowed (or are not numbers), largest first."""
    bad = np.flatnonzero(~(size <= allowed))
    for index in bad[np.argsort(-size[bad])][:_SHOWN].tolist():
        yield Finding(kind, f"{what} {index}", (float(uv[index, 0]), float(uv[index, 1])), float(size[index]))


def _areas(partition: Partition, _: Graph) -> Iterator[Finding]:
    excess = abs(partition.areas.sum() / partition.slice.area - 1)
    yield from _worst("area", "window", np.array([excess]), partition.slice.window, _SLACK)
    yield from _worst("area", "region", -partition.areas, partition.centroids, _SLACK * partition.slice.area)


def _convexity(partition: Partition, _: Graph) -> Iterator[Finding]:
    onward = next_place(partition.offsets)
    points = partition.vertices[partition.indices]
    step = points[onward] - points
    turn = step[:, 0] * step[onward, 1] - step[:, 1] * step[onward, 0]
    diameter = np.ptp(partition.slice.window, axis=0).max()
    yield from _worst("convex", "place", -turn, points, 1e-12 * diameter * np.hypot(*step.T))


def _overlaps(partition: Partition, _: Graph) -> Iterator[Finding]:
    found = partition.locate(partition.centroids)
    is_solid = partition.areas > 1e-18 * partition.slice.area  # thinner ones have no inside that rounding can tell
    elsewhere = (found != np.arange(len(partition))) & is_solid
    yield from _worst("overlap", "region", np.where(elsewhere, partition.areas, 0.0), partition.centroids)


def _seams(partition: Partition, _: Graph) -> Iterator[Finding]:
    inside = partition.edge_layer >= 0
    start, stop = partition.indices, partition.indices[next_place(partition.offsets)]
    names = np.minimum(start, stop) * len(partition.vertices) + np.maximum(start, stop)
    edge, count = np.unique(names, return_inverse=True, return_counts=True)[1:]
    wrong = np.abs(count[edge] - np.where(inside, 2, 1))
    yield from _worst("seam", "place", wrong, partition.vertices[start])


def _run(partition: Partition, graph: Graph, uv: np.ndarray) -> Float[np.ndarray, "points outputs"]:
    parts = [graph.run(partition.slice.embed(uv[k : k + _ROWS])).reshape(-1, _outputs_of(graph)) for k in _starts(uv)]
    return torch.cat(parts).numpy()


def _starts(uv: np.ndarray) -> range:
    return range(0, len(uv), _ROWS)


def _outputs_of(graph: Graph) -> int:
    return graph[graph.output].size


def _outputs(partition: Partition, graph: Graph) -> Iterator[Finding]:
    truth = _run(partition, graph, partition.vertices)
    error = np.abs(truth - partition.outputs).max(axis=1)
    yield from _worst("value", "vertex", error, partition.vertices, _SLACK * (1 + np.abs(truth).max()))


def _affine(partition: Partition, graph: Graph) -> Iterator[Finding]:
    truth = _run(partition, graph, partition.centroids)
    u, v = partition.centroids.T[..., None]
    a, b, c = np.moveaxis(partition.affine, 2, 0)
    error = np.abs(a * u + b * v + c - truth).max(axis=1)
    yield from _worst("affine", "region", error, partition.centroids, _SLACK * (1 + np.abs(truth).max()))


def _signs(
    partition: Partition, graph: Graph, uv: np.ndarray, look: Callable[[int, int, np.ndarray, np.ndarray], None]
) -> None:
    """Calls look(layer, first point, values above the kink, what counts as zero) for each fold, some points at once."""
    size = magnitudes(graph, partition.slice)
    folds = [(number, layer) for number, layer in enumerate(graph.layers) if layer.bits]
    for start in _starts(uv):
        sources = {graph[layer.node].inputs[0] for _, layer in folds}
        values = graph.trail(partition.slice.embed(uv[start : start + _ROWS]), sources)
        for number, layer in folds:
            rows = values[graph[layer.node].inputs[0]].flatten(1).numpy() - layer.kink
            look(number, start, rows, _SLACK * (size[layer.node] + abs(layer.kink)))


def _codes(partition: Partition, graph: Graph) -> Iterator[Finding]:
    """The centroid, and nine tenths of the way from it to every corner."""
    region = np.repeat(np.arange(len(partition)), np.diff(partition.offsets))
    near = 0.1 * partition.centroids[region] + 0.9 * partition.vertices[partition.indices]
    uv = np.concatenate([partition.centroids, near])
    region = np.concatenate([np.arange(len(partition)), region])
    worst = np.zeros(len(uv))
    place = {number: k for k, number in enumerate(k for k, layer in enumerate(graph.layers) if layer.bits)}

    def look(number: int, start: int, rows: np.ndarray, zero: np.ndarray) -> None:
        packed = partition.codes.packed[place[number]][region[start : start + len(rows)]]
        stored = np.unpackbits(packed, axis=1, count=rows.shape[1]).astype(bool)
        wrong = (is_on(torch.from_numpy(rows)).numpy() != stored) & (np.abs(rows) > zero)
        worst[start : start + len(rows)] = np.maximum(
            worst[start : start + len(rows)], np.where(wrong, np.abs(rows), 0).max(axis=1)
        )

    _signs(partition, graph, uv, look)
    yield from _worst("code", "region", np.maximum.reduceat(*_by_region(worst, region)), partition.centroids)


def _by_region(values: np.ndarray, region: Int[np.ndarray, " points"]) -> tuple[np.ndarray, np.ndarray]:
    order = np.argsort(region, kind="stable")
    return values[order], np.searchsorted(region[order], np.arange(region.max() + 1))


def _cuts(partition: Partition, graph: Graph) -> Iterator[Finding]:
    start, stop = partition.indices, partition.indices[next_place(partition.offsets)]
    off = np.zeros(len(start))

    def look(number: int, first: int, rows: np.ndarray, zero: np.ndarray) -> None:
        for end in (start, stop):
            mine = np.flatnonzero((partition.edge_layer == number) & (end >= first) & (end < first + len(rows)))
            unit = partition.edge_unit[mine]
            size = np.abs(rows[end[mine] - first, unit])
            off[mine] = np.maximum(off[mine], np.where(size > zero[unit], size, 0))

    _signs(partition, graph, partition.vertices, look)
    yield from _worst("cut", "place", off, partition.vertices[start])


def _neighbours(partition: Partition, graph: Graph) -> Iterator[Finding]:
    pairs = partition.neighbours()
    coded = [number for number, layer in enumerate(graph.layers) if layer.bits]
    same = np.zeros(len(pairs.regions))
    for packed, number in zip(partition.codes.packed, coded, strict=True):
        mine = np.flatnonzero(pairs.layer == number)
        unit = pairs.unit[mine]
        bits = (packed[pairs.regions[mine], unit[:, None] // 8] >> (7 - unit[:, None] % 8)) & 1
        same[mine] = bits[:, 0] == bits[:, 1]
    yield from _worst("neighbour", "edge", same, partition.vertices[pairs.ends].mean(axis=1))
