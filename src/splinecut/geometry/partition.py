"""The exact partition of a window into regions on which the network is affine: `subdivide` and `Partition`."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, fields
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch
from jaxtyping import Float, Int, Int64, UInt64
from numpy.typing import ArrayLike

from splinecut.errors import InputError
from splinecut.files import write_atomically
from splinecut.geometry.codes import Codes
from splinecut.geometry.graph import Graph, Layer, refuse_smooth
from splinecut.geometry.slices import Slice
from splinecut.geometry.subdivision import affine_fit as fitting
from splinecut.geometry.subdivision import point_location as locating
from splinecut.geometry.subdivision import polygons
from splinecut.geometry.subdivision import run as vertices

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from splinecut.geometry.boundary import Boundary, Kinks

SCHEMA = 1  # of saved partitions


class Neighbours(NamedTuple):
    """Pairs of regions that share an edge, one row per edge inside the window."""

    regions: Int64[np.ndarray, "edges 2"]
    ends: Int64[np.ndarray, "edges 2"]  # vertices
    layer: Int64[np.ndarray, " edges"]
    unit: Int64[np.ndarray, " edges"]


@dataclass(frozen=True, eq=False)
class Partition:
    """Regions of a window; region r has the corners vertices[indices[offsets[r]:offsets[r + 1]]], counter-clockwise.

    vertices: (V, 2) in (u, v), shared by the regions that meet there.
    outputs: (V, outputs) the network's value at each vertex.
    edge_layer, edge_unit: for each place in `indices`, whose cut the edge from there to the next place lies on:
        an entry of `layers` and a unit in C order; layer -1 is side `unit` of the window.
    codes: which units are on in each region.
    thin, thin_affine: regions too thin for their corners to tell the affine map, and their maps by differentiation.
    """

    slice: Slice
    layers: tuple[Layer, ...]
    vertices: Float[np.ndarray, "vertices 2"]
    outputs: Float[np.ndarray, "vertices outputs"]
    offsets: Int64[np.ndarray, " regions_and_one"]
    indices: Int64[np.ndarray, " places"]
    edge_layer: Int[np.ndarray, " places"]
    edge_unit: Int[np.ndarray, " places"]
    codes: Codes
    thin: Int64[np.ndarray, " thin"]
    thin_affine: Float[np.ndarray, "thin outputs 3"]

    def __len__(self) -> int:
        """The number of regions."""
        return len(self.offsets) - 1

    def __repr__(self) -> str:
        return f"Partition({len(self):,} regions, {len(self.vertices):,} vertices, {len(self.layers)} folding layers)"

    def code_hashes(self) -> UInt64[np.ndarray, " regions"]:
        """A number for each region that follows from its code alone: equal wherever the code is, for colours."""
        # The column of zeros: networks without folding layers have no code to add up.
        code = np.concatenate([np.zeros((len(self), 1), np.uint8), *self.codes.packed], axis=1)
        multipliers = np.random.default_rng(0).integers(1, 2**31, size=code.shape[1], dtype=np.uint64)
        return (code * multipliers).sum(axis=1, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)

    @cached_property
    def _measures(self) -> tuple[np.ndarray, np.ndarray]:
        return polygons.areas_and_centroids(self.offsets, self.indices, self.vertices)

    @property
    def areas(self) -> Float[np.ndarray, " regions"]:
        """Area of each region in (u, v)."""
        return self._measures[0]

    @property
    def centroids(self) -> Float[np.ndarray, "regions 2"]:
        """Centroid of each region in (u, v); strictly inside, since regions are convex."""
        return self._measures[1]

    @cached_property
    def affine(self) -> Float[np.ndarray, "regions outputs 3"]:
        """The network on each region: output = a u + b v + c, with (a, b, c) in the last axis."""
        maps = fitting.affine_maps(self.offsets, self.indices, self.vertices, self.outputs)
        maps[self.thin] = self.thin_affine
        return maps

    def corners(self, region: int) -> Float[np.ndarray, "corners 2"]:
        """The corners of one region, counter-clockwise."""
        return self.vertices[self.indices[self.offsets[region] : self.offsets[region + 1]]]

    @cached_property
    def _grid(self) -> locating.Grid:
        return locating.grid_over(self.offsets, self.indices, self.vertices)

    def locate(self, uv: ArrayLike) -> Int64[np.ndarray, " points"]:
        """The region that holds each point (points, 2); -1 outside the window."""
        points = np.atleast_2d(np.asarray(uv, dtype=np.float64))
        if points.ndim != 2 or points.shape[1] != 2:
            raise InputError(f"points must be (n, 2) coordinates (u, v), got shape {points.shape}")
        return locating.locate(points, self._grid, self.offsets, self.indices, self.vertices)

    def neighbours(self) -> Neighbours:
        """Every edge inside the window with the two regions beside it and the (layer, unit) that cuts there."""
        region = np.repeat(np.arange(len(self)), np.diff(self.offsets))
        onward = self.indices[polygons.next_place(self.offsets)]
        ends = np.sort(np.stack([self.indices, onward], axis=1), axis=1)
        order = np.lexsort((ends[:, 1], ends[:, 0]))
        same = (np.diff(ends[order], axis=0) == 0).all(axis=1)
        first, second = order[:-1][same], order[1:][same]
        pairs = np.stack([region[first], region[second]], axis=1)
        return Neighbours(pairs, ends[first], self.edge_layer[first], self.edge_unit[first])

    def boundary(self, tolerance: float = 1e-12) -> Boundary:
        """The exact decision boundary: segments where two classes tie and no other is larger."""
        from splinecut.geometry import boundary

        return boundary.boundary(self, tolerance)

    def kinks(self, least_turn: float = 1e-9) -> Kinks:
        """Where the decision boundary turns, and the (layer, unit) whose cut turns it."""
        from splinecut.geometry import boundary

        return boundary.kinks(self, self.boundary(), least_turn)

    def plot(self, path: str | Path | None = None, **options: Any) -> Axes:
        """Draws cuts, regions and decision boundary; options as in `geometry.pictures.plot`."""
        from splinecut.geometry import plotting as pictures

        return pictures.plot(self, path, **options)

    def save(self, path: str | Path) -> Path:
        """Writes the partition as an .npz file (arrays and JSON, no pickle)."""
        about = {"schema": SCHEMA, "layers": [asdict(layer) for layer in self.layers]}
        arrays = {name: getattr(self, name) for name in _ARRAYS}
        arrays |= {f"slice_{name}": getattr(self.slice, name) for name in _SLICE}
        arrays |= {f"code_{i}": packed for i, packed in enumerate(self.codes.packed)}
        text = np.frombuffer(json.dumps(about).encode(), dtype=np.uint8)

        def write(temporary: Path) -> None:
            with open(temporary, "wb") as file:
                np.savez_compressed(file, about=text, **arrays)

        return write_atomically(path, write)

    @staticmethod
    def load(path: str | Path) -> Partition:
        """Reads what `save` wrote."""
        try:
            with np.load(path, allow_pickle=False) as stored:
                arrays = {name: stored[name] for name in stored.files}
            about = json.loads(arrays["about"].tobytes())
        except (OSError, ValueError, KeyError, EOFError) as error:
            raise InputError(f"{path} is not a saved partition; write one with Partition.save") from error
        if about.get("schema") != SCHEMA:
            raise InputError(f"{path} has schema {about.get('schema')}, expected {SCHEMA}; save the partition again")
        layers = tuple(Layer(**{**layer, "shape": tuple(layer["shape"])}) for layer in about["layers"])
        bits = [arrays[f"code_{i}"] for i in range(sum(layer.bits > 0 for layer in layers))]
        return Partition(
            slice=Slice(**{name: arrays[f"slice_{name}"] for name in _SLICE}),
            layers=layers,
            codes=codes_of(layers, bits),
            **{name: arrays[name] for name in _ARRAYS},
        )


_SLICE = tuple(field.name for field in fields(Slice))
_ARRAYS = tuple(field.name for field in fields(Partition) if field.name not in ("slice", "layers", "codes"))


def codes_of(layers: tuple[Layer, ...], packed: list[np.ndarray]) -> Codes:
    """Codes of all units of the layers that have bits."""
    coded = [layer for layer in layers if layer.bits]
    units = tuple(np.arange(layer.bits) for layer in coded)
    return Codes(tuple(layer.name for layer in coded), tuple(layer.bits for layer in coded), units, tuple(packed))


def subdivide(
    graph: Graph,
    region: Slice,
    max_regions: int = 5_000_000,
    tolerance: float = 1e-12,
    progress: vertices.Progress | None = None,
) -> Partition:
    """The exact partition of the window by the network's cuts; costs about one forward pass per region.

    tolerance: a unit counts as zero at a vertex below this share of the sum of the absolute terms it is made of;
    rounding errors are about a thousandth of it. Raises `RegionLimit` beyond `max_regions`, never truncates.
    """
    if region.input_shape != graph.input_shape:
        raise InputError(
            f"the slice lies in inputs of shape {region.input_shape}, the network takes {graph.input_shape}; "
            "give the slice an origin of the network's input shape"
        )
    refuse_smooth(graph)
    if max_regions < 1 or not 0 <= tolerance < 1:
        raise InputError(f"need max_regions >= 1 and 0 <= tolerance < 1, got {max_regions} and {tolerance}")
    with torch.no_grad(), _one_thread_unless(any(node.op.startswith("conv") for node in graph.nodes)):
        blocks = [_finished(graph, block) for block in vertices.run(graph, region, tolerance, max_regions, progress)]
        mesh, outputs, packed = _joined(blocks)
        # Three corners of a sliver lose the slopes to rounding; autograd does not.
        thin = fitting.thin_polygons(mesh.offsets, mesh.ring, mesh.uv)
        centres = polygons.areas_and_centroids(mesh.offsets, mesh.ring, mesh.uv)[1][thin]
        thin_affine = fitting.affine_by_differentiation(graph, region, centres)
    layer, unit = np.divmod(mesh.label, vertices.LABEL_UNITS)
    inside = mesh.label >= 0
    return Partition(
        slice=region,
        layers=graph.layers,
        vertices=mesh.uv,
        outputs=outputs,
        offsets=mesh.offsets,
        indices=mesh.ring,
        edge_layer=np.where(inside, layer, -1).astype(np.int32),
        edge_unit=np.where(inside, unit, -1 - mesh.label).astype(np.int32),
        codes=codes_of(graph.layers, packed),
        thin=thin,
        thin_affine=thin_affine,
    )


@contextmanager
def _one_thread_unless(is_heavy: bool) -> Iterator[None]:
    """Matrix products of one block are short: a second thread would spend most of its time spinning in between."""
    n_threads = torch.get_num_threads()
    torch.set_num_threads(n_threads if is_heavy else 1)
    try:
        yield
    finally:
        torch.set_num_threads(n_threads)


class _Finished(NamedTuple):
    mesh: vertices.Mesh
    outputs: np.ndarray
    codes: list[np.ndarray]


def _finished(graph: Graph, block: vertices.Block) -> _Finished:
    """A block with its codes cut down to the bytes that hold bits."""
    sizes = [layer.bits for layer in graph.layers if layer.bits]
    codes = [
        np.ascontiguousarray(code.view(np.uint8)[:, : -(-size // 8)])
        for code, size in zip(block.codes, sizes, strict=True)
    ]
    return _Finished(block.mesh, vertices.rows_of(block.values[graph.output]), codes)


def _joined(blocks: list[_Finished]) -> _Finished:
    """All blocks as one; vertices with the same key become one vertex."""
    if len(blocks) == 1:
        return blocks[0]
    keys = np.concatenate([block.mesh.keys for block in blocks])
    # Blocks repeat the vertices along their seams; equal keys are one vertex, which rounded coordinates could not tell.
    keys, first, number = np.unique(keys, return_index=True, return_inverse=True)
    starts = np.cumsum([0, *(len(block.mesh.uv) for block in blocks)])
    sizes = np.concatenate([np.diff(block.mesh.offsets) for block in blocks])
    mesh = vertices.Mesh(
        uv=np.concatenate([block.mesh.uv for block in blocks])[first],
        keys=keys,
        offsets=np.concatenate([[0], np.cumsum(sizes)]),
        ring=number[np.concatenate([block.mesh.ring + start for block, start in zip(blocks, starts, strict=False)])],
        label=np.concatenate([block.mesh.label for block in blocks]),
    )
    outputs = np.concatenate([block.outputs for block in blocks])[first]
    codes = [np.concatenate(parts) for parts in zip(*(block.codes for block in blocks), strict=True)]
    return _Finished(mesh, outputs, codes)
