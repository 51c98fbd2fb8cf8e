"""Which unit of a group each folding unit of a traced network is pruned with.

Every unit of every group gets a tag, a random number, and the tags are passed through the graph in place of values.
Operators that make units put the units' tags on their channels; operators that move or average entries run on the
tags. A folding unit whose input carries a tag belongs to the tag's unit; a mixture of units matches no tag.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float, Int64
from torch import Tensor

from splinecut.geometry.graph import Graph, Node
from splinecut.networks.groups.values import Groups, Producer, UnitGroup
from splinecut.networks.operators.table import ops_where

NO_UNIT = -1
_MAKES = ops_where("makes_units")  # tags come from their weights
_ALIKE = ops_where("keeps_units")  # hand tags on as they are


@dataclass(frozen=True)
class CutOwners:
    """For each folding layer of the graph, in order, the unit that owns each of its units.

    Units count through all groups, one after the other; NO_UNIT where no group's unit is folded.
    """

    of: tuple[Int64[np.ndarray, " folded"], ...]
    n_units: int

    def __call__(
        self, layer: Int64[np.ndarray, " cuts"], unit: Int64[np.ndarray, " cuts"]
    ) -> Int64[np.ndarray, " cuts"]:
        """Who owns each (layer, unit)."""
        owners = np.full(len(layer), NO_UNIT)
        for place, owner in enumerate(self.of):
            owners[layer == place] = owner[unit[layer == place]]
        return owners

    def total(
        self, owner: Int64[np.ndarray, " cuts"], amount: Float[np.ndarray, " cuts"]
    ) -> Float[np.ndarray, " units"]:
        """What each unit's cuts amount to together."""
        return np.bincount(owner[owner >= 0], np.asarray(amount)[owner >= 0], minlength=self.n_units)


def owners(graph: Graph, groups: Groups) -> CutOwners:
    """The owner of every folding unit of `graph`, which was traced from the network the groups were read from."""
    n_units = groups.n_units
    # Random reals: a mean or sum of several tags hits another tag with probability zero; whole numbers would.
    tags = torch.from_numpy(np.random.default_rng(0).uniform(1, 2, n_units))
    tagged = _tags_by_key(groups, tags)
    values: dict[str, Tensor] = {graph.nodes[0].name: torch.zeros(1, *graph.input_shape, dtype=tags.dtype)}
    double = graph.to(torch.float64)
    for node in graph.nodes[1:]:
        values[node.name] = _flow(double, node, values, tagged)
    read = {node.name: (values[node.inputs[0]] if node.role == "fold" else values[node.name]) for node in _folds(graph)}
    return CutOwners(tuple(_matched(read[layer.node].reshape(-1), tags) for layer in graph.layers), n_units)


def producer_of(graph: Graph, groups: Groups, node: str) -> tuple[UnitGroup, Producer] | None:
    """The group whose units the folding step `node` folds, and a layer that makes them; None where there is none.

    Looks back through batch norms and sums only. What it finds is stored with frames, so it does not follow `owners`,
    which knows more operators.
    """
    makers = {maker.weight: (group, maker) for group in groups for maker in group.producers if maker.weight}
    ahead: list[Node] = [graph[name] for name in graph[node].inputs] if graph[node].role == "fold" else []
    while ahead:
        step = ahead.pop()
        if step.parameters.get("weight") in makers:
            return makers[step.parameters["weight"]]
        if step.op in ("batch_norm", "add"):
            ahead += [graph[name] for name in step.inputs]
    return None


def _folds(graph: Graph) -> list[Node]:
    return [node for node in graph.nodes if node.role in ("fold", "max")]


def _tags_by_key(groups: Groups, tags: Tensor) -> dict[str, Tensor]:
    """For each weight that makes units (and each list that selects some), the tag of every channel it gives."""
    by_key: dict[str, Tensor] = {}
    start = 0
    for group in groups:
        for member in group.members:
            if member.role in ("producer", "follower", "selector"):
                units = torch.from_numpy(member.units)
                channels = torch.where(units >= 0, tags[start + units.clamp(min=0)], 0.0)
                by_key[member.key] = by_key.get(member.key, torch.zeros_like(channels)) + channels
        start += group.size
    return by_key


def _flow(graph: Graph, node: Node, values: dict[str, Tensor], tagged: dict[str, Tensor]) -> Tensor:
    """The tags that `node` hands on."""
    keys = [key for key in node.parameters.values() if key in tagged]
    given = [values[name] for name in node.inputs]
    if node.op in _MAKES or (node.op == "index_select" and keys):
        return _channels(node, next((tagged[key] for key in keys), torch.zeros(1)))
    if node.role == "max":
        return _common(node, given)
    if node.role == "affine" and node.op not in _ALIKE:
        return graph.step(node, values)
    # Branches that meet are tied, or one of them belongs to no unit.
    return torch.stack([tag.expand(1, *node.shape) for tag in given]).amax(0)


def _channels(node: Node, tags: Tensor) -> Tensor:
    """One tag for each channel: along the last axis of a linear map, else along the first."""
    if node.op not in ("linear", "matmul"):
        tags = tags.view(-1, *[1] * (len(node.shape) - 1))
    return tags.double().expand(1, *node.shape)


def _common(node: Node, given: list[Tensor]) -> Tensor:
    """The tag that all entries of a window share; 0 where they differ."""
    assert node.windows is not None
    entries = torch.cat([tag.reshape(-1) for tag in given])[torch.from_numpy(node.windows).clamp(min=0)]
    is_padding = torch.from_numpy(node.windows) < 0
    # Equal highest and lowest entries mean one tag; padding must enter neither.
    highest = entries.masked_fill(is_padding, -torch.inf).amax(1)
    lowest = entries.masked_fill(is_padding, torch.inf).amin(1)
    return torch.where(highest == lowest, highest, 0.0).view(1, *node.shape)


def _matched(values: Tensor, tags: Tensor, slack: float = 1e-12) -> Int64[np.ndarray, " folded"]:
    """The unit whose tag each value is; `slack` is what rounding in an average may do to it."""
    if not len(tags):
        return np.full(len(values), NO_UNIT)
    ordered, unit = torch.sort(tags)
    place = torch.searchsorted(ordered, values).clamp(max=len(tags) - 1)
    before = (place - 1).clamp(min=0)
    place = torch.where((ordered[before] - values).abs() < (ordered[place] - values).abs(), before, place)
    return torch.where((ordered[place] - values).abs() <= slack, unit[place], NO_UNIT).numpy()
