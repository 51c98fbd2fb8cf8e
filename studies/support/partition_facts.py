"""How large a partition is beside its bounds, and which units bend its decision boundary.

A cut that crosses the decision boundary bends it: a kink. The turning is the sum of the angles by which it bends.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from jaxtyping import Bool

from splinecut.geometry.counting import max_regions
from splinecut.geometry.graph import Graph
from splinecut.geometry.partition import Partition
from splinecut.networks.cut_owners import producer_of
from splinecut.pruning.ticket import Ticket


def shape_of(partition: Partition) -> dict[str, Any]:
    """Regions beside their bounds, and how many of the units that cut the window bend the decision boundary."""
    sizes = [layer.size for layer in partition.layers]
    kinks = partition.kinks()
    is_cut = partition.edge_layer >= 0
    turns = np.sort(kinks.turn)[::-1].cumsum()
    return {
        "regions": len(partition),
        "units": sum(sizes),
        "log10 of 2^units": sum(sizes) * math.log10(2),
        "log10 of the planar bound": sum(math.log10(max_regions(size, 2)) for size in sizes),
        "units that cut": len(np.unique(np.stack([partition.edge_layer, partition.edge_unit])[:, is_cut], axis=1).T),
        "kinks": len(kinks),
        "units that make a kink": len(kinks.per_unit()),
        "kinks that make 90 % of the turning": int(np.searchsorted(turns, 0.9 * turns[-1]) + 1) if len(turns) else 0,
    }


def removed(graph: Graph, before: Partition, ticket: Ticket) -> dict[str, float]:
    """What the removed units did in the dense network: their share of the cuts, of the turning, and the difference.

    Units that matter less for the boundary than others have a smaller share of the turning than of the cuts.
    """
    gone = [is_removed(graph, ticket, layer) for layer in range(len(before.layers))]
    kinks = before.kinks()
    is_cut = before.edge_layer >= 0
    drawn = np.unique(np.stack([before.edge_layer, before.edge_unit])[:, is_cut], axis=1).T
    share = float(np.mean([gone[layer][unit] for layer, unit in drawn])) if len(drawn) else 0.0
    turning = sum(
        turn for layer, unit, turn in zip(kinks.layer, kinks.unit, kinks.turn, strict=True) if gone[layer][unit]
    )
    bent = float(turning / kinks.turn.sum()) if len(kinks) else 0.0
    return {"share of the cuts": share, "share of the turning": bent, "turning less cuts": bent - share}


def is_removed(graph: Graph, ticket: Ticket, layer: int) -> Bool[np.ndarray, " units"]:
    """For every unit of a layer, each place of an image counted, whether it leaves with the ticket."""
    assert ticket.groups is not None
    produced_by = producer_of(graph, ticket.groups, graph.layers[layer].node)
    assert produced_by is not None
    group, producer = produced_by
    rows = group.rows(producer)
    gone = (rows >= 0) & ~ticket.keep[group.name][rows]
    return np.repeat(gone, graph.layers[layer].size // len(gone))
