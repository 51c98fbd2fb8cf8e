"""Boundary-aware pruning: units whose cuts do not shape the decision leave first.

The exact partition of a few slices through training inputs holds the exact decision boundary, and each of its kinks
lies on the cut of one unit. A unit's score is the number of kinks it makes; a convolution's channel has those of all
its positions. Units that make equally many are told apart by how much boundary runs through the regions beside their
cuts, and then by the length of their cuts: a fraction below 1 that never outweighs a kink.

You et al. (2022), Sec. 3.2, say that pruned cuts are those not crucial for the decision boundary, and show it in
pictures; here it is the criterion. It costs a forward pass for every region, so it serves small networks only and
refuses where the slices hold too many.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, ClassVar, Literal

import numpy as np
import torch
from jaxtyping import Float, Int64
from torch import Tensor, nn

from splinecut.errors import InputError
from splinecut.geometry.estimates import estimate_regions
from splinecut.geometry.graph import Graph
from splinecut.geometry.partition import Partition, subdivide
from splinecut.geometry.slices import Slice, slices_through
from splinecut.geometry.subdivision.run import RegionLimit
from splinecut.networks.cut_owners import CutOwners, owners
from splinecut.networks.model_state import evaluating, weights_digest
from splinecut.networks.trace import trace
from splinecut.pruning.budget import Budget
from splinecut.pruning.evidence import Evidence
from splinecut.pruning.method import Method, Round, Scores
from splinecut.pruning.options import Count
from splinecut.training.ledger import FORWARD, Ledger, Phase

if TYPE_CHECKING:
    from splinecut.pruning.engine.context import RunContext


@dataclass(frozen=True)
class BoundaryKinks(Method):
    """Kinks of the decision boundary per unit, counted on `slices` slices of at most `max_regions` regions each.

    Two-dimensional inputs have one slice, the square that holds the probe. A unit that makes no kink there may still
    make some elsewhere: more slices see more.
    """

    reference: ClassVar[str] = "splinecut; the idea of You et al. 2022, Sec. 3.2, made exact"
    refit: ClassVar[Literal["none", "fold", "least_squares"]] = "least_squares"

    slices: Count = 8
    max_regions: Count = 200_000

    def search(self, context: RunContext, model: nn.Module, turn: Round) -> Scores:
        """The scores, which no budget changes: runs with a training in common count their kinks once."""
        evidence = context.evidence(model, self)

        def count(ledger: Ledger) -> dict[str, list[float]]:
            ledger.charge(Phase("search"), self.flops(evidence, context.flops(model)), 1, FORWARD)
            return {name: values.tolist() for name, values in self.score(evidence, turn.budget).items()}

        decided = {
            **asdict(self),
            "probe": context.probe_size,
            "residual": context.residual,
            "network": weights_digest(model),
        }
        with context.search_cache("kinks", decided) as cache:
            return {name: np.array(values) for name, values in cache.get_or_compute("scores", count).items()}

    def score(self, evidence: Evidence, budget: Budget) -> Scores:
        if evidence.search_result is not None:
            return dict(evidence.search_result)
        graph, regions = self._scene(evidence)
        self._refuse_crowds(graph, regions)
        effects = shaping((self._partition(graph, region) for region in regions), owners(graph, evidence.groups))
        ends = np.cumsum([group.size for group in evidence.groups])[:-1]
        return dict(zip((group.name for group in evidence.groups), np.split(effects.scores(), ends), strict=True))

    def flops(self, evidence: Evidence, forward_flops: int) -> int:
        """A forward pass for every input of the probe and, about, for every region of the slices; none once found."""
        if evidence.search_result is not None:
            return 0
        graph, regions = self._scene(evidence)
        n_regions = sum(estimate_regions(graph, region) for region in regions)
        return round((evidence.n_inputs + n_regions) * forward_flops)

    def _scene(self, evidence: Evidence) -> tuple[Graph, list[Slice]]:
        model, probe = evidence.model, evidence.images
        regions = slices_through(probe, predicted(model, probe), self.slices, evidence.seed)
        with evaluating(model):
            return trace(model, probe[:1]), regions

    def _refuse_crowds(self, graph: Graph, regions: list[Slice]) -> None:
        for region in regions:
            n_regions = estimate_regions(graph, region)
            if n_regions > self.max_regions:
                raise self._too_many(f"about {float(f'{n_regions:.3g}'):,.0f}")

    def _partition(self, graph: Graph, region: Slice) -> Partition:
        try:
            return subdivide(graph, region, self.max_regions)
        except RegionLimit:
            raise self._too_many("more than that") from None

    def _too_many(self, count: str) -> InputError:
        return InputError(
            f"boundary may look at {self.max_regions:,} regions in a slice and this network has {count}, a forward "
            "pass each; raise max_regions, or use method 'spline', which serves networks of any size"
        )


@dataclass(frozen=True)
class Shaping:
    """What each unit does to the decision boundary on some slices."""

    kinks: Float[np.ndarray, " units"]
    beside: Float[np.ndarray, " units"]  # length of boundary in regions that border on its cut
    length: Float[np.ndarray, " units"]  # of its cut

    def scores(self) -> Float[np.ndarray, " units"]:
        """Kinks, plus a fraction for the rank by the two lengths; equal units score alike."""
        # Nine digits: what two ways of adding up the same lengths agree on.
        lengths = np.stack([_rounded(self.beside), _rounded(self.length)], axis=1)
        distinct, rank = np.unique(lengths, axis=0, return_inverse=True)
        return self.kinks + rank.reshape(-1) / max(1, len(distinct))


def shaping(partitions: Iterable[Partition], owned: CutOwners) -> Shaping:
    """What each unit does on all the partitions together."""
    kinks, beside, length = (np.zeros(owned.n_units) for _ in range(3))
    for partition in partitions:
        bends = partition.kinks()
        kinks += owned.total(owned(bends.layer, bends.unit), np.ones(len(bends)))
        edges = partition.neighbours()
        owner = owned(edges.layer, edges.unit)
        length += owned.total(owner, np.linalg.norm(np.diff(partition.vertices[edges.ends], axis=1)[:, 0], axis=1))
        beside += _beside(partition, owned, owner, edges.regions)
    return Shaping(kinks, beside, length)


def _beside(
    partition: Partition, owned: CutOwners, owner: Int64[np.ndarray, " edges"], regions: Int64[np.ndarray, "edges 2"]
) -> Float[np.ndarray, " units"]:
    line = partition.boundary()
    inside = np.bincount(line.region, line.lengths, minlength=len(partition))
    # A unit and a region are counted once, however many edges of the region lie on its cut.
    pairs = np.unique(np.stack([np.repeat(owner, 2), regions.reshape(-1)], axis=1), axis=0)
    return owned.total(pairs[:, 0], inside[pairs[:, 1]])


def _rounded(values: Float[np.ndarray, " units"]) -> Float[np.ndarray, " units"]:
    return np.round(values / max(float(values.max(initial=0.0)), np.finfo(float).tiny), 9)


def predicted(model: nn.Module, probe: Float[Tensor, "samples *input"]) -> Int64[np.ndarray, " samples"]:
    """The class the network gives each input; a single output decides by its sign."""
    like = next(model.parameters())
    with evaluating(model), torch.no_grad():
        outputs = torch.cat([model(part.to(like.device, like.dtype)) for part in probe.split(64)]).flatten(1)
    winner = outputs[:, 0] > 0 if outputs.shape[1] == 1 else outputs.argmax(dim=1)
    return winner.cpu().numpy().astype(np.int64)
