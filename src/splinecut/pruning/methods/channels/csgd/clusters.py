"""Clusters of units that are, or are to become, one: how they are found, averaged and merged."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Bool, Float, Int64
from torch import Tensor, nn

from splinecut.errors import InputError
from splinecut.networks.groups.values import Groups, Member, Role, UnitGroup

Clusters = Mapping[str, Int64[np.ndarray, " units"]]  # group -> the cluster of each unit, numbered as they come


def even(filters: Float[np.ndarray, "units inputs"], n: int, seed: int) -> Int64[np.ndarray, " units"]:
    """Neighbours together, clusters of equal size to within one."""
    return np.arange(len(filters)) * n // len(filters)


def kmeans(filters: Float[np.ndarray, "units inputs"], n: int, seed: int) -> Int64[np.ndarray, " units"]:
    """k-means; where filters coincide and leave clusters empty, the largest clusters are split instead."""
    if n >= len(filters):
        return np.arange(len(filters))
    import warnings

    from sklearn.cluster import KMeans
    from sklearn.exceptions import ConvergenceWarning

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # said when filters coincide
        labels = KMeans(n, n_init=4, random_state=seed).fit(filters).labels_
    _, cluster = np.unique(labels, return_inverse=True)  # numbered without gaps: k-means may leave clusters empty
    while (n_clusters := int(cluster.max()) + 1) < n:  # the budget counts on exactly n clusters
        largest = np.flatnonzero(cluster == np.bincount(cluster).argmax())
        cluster[largest[len(largest) // 2 :]] = n_clusters
    return _numbered(cluster)


def _numbered(labels: Int64[np.ndarray, " units"]) -> Int64[np.ndarray, " units"]:
    """The same clusters, numbered by their first units."""
    _, first, cluster = np.unique(labels, return_index=True, return_inverse=True)
    return np.argsort(np.argsort(first))[cluster]


def is_main(cluster: Int64[np.ndarray, " units"]) -> Bool[np.ndarray, " units"]:
    """Which units are the first of their cluster."""
    result = np.zeros(len(cluster), bool)
    result[np.unique(cluster, return_index=True)[1]] = True
    return result


CLUSTERINGS: dict[str, Callable[[np.ndarray, int, int], np.ndarray]] = {"kmeans": kmeans, "even": even}


@dataclass(frozen=True, eq=False)
class Slices:
    """One axis of a tensor that belongs to clustered units.

    places:  (units, positions) along the axis; a flattened image has several positions for each unit.
    cluster: of each unit; `size` counts the units of each cluster.
    """

    tensor: Tensor
    axis: int
    places: Int64[Tensor, "units positions"]
    cluster: Int64[Tensor, " units"]
    size: Int64[Tensor, " clusters"]

    @classmethod
    def of(cls, tensor: Tensor, member: Member, group: UnitGroup, cluster: Int64[np.ndarray, " units"]) -> Slices:
        labels = torch.from_numpy(cluster).to(tensor.device)
        return cls(tensor, member.axis, places(member, group).to(tensor.device), labels, torch.bincount(labels))

    def get(self, tensor: Tensor) -> Float[Tensor, "units positions *rest"]:
        """The slices of `tensor` (this one, or its gradient) by unit; a copy."""
        return tensor.detach().movedim(self.axis, 0)[self.places]

    def put(self, tensor: Tensor, values: Float[Tensor, "units positions *rest"]) -> None:
        """Writes into `tensor` what `get` gave."""
        tensor.detach().movedim(self.axis, 0)[self.places] = values

    def sums(self, values: Float[Tensor, "units positions *rest"]) -> Float[Tensor, "clusters positions *rest"]:
        """The sum over each cluster."""
        return values.new_zeros(len(self.size), *values.shape[1:]).index_add(0, self.cluster, values)

    def means(self, values: Float[Tensor, "units positions *rest"]) -> Float[Tensor, "units positions *rest"]:
        """For every unit the mean over its cluster."""
        return (self.sums(values) / self.size.to(values).view(-1, *[1] * (values.dim() - 1)))[self.cluster]


def places(member: Member, group: UnitGroup) -> Int64[Tensor, "units positions"]:
    """Where along the member's axis each unit lies."""
    counts = np.bincount(member.units[member.units >= 0], minlength=group.size)
    if counts.min() != counts.max():
        raise InputError(
            f"csgd cannot cluster {group.name}: {member.key} holds some of its units more often than others; "
            "use residual = 'inner'"
        )
    order = np.argsort(member.units, kind="stable")[np.sort(member.units) >= 0]
    return torch.from_numpy(order.reshape(group.size, -1))


def clustered(tensors: Mapping[str, Tensor], groups: Groups, clusters: Clusters, *roles: Role) -> Iterator[Slices]:
    """The slices that units of the groups have in `tensors`, in these roles, where any cluster has two units."""
    for group in groups:
        cluster = clusters[group.name]
        for member in (member for member in group.members if member.role in roles):
            if member.key in tensors and cluster.max() + 1 < group.size:
                yield Slices.of(tensors[member.key], member, group, cluster)


def spread(model: nn.Module, groups: Groups, clusters: Clusters) -> float:
    """How far units lie from the mean of their cluster at most, as a share of the largest entry of their tensor."""
    tensors = {name: t for name, t in model.state_dict().items() if t.is_floating_point()}
    worst = 0.0
    for own in clustered(tensors, groups, clusters, "producer", "follower"):
        values = own.get(own.tensor).double()
        apart = (values - own.means(values)).abs().max() / values.abs().max().clamp_min(1e-300)
        worst = max(worst, float(apart))
    return worst


def merged(model: nn.Module, groups: Groups, clusters: Clusters) -> nn.Module:
    """A copy in which only the first unit of each cluster is read, with the sum of the cluster's outgoing weights.

    Where units of a cluster are alike it computes the same, and the others can be cut off.
    """
    result = copy.deepcopy(model)
    for read in clustered(dict(result.named_parameters()), groups, clusters, "consumer"):
        # Equal channels x send sum_i w_i x to the next layer, which one of them sends with the summed weights.
        outgoing = read.get(read.tensor)
        sums = torch.zeros_like(outgoing)
        sums[torch.from_numpy(is_main(read.cluster.cpu().numpy())).to(sums.device)] = read.sums(outgoing)
        read.put(read.tensor, sums)
    return result
