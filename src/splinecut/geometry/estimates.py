"""Estimated numbers of pieces along a segment and of regions in a slice, where counting all would take too long.

Both count exactly in small parts and scale up; neither changes what an exact count gives.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float
from torch import Tensor

from splinecut.errors import InputError
from splinecut.geometry.graph import Graph
from splinecut.geometry.line import pieces_along
from splinecut.geometry.partition import subdivide
from splinecut.geometry.slices import Slice
from splinecut.geometry.subdivision.run import RegionLimit

_ENOUGH = 50  # regions in parts of a slice that are enough for an estimate
_TOO_MANY = 4_000  # regions in a part at which counting stops: the whole has far too many
_ZOOMS = tuple(4.0**-k for k in range(6, -1, -1))  # sides of the parts, as shares of the slice's own


@dataclass(frozen=True)
class Estimate:
    """How many pieces a whole segment has, from counting in windows of it; +- `standard_error`."""

    pieces: float
    standard_error: float
    n_counted: int
    share: float  # of the segment that was counted

    def __str__(self) -> str:
        return (
            f"about {self.pieces:,.0f} +- {self.standard_error:,.0f} pieces "
            f"({self.n_counted:,} breakpoints counted on {self.share:.3%} of the segment)"
        )


def estimate_pieces(
    graph: Graph,
    a: Float[Tensor, " *input"],
    b: Float[Tensor, " *input"],
    n_windows: int = 8,
    width: float = 1e-3,
    seed: int = 0,
) -> Estimate:
    """An unbiased estimate of len(pieces_along(graph, a, b)) for networks where the whole would take too long.

    The segment is divided into `n_windows` parts and each part into cells of about the given width; one cell of each
    part is drawn and its breakpoints counted exactly. The standard error is taken from the spread between the
    cells as if they were drawn freely, so it is on the safe side.
    """
    if not (n_windows >= 2 and 0 < width <= 1 / n_windows):
        raise InputError(
            f"n_windows must be at least 2 and width in (0, 1/n_windows], got {n_windows} and {width}; "
            "for more of the segment use pieces_along"
        )
    n_cells = round(1 / (n_windows * width))
    cell = 1 / (n_windows * n_cells)
    # One cell of every part: a draw over the whole segment would vary more.
    chosen = np.arange(n_windows) * n_cells + np.random.default_rng(seed).integers(n_cells, size=n_windows)
    counts = np.array([len(pieces_along(graph, a, b, i * cell, (i + 1) * cell)) - 1 for i in chosen.tolist()])
    return Estimate(
        pieces=1 + float(counts.mean() / cell),
        standard_error=float(counts.std(ddof=1) / cell / np.sqrt(n_windows)),
        n_counted=int(counts.sum()),
        share=n_windows * cell,
    )


def estimate_regions(graph: Graph, region: Slice) -> float:
    """About how many regions the slice holds, from counting exactly in small parts of it.

    The parts lie at the centre and half-way to each corner, and grow until they hold enough. With b edges ending on
    its rim and r regions a part has r = 1 + b/2 + (meetings of cuts); rims grow with the side, meetings with the area.
    """
    for zoom in _ZOOMS:
        counts = [_count(graph, part) for part in _parts(region, zoom)]
        if sum(n_regions for n_regions, _ in counts) >= _ENOUGH:
            break
    rim = float(np.mean([n_ends / 2 for _, n_ends in counts]))
    meetings = float(np.mean([n_regions - 1 - n_ends / 2 for n_regions, n_ends in counts]))
    return 1 + rim / zoom + meetings / zoom**2


def _parts(region: Slice, zoom: float) -> list[Slice]:
    """The slice shrunk by `zoom` about five places; just itself when it is not shrunk."""
    centre = region.window.mean(axis=0)
    about = [centre] if zoom == 1 else [centre, *((centre + region.window) / 2)]
    return [Slice(region.origin, region.basis, place + zoom * (region.window - centre)) for place in about]


def _count(graph: Graph, part: Slice) -> tuple[int, int]:
    """How many regions a part has, and how many edges end on its rim."""
    try:
        partition = subdivide(graph, part, max_regions=_TOO_MANY)
    except RegionLimit:
        # Too many to count is enough to know: the estimate then only has to be large.
        return _TOO_MANY, 0
    return len(partition), int(np.count_nonzero(partition.edge_layer < 0)) - len(part.window)
