"""Partitions become frames: at chosen steps of training, and after cuts at chosen ratios."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from jaxtyping import Float, Int, Int32, UInt8
from torch import Tensor, nn

from splinecut.errors import SplinecutError
from splinecut.experiments.film.frames import FoldingLayer, Frame, Frames, Redundancy, Stage
from splinecut.experiments.film.window import graph_of
from splinecut.experiments.film.window import shrink_to_limit as shrink_to_limit  # where 0.1 had it
from splinecut.geometry.cuts import DISTANCES
from splinecut.geometry.graph import Graph, Layer
from splinecut.geometry.partition import Partition, subdivide
from splinecut.moved import renamed
from splinecut.networks.cut_owners import producer_of
from splinecut.networks.groups.read import groups as read_groups
from splinecut.networks.groups.values import Groups
from splinecut.pruning import apply
from splinecut.pruning.draw_ticket import draw
from splinecut.pruning.unit_parameters import unit_cuts

if TYPE_CHECKING:
    from splinecut.geometry.slices import Slice

MOST_UNITS = 256  # a larger layer's distance matrix is no longer read by eye, and would fill the report
MOST_POINTS = 400  # data points that are drawn; more hide the cuts


def frame_of(
    partition: Partition,
    stage: Stage = "train",
    step: int = 0,
    keep: float = 1.0,
    origin: Sequence[Int[np.ndarray, " units"]] | None = None,
    facts: Mapping[str, float] | None = None,
) -> Frame:
    """A partition as a frame; without `origin` every unit is its own."""
    line = partition.boundary()
    all_units = [np.arange(layer.units) for layer in folding_layers(partition.layers)]
    return Frame(
        stage=stage,
        step=step,
        keep=keep,
        vertices=partition.vertices,
        corners=np.diff(partition.offsets).astype(np.uint16),
        ring=partition.indices.astype(np.int32),
        edge_layer=partition.edge_layer.astype(np.int32),
        edge_unit=partition.edge_unit.astype(np.int32),
        affine=partition.affine.astype(np.float32),
        hue=_hues(partition),
        boundary=line.ends,
        boundary_region=line.region.astype(np.int32),
        origin=tuple(np.asarray(units, np.int32) for units in (all_units if origin is None else origin)),
        facts=facts or {},
    )


def folding_layers(layers: Iterable[Layer]) -> tuple[FoldingLayer, ...]:
    """The layers as the viewer counts them: the first axis of a layer's shape counts its units."""
    return tuple(FoldingLayer(layer.name, layer.shape[0], layer.size // layer.shape[0]) for layer in layers)


def _hues(partition: Partition) -> UInt8[np.ndarray, " regions"]:
    """A number per region that follows from its code alone."""
    return (partition.code_hashes() >> np.uint64(56)).astype(np.uint8)


Measure = Callable[[nn.Module], Mapping[str, float]]
"""What else to note of a network at a moment, by name, such as its test accuracy."""


def pruned_frames(
    model: nn.Module,
    region: Slice,
    probe: Float[Tensor, "samples *input"],
    keeps: Iterable[float],
    step: int = 0,
    method: str = "spline",
    refit: str | None = "least_squares",
    measure: Measure | None = None,
    **options: Any,
) -> list[Frame]:
    """The partition of `model` cut to each share in `keeps` of its units, refitted and not trained further.

    `options` go to `sc.draw`. The share in each frame is the one achieved.
    """
    graph = graph_of(model, region)
    frames = []
    for keep in keeps:
        ticket = draw(model, probe, method=method, keep=keep, **options)
        smaller = apply.cut(model, ticket, refit=refit, probe=probe)
        assert ticket.groups is not None
        partition = subdivide(graph_of(smaller, region), region)
        kept = origins(graph, ticket.groups, ticket.keep, partition)
        facts = measure(smaller) if measure else {}
        frames.append(frame_of(partition, "prune", step, ticket.achieved.density, kept, facts))
    return frames


def origins(
    dense: Graph, groups: Groups, keep: Mapping[str, np.ndarray], smaller: Partition
) -> list[Int32[np.ndarray, " units"]]:
    """For every layer of a cut network, which unit of the dense one each of its units is; -1 where unknown."""
    units = []
    producers = [producer_of(dense, groups, layer.node) for layer in dense.layers]
    for produced_by, layer in zip(producers, folding_layers(smaller.layers), strict=True):
        if produced_by is None:
            units.append(np.full(layer.units, -1, np.int32))
        else:
            group, producer = produced_by
            rows = group.rows(producer)
            units.append(np.flatnonzero((rows < 0) | keep[group.name][rows]).astype(np.int32))
    return units


def redundancies(
    model: nn.Module, region: Slice, groups: Groups, rho: float = 0.05, forms: Sequence[str] = tuple(DISTANCES)
) -> tuple[Redundancy, ...]:
    """N_rho between the cuts of every layer with at most `MOST_UNITS` units, with an order by clusters."""
    graph, by_layer = graph_of(model, region), []
    for number, layer in enumerate(graph.layers):
        produced_by = producer_of(graph, groups, layer.node)
        if produced_by is None or not 2 <= produced_by[0].size <= MOST_UNITS:
            continue
        cuts = unit_cuts(model, *produced_by)
        distances = {form: DISTANCES[form](cuts, cuts, rho).numpy().astype(np.float32) for form in forms}
        by_layer.append(Redundancy(number, _clustered(distances[forms[0]]), distances))
    return tuple(by_layer)


def _clustered(distance: Float[np.ndarray, "units units"]) -> Int32[np.ndarray, " units"]:
    """The units in the order of the leaves of an average-linkage tree, near leaves side by side."""
    from scipy.cluster.hierarchy import leaves_list, linkage, optimal_leaf_ordering
    from scipy.spatial.distance import squareform

    finite = np.where(np.isfinite(distance), distance, 4.0).astype(float)  # dead units: beyond the largest cosine term
    np.fill_diagonal(finite, 0.0)
    pairs = squareform((finite + finite.T) / 2, checks=False)
    return leaves_list(optimal_leaf_ordering(linkage(pairs, "average"), pairs)).astype(np.int32)


def build_frames(
    name: str,
    model: nn.Module,
    region: Slice,
    inputs: Float[Tensor, "points *input"],
    labels: Int[Tensor, " points"],
    class_names: Sequence[str],
    trained: Sequence[Frame] = (),
    keeps: Sequence[float] = (),
    probe: Float[Tensor, "samples *input"] | None = None,
    about: Mapping[str, str] | None = None,
    **options: Any,
) -> Frames:
    """Everything the partition viewer shows of `model`: `trained` frames, cuts at `keeps`, distances, data.

    inputs: data in or near the slice, drawn where they project to; at most `MOST_POINTS` of them.
    options: of `pruned_frames`, such as method="spline", refit=None.
    """
    graph = graph_of(model, region)
    probe = inputs if probe is None else probe
    now = list(trained) or [frame_of(subdivide(graph, region))]
    groups = read_groups(model, probe[:1])
    cuts = pruned_frames(model, region, probe, keeps, now[-1].step, **options) if keeps else []
    return Frames(
        name=name,
        layers=folding_layers(graph.layers),
        frames=(*now, *cuts),
        points=region.coordinates(inputs[:MOST_POINTS]),
        labels=labels[:MOST_POINTS].numpy().astype(np.int32),
        class_names=tuple(class_names),
        redundancy=redundancies(model, region, groups),
        about=about or {},
    )


def single_frame(name: str, model: nn.Module, partition: Partition, about: Mapping[str, str] | None = None) -> Frames:
    """One partition of `model` as frames, without data."""
    try:
        groups = read_groups(model, torch.zeros(1, *partition.slice.input_shape))
        distances = redundancies(model, partition.slice, groups)
    except SplinecutError:
        distances = ()  # a network whose channels cannot be grouped can still be looked at
    return Frames(
        name, folding_layers(partition.layers), (frame_of(partition),), redundancy=distances, about=about or {}
    )


__getattr__ = renamed(__name__, {"film": "build_frames", "still": "single_frame", "narrowed": "shrink_to_limit"})
