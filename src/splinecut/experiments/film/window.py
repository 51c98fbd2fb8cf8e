"""Where a film looks: the slice, its window, and the traced network on it."""

from __future__ import annotations

import copy
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import torch
from jaxtyping import Float, Int64
from torch import Tensor, nn

from splinecut.errors import InputError
from splinecut.geometry.graph import Graph
from splinecut.geometry.partition import subdivide
from splinecut.geometry.slices import Slice, slices_through
from splinecut.geometry.subdivision.run import RegionLimit
from splinecut.networks.model_state import unwrapped
from splinecut.networks.trace import trace
from splinecut.pruning.methods.channels.boundary import predicted

if TYPE_CHECKING:
    from splinecut.experiments.spec import FilmSpec
    from splinecut.pruning.engine.context import RunContext

SAMPLE = 2_000  # training inputs among which three are drawn, or which show where the data lie
SIDE = 61  # of the grid on which classes are compared


def graph_of(model: nn.Module, region: Slice) -> Graph:
    """The traced network, in eval mode on the CPU; `model` is left as found."""
    return trace(copy.deepcopy(unwrapped(model)).to("cpu").eval(), torch.zeros(1, *region.input_shape))


def scene(
    context: RunContext, spec: FilmSpec
) -> tuple[Slice, Float[Tensor, "points *input"], Int64[Tensor, " points"]]:
    """The slice that `spec` asks for, and the training inputs that lie in it with their classes.

    Inputs of two coordinates have one plane; others get a plane through three training inputs.
    """
    train = context.dataset.train
    if spec.through is not None:
        rows = list(spec.through)
        if not all(0 <= row < len(train) for row in rows):
            raise InputError(f"film.through names rows {rows} of {len(train)} training inputs; count from 0")
        inputs, labels = train.examples(rows), train.targets[rows]
        region = Slice.through(*inputs)
    else:
        classes = context.labels(SAMPLE)
        assert classes is not None
        inputs, labels = context.probe(SAMPLE).cpu(), classes.cpu()
        (region,) = slices_through(inputs, labels.numpy(), 1, context.seed)
    nearest = region.embed(region.coordinates(inputs))
    off = (nearest - inputs.double()).flatten(1).abs().amax(dim=1)
    # Inputs are float32, so a point of the plane may lie off it by rounding.
    lies_in_it = off <= 1e-6 * float(inputs.abs().max())
    return region, inputs[lies_in_it], labels[lies_in_it]


def center_on_boundary(model: nn.Module, region: Slice) -> Slice:
    """`region` with its window moved to a place where most classes meet.

    Of the cells of a grid whose corners have the most different classes, the one nearest to the middle is taken.
    """
    low, high = region.window.min(axis=0), region.window.max(axis=0)
    ticks = np.linspace(low, high, SIDE)
    uv = np.stack(np.meshgrid(ticks[:, 0], ticks[:, 1], indexing="ij"), axis=-1)
    winner = predicted(model, region.embed(uv.reshape(-1, 2))).reshape(SIDE, SIDE)
    corners = np.sort([winner[:-1, :-1], winner[1:, :-1], winner[:-1, 1:], winner[1:, 1:]], axis=0)
    n_classes = 1 + (np.diff(corners, axis=0) != 0).sum(axis=0)
    centres, middle = (uv[:-1, :-1] + uv[1:, 1:]) / 2, region.window.mean(axis=0)
    far = np.where(n_classes == n_classes.max(), np.linalg.norm(centres - middle, axis=-1), np.inf)
    chosen = centres.reshape(-1, 2)[far.argmin()]
    return replace(region, window=region.window + chosen - middle)


def shrink_to_limit(model: nn.Module, region: Slice, most_regions: int = 5_000) -> Slice:
    """`region` with its window shrunk about its middle until it holds at most `most_regions` regions.

    Its area is halved at each step. A slice through images may hold hundreds of thousands of regions: too many to
    store at several steps, or to look at.
    """
    graph, middle = graph_of(model, region), region.window.mean(axis=0)
    while True:
        try:
            subdivide(graph, region, most_regions)
            return region
        except RegionLimit:
            region = replace(region, window=middle + (region.window - middle) / np.sqrt(2))
