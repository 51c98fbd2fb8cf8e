"""Checks a partition against the network it claims to describe, and says what fails and where."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Float

from splinecut.errors import InputError
from splinecut.geometry.graph import Graph
from splinecut.geometry.partition import Partition
from splinecut.geometry.subdivision.polygons import next_place
from splinecut.geometry.subdivision.run import magnitudes, rows_of

_SLACK = 1e-9  # relative; a thousand times the tolerance vertices are decided with
_SHOWN = 10  # the worst of each kind
_BYTES = 1 << 28  # of values kept at once while points are run


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
    code      the code of a region holds at its centroid, and at its corners up to zero: units are affine within a
              region as long as those before them keep their side, so then the code holds everywhere in it
    cut       an edge lies where its unit is zero
    affine    the affine map of a region gives the network's output at its centroid
    neighbour the unit of an edge is on on one side and off on the other

    Costs two forward passes per region.
    """
    if graph.layers != partition.layers:
        raise InputError("the partition was made from a network with other layers; pass the model it was made from")
    checks: tuple[Callable[[Partition, Graph], Iterator[Finding]], ...] = (
        _areas,
        _convexity,
        _overlaps,
        _seams,
        _at_vertices,
        _at_centroids,
        _neighbours,
    )
    with torch.no_grad():
        findings = tuple(finding for check in checks for finding in check(partition, graph))
    return Findings(findings, len(partition))


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
    located = partition.locate(partition.centroids)
    is_solid = partition.areas > 1e-18 * partition.slice.area  # thinner ones have no inside that rounding can tell
    elsewhere = (located != np.arange(len(partition))) & is_solid
    yield from _worst("overlap", "region", np.where(elsewhere, partition.areas, 0.0), partition.centroids)


def _seams(partition: Partition, _: Graph) -> Iterator[Finding]:
    inside = partition.edge_layer >= 0
    start, stop = partition.indices, partition.indices[next_place(partition.offsets)]
    names = np.minimum(start, stop) * len(partition.vertices) + np.maximum(start, stop)
    edge, count = np.unique(names, return_inverse=True, return_counts=True)[1:]
    # Sides of the window belong to one region.
    wrong = np.abs(count[edge] - np.where(inside, 2, 1))
    yield from _worst("seam", "place", wrong, partition.vertices[start])


def _at_vertices(partition: Partition, graph: Graph) -> Iterator[Finding]:
    """value, code, cut."""
    start, stop = partition.indices, partition.indices[next_place(partition.offsets)]
    by_start, by_stop = np.argsort(start, kind="stable"), np.argsort(stop, kind="stable")
    region = np.repeat(np.arange(len(partition)), np.diff(partition.offsets))
    wrong_value, scale = np.zeros(len(partition.vertices)), 1.0
    wrong_code, off_cut = np.zeros(len(partition)), np.zeros(len(start))
    for first, values in _values(partition, graph, partition.vertices):
        truth = values.outputs
        here = slice(first, first + len(truth))
        wrong_value[here] = np.abs(truth - partition.outputs[here]).max(axis=1)
        scale = max(scale, float(np.abs(truth).max()))
        leaving, arriving = _within(by_start, start, here), _within(by_stop, stop, here)
        for code, (number, rows, zero) in zip(partition.codes.packed, values.folds, strict=True):
            sizes = _against(rows, start[leaving] - first, code[region[leaving]], zero)
            np.maximum.at(wrong_code, region[leaving], sizes)
            for end, places in ((start, leaving), (stop, arriving)):
                mine = places[partition.edge_layer[places] == number]
                unit = partition.edge_unit[mine]
                size = np.abs(rows[end[mine] - first, unit])
                np.maximum.at(off_cut, mine, np.where(size > zero[unit], size, 0.0))
    yield from _worst("value", "vertex", wrong_value, partition.vertices, _SLACK * scale)
    yield from _worst("code", "region", wrong_code, partition.centroids)
    yield from _worst("cut", "place", off_cut, partition.vertices[start])


def _at_centroids(partition: Partition, graph: Graph) -> Iterator[Finding]:
    """affine, code."""
    wrong_map, wrong_code, scale = np.zeros(len(partition)), np.zeros(len(partition)), 1.0
    for first, values in _values(partition, graph, partition.centroids):
        here = slice(first, first + len(values.outputs))
        u, v = partition.centroids[here].T[..., None]
        a, b, c = np.moveaxis(partition.affine[here], 2, 0)
        wrong_map[here] = np.abs(a * u + b * v + c - values.outputs).max(axis=1)
        scale = max(scale, float(np.abs(values.outputs).max()))
        for code, (_, rows, zero) in zip(partition.codes.packed, values.folds, strict=True):
            sizes = _against(rows, np.arange(len(rows)), code[here], zero)
            wrong_code[here] = np.maximum(wrong_code[here], sizes)
    yield from _worst("affine", "region", wrong_map, partition.centroids, _SLACK * scale)
    yield from _worst("code", "region", wrong_code, partition.centroids)


class _Values(NamedTuple):
    outputs: Float[np.ndarray, "points outputs"]
    folds: list[tuple[int, np.ndarray, np.ndarray]]  # (layer, values above its kink, what counts as zero)


def _values(partition: Partition, graph: Graph, uv: np.ndarray) -> Iterator[tuple[int, _Values]]:
    """(first, values) of a few points at a time: as many as keep the values of all layers within bounds."""
    size = magnitudes(graph, partition.slice)
    folds = [(number, layer) for number, layer in enumerate(graph.layers) if layer.bits]
    sources = {graph[layer.node].inputs[0] for _, layer in folds}
    # A few at least: one wide layer must not bring the number of points to zero.
    n_rows = max(16, _BYTES // (8 * sum(node.size for node in graph.nodes)))
    for first in range(0, len(uv), n_rows):
        values = graph.trail(partition.slice.embed(uv[first : first + n_rows]), {*sources, graph.output})
        findings = [
            (number, rows_of(values[graph[layer.node].inputs[0]]) - layer.kink, _zero(size[layer.node], layer.kink))
            for number, layer in folds
        ]
        yield first, _Values(rows_of(values[graph.output]), findings)


def _zero(size: np.ndarray, kink: float) -> np.ndarray:
    return _SLACK * (size + abs(kink))


def _within(order: np.ndarray, end: np.ndarray, here: slice) -> np.ndarray:
    """The places whose vertex lies in a range; `order` sorts the places by vertex."""
    low, high = np.searchsorted(end[order], [here.start, here.stop])
    return order[low:high]


def _against(rows: np.ndarray, which: np.ndarray, code: np.ndarray, zero: np.ndarray) -> Float[np.ndarray, " which"]:
    """How far the worst unit of row which[i] lies on the other side than code[i] says; 0 when none does."""
    # Values within `zero` may have either bit: corners lie on cuts.
    above, below = np.packbits(rows > zero, axis=1), np.packbits(rows < -zero, axis=1)
    wrong = (below[which] & code) | (above[which] & ~code)
    sizes = np.zeros(len(which))
    for k in np.flatnonzero(wrong.any(axis=1)).tolist():
        units = np.unpackbits(wrong[k], count=rows.shape[1]).astype(bool)
        sizes[k] = np.abs(rows[which[k], units]).max()
    return sizes


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
