"""The public verbs on a model: trace it, and ask geometry."""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor, nn

from splinecut.geometry import affine, line
from splinecut.geometry import certify as certifying
from splinecut.geometry import codes as coding
from splinecut.geometry import partition as partitioning
from splinecut.geometry.certify import Findings
from splinecut.geometry.codes import Codes
from splinecut.geometry.line import Pieces, Progress
from splinecut.geometry.partition import Partition
from splinecut.geometry.slices import Slice
from splinecut.networks.trace import trace
from splinecut.progress_bar import bar


def subdivide(
    model: nn.Module,
    slice: Slice,
    max_regions: int = 5_000_000,
    tolerance: float = 1e-12,
    progress: Progress | None = None,
) -> Partition:
    """The exact partition of a 2-D window of the input space into the regions where the model is one affine map.

    The model must be in eval mode and piecewise affine; it is left as found. Raises `RegionLimit` when there are more
    than `max_regions` regions, never truncates. `progress` is called with the share of the window done; without it a
    bar shows on a terminal when it takes long.
    """
    graph = trace(model, torch.zeros(1, *slice.input_shape))
    with bar("subdividing") as shown:
        return partitioning.subdivide(graph, slice, max_regions, tolerance, progress or shown)


def certify(partition: Partition, model: nn.Module) -> Findings:
    """What is wrong with a partition of this model's input space, and where; `.ok` and empty when nothing is."""
    return certifying.certify(partition, trace(model, torch.zeros(1, *partition.slice.input_shape)))


def local_affine(
    model: nn.Module, x: Float[Tensor, " *input"]
) -> tuple[Float[Tensor, " outputs *input"], Float[Tensor, " outputs"]]:
    """(A, b) of the region that holds x: the network is <A, z> + b there. Float64, any input size.

    A point exactly on a cut belongs to the side that is off (`> 0` is on).
    """
    return affine.local_affine(trace(model, x[None]), x)


def pieces_along(
    model: nn.Module,
    a: Float[Tensor, " *input"],
    b: Float[Tensor, " *input"],
    start: float = 0.0,
    stop: float = 1.0,
    max_pieces: int = 5_000_000,
    progress: Progress | None = None,
) -> Pieces:
    """The exact breakpoints of the network on the segment a + t (b - a), start <= t <= stop, and its values there."""
    return line.pieces_along(trace(model, a[None]), a, b, start, stop, max_pieces, progress=progress)


def codes(model: nn.Module, x: Float[Tensor, " samples *input"], per_layer: int | None = None, seed: int = 0) -> Codes:
    """Which units are on for which samples, computed in the model's own precision; compare with `sc.distance`.

    Smooth activations have the bit of the relu they soften. `per_layer` holds a sample of the units, drawn by `seed`.
    """
    like = next((p for p in model.parameters() if p.is_floating_point()), torch.empty(0))
    graph = trace(model, x[:1], like.dtype, smooth=True).to(like.dtype, like.device)
    return coding.codes(graph, x, per_layer, seed)
