"""Labels on the entries of tensors, and ties between labels: tied labels are removed together.

Every position of every parameter axis gets a label, and so does every entry of every value in the network. An
operation ties labels; at the end a connected set of labels is one unit. A label that may not leave is frozen, with
a reason, and freezes all it is tied to.
"""

from __future__ import annotations

import numpy as np
import torch
from jaxtyping import Int64
from scipy.sparse import coo_matrix
from scipy.sparse.csgraph import connected_components
from torch import Tensor

Labels = Int64[Tensor, " *shape"]
INPUT, CONSTANT = 0, 1  # labels of what no group can change: the network's inputs and fixed tensors


class Ties:
    """Collects labels, ties and frozen labels while a network is walked; `classes` closes it."""

    def __init__(self) -> None:
        self.count = 2
        self.pairs: list[Int64[np.ndarray, "2 pairs"]] = []
        self.frozen: list[tuple[Int64[np.ndarray, " labels"], str]] = []
        self.slots: dict[tuple[str, int], Labels] = {}
        self.freeze(torch.tensor([INPUT]), "it is the network's input")
        self.freeze(torch.tensor([CONSTANT]), "it meets a tensor of fixed size")

    def fresh(self, n: int) -> Int64[Tensor, " n"]:
        self.count += n
        return torch.arange(self.count - n, self.count)

    def axis_labels(self, key: str, axis: int, length: int) -> Int64[Tensor, " length"]:
        """The labels of one axis of a parameter: the same ones however often the parameter is used."""
        if (key, axis) not in self.slots:
            self.slots[key, axis] = self.fresh(length)
        return self.slots[key, axis]

    def tie(self, a: Labels, b: Labels) -> None:
        """Entry by entry, the labels of a and b (broadcast against each other) leave together."""
        # What repeats along expanded axes is tied once, not for every pixel: else large images fill the memory.
        both = torch.stack([side.flatten() for side in _shrunk(*torch.broadcast_tensors(a, b))])
        both = both[:, both[0] != both[1]]
        if both.shape[1]:
            self.pairs.append(np.unique(both.numpy(), axis=1) if both.shape[1] > 4096 else both.numpy())

    def freeze(self, labels: Labels, reason: str) -> None:
        """These labels, and all that is or will be tied to them, stay."""
        self.frozen.append((np.unique(_shrunk(labels)[0].numpy()), reason))

    def along(self, labels: Labels, axis: int) -> Int64[Tensor, " length"]:
        """One label per position of `axis`; entries that differ along other axes are tied first."""
        axis %= labels.ndim
        first = labels.movedim(axis, 0)
        ours = first
        # Entry 0 of all other axes stands for its position; the tie makes that right.
        while ours.ndim > 1:
            ours = ours.select(-1, 0)
        self.tie(first, ours.view(-1, *[1] * (labels.ndim - 1)))
        return ours

    def classes(self) -> tuple[Int64[np.ndarray, " labels"], dict[int, str]]:
        """The class of each label, and for each frozen class the reason given first."""
        pairs = np.concatenate(self.pairs, axis=1) if self.pairs else np.empty((2, 0), np.int64)
        graph = coo_matrix((np.ones(pairs.shape[1], bool), (pairs[0], pairs[1])), shape=(self.count, self.count))
        _, of = connected_components(graph, directed=False)
        reasons: dict[int, str] = {}
        for labels, reason in self.frozen:
            for class_ in np.unique(of[labels]):
                # The first reason: the operation nearest the cause, those after it only inherit the freeze.
                reasons.setdefault(int(class_), reason)
        return of.astype(np.int64), reasons


def varies(labels: Labels, axis: int) -> bool:
    """Whether any two positions of `axis` carry different labels."""
    if labels.shape[axis] <= 1 or labels.stride(axis) == 0 or not labels.numel():
        return False
    (small,) = _shrunk(labels, but=axis % labels.ndim)
    return bool((small != small.narrow(axis, 0, 1)).any())


def spread(labels: Int64[Tensor, " length"], axis: int, shape: torch.Size | tuple[int, ...]) -> Labels:
    """One label per position of `axis`, the same everywhere else; costs no memory."""
    view = [1] * len(shape)
    view[axis] = len(labels)
    return labels.view(view).expand(tuple(shape))


def constant(label: int, shape: torch.Size | tuple[int, ...]) -> Labels:
    """The same label everywhere."""
    return torch.tensor(label).expand(tuple(shape))


def thin(labels: list[Labels], but: int) -> list[Labels]:
    """Each tensor at one position of every axis along which all of them repeat, `but` excepted."""
    return list(_shrunk(*labels, but=but % labels[0].ndim))


def _shrunk(*tensors: Tensor, but: int = -1) -> tuple[Tensor, ...]:
    """The tensors at index 0 of every axis along which all have stride 0: repeats carry no news."""
    for axis in range(tensors[0].ndim):
        if axis != but and all(t.stride(axis) == 0 or t.shape[axis] == 1 for t in tensors):
            tensors = tuple(t.narrow(axis, 0, min(1, t.shape[axis])) for t in tensors)
    return tensors
