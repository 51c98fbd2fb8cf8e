"""A subject of the benchmark: a trained network, probes to prune it by, and held-out inputs to judge it by.

What is measured needs the dense network's outputs: for classifiers accuracy on the labels, agreement with the dense
network and KL(dense || cut); for sentence embeddings their cosine similarity to the dense ones, Spearman's rank
correlation of all pairwise similarities, and the relative squared error.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

import torch
from jaxtyping import Float, Int64
from torch import Tensor, nn

from splinecut.networks.cost import forward_flops, parameters
from splinecut.networks.groups.read import groups as read_groups
from splinecut.networks.groups.values import Groups
from splinecut.networks.inputs import Arguments, as_arguments, batches, count
from splinecut.pruning.output_error.divergence import relative

Inputs = Float[Tensor, "inputs *shape"] | Arguments
Split = Literal["choose", "report", "all"]
BATCH = 50  # inputs that go through a network together to be judged


@dataclass(frozen=True, eq=False)
class Subject:
    """One network of the benchmark.

    probe:    probe number -> training inputs, without labels.
    test:     held-out inputs, the same for every probe.
    labels:   their classes; None where the network gives embeddings.
    residual: how residual streams are read, as `sc.groups` says.
    """

    name: str
    model: nn.Module
    probe: Callable[[int], Inputs]
    test: Inputs
    labels: Int64[Tensor, " inputs"] | None
    residual: str = "inner"

    @cached_property
    def dense_outputs(self) -> Float[Tensor, "inputs outputs"]:
        return outputs(self.model, self.test)

    @cached_property
    def flops(self) -> int:
        """Of the dense network's forward pass of one input."""
        return forward_flops(self.model, self.test)

    @cached_property
    def _groups(self) -> dict[str, Groups]:
        return {}

    def groups(self, residual: str) -> Groups:
        """The network's groups, read once for each treatment of residual streams."""
        if residual not in self._groups:
            example = next(batches(as_arguments(self.test), 2))
            self._groups[residual] = read_groups(self.model, example, residual)
        return self._groups[residual]

    def facts(self) -> dict[str, object]:
        """What a result says of the subject."""
        return {
            "dense": measures(self, self.model),
            "test inputs": count(as_arguments(self.test)),
            "FLOPs": self.flops,
            "parameters": parameters(self.model),
            "residual": self.residual,
        }


@torch.no_grad()
def outputs(model: nn.Module, inputs: Inputs) -> Float[Tensor, "inputs outputs"]:
    """What the network gives, batch by batch; in eval mode, as all networks here are."""
    return torch.cat([model(*part) for part in batches(as_arguments(inputs), BATCH)])


def measures(subject: Subject, model: nn.Module) -> dict[str, float]:
    """How far a network is from the dense one on the held-out inputs.

    `score` is what tables and figures show: accuracy, or the rank correlation of similarities. `divergence` is the mean
    KL(dense || cut) in nats per input, or the relative squared error; `error` is what a ticket predicts, the relative
    squared error of the outputs, for scores of classes of their differences.
    """
    found, dense = outputs(model, subject.test).double(), subject.dense_outputs.double()
    if subject.labels is None:
        return _of_embeddings(found, dense)
    return {
        "score": _share(found.argmax(1) == subject.labels),
        "agreement": _share(found.argmax(1) == dense.argmax(1)),
        "divergence": divergence(dense, found),
        "error": relative(dense, found, is_scores=True).mean().item(),
    }


def divergence(dense: Float[Tensor, "inputs classes"], cut: Float[Tensor, "inputs classes"]) -> float:
    """Mean KL(dense || cut) of the softmax outputs, in nats."""
    before, after = dense.double().log_softmax(1), cut.double().log_softmax(1)
    return (before.exp() * (before - after)).sum(1).mean().item()


def relative_error(dense: Float[Tensor, "inputs features"], cut: Float[Tensor, "inputs features"]) -> float:
    """|cut - dense|^2 as a share of |dense|^2."""
    return ((cut - dense).square().sum() / dense.square().sum()).item()


def _of_embeddings(
    found: Float[Tensor, "inputs features"], dense: Float[Tensor, "inputs features"]
) -> dict[str, float]:
    from scipy.stats import spearmanr

    above = torch.triu_indices(len(dense), len(dense), offset=1)
    similarities = [(each @ each.T)[above[0], above[1]].numpy() for each in map(_unit, (found, dense))]
    return {
        "score": float(spearmanr(*similarities).statistic),
        "cosine": (_unit(found) * _unit(dense)).sum(1).mean().item(),
        "divergence": relative_error(dense, found),
        "error": relative(dense, found).mean().item(),
    }


def _unit(vectors: Float[Tensor, "inputs features"]) -> Float[Tensor, "inputs features"]:
    return vectors / vectors.norm(dim=1, keepdim=True)


def _share(holds: Tensor) -> float:
    return holds.double().mean().item()


def part(rows: Sequence[int], split: Split) -> Sequence[int]:
    """The rows of a test set to look at: the first half to make choices on, the second to report, or all."""
    half = len(rows) // 2
    return {"choose": rows[:half], "report": rows[half:], "all": rows}[split]
