"""Single weights ranked before training by what the loss would feel: its change (SNIP), its gradient's (GraSP)."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal

import torch
from jaxtyping import Float, Int64
from pydantic import Field
from torch import Tensor, nn
from torch.nn import functional as F

from splinecut.pruning.budget import Budget
from splinecut.pruning.evidence import Evidence
from splinecut.pruning.method import Method, Scores
from splinecut.pruning.options import Count, Positive
from splinecut.pruning.weight_mask import prunable_weights
from splinecut.training.ledger import TRAIN

HESSIAN_PRODUCT = 9  # forwards' worth: forward and backward make a graph of 3, going back through it costs twice that


@dataclass(frozen=True)
class Sensitivity(Method):
    """What SNIP and GraSP share. The probe goes through in parts of `batch_size` images, each with its own norms."""

    units: ClassVar[Literal["channels", "weights"]] = "weights"
    state: ClassVar[str] = "at initialisation"
    trains_first: ClassVar[bool] = False

    batch_size: Annotated[int, Field(ge=2)] = 128  # Lee et al. 2019, CIFAR

    def _parts(self, x: Tensor, y: Tensor) -> Iterator[tuple[Tensor, Tensor, float]]:
        """Inputs and labels of each part, and its share of all images; parts differ by one image at most."""
        n_parts = -(-len(x) // self.batch_size)
        for inputs, labels in zip(x.tensor_split(n_parts), y.tensor_split(n_parts), strict=True):
            yield inputs, labels, len(inputs) / len(x)


@dataclass(frozen=True)
class Snip(Sensitivity):
    """|g w|: how much the loss changes, to first order, per unit of a gate on the weight (Lee et al. 2019).

    Gradients of several parts are added with their signs before the absolute value is taken, so that it is the
    gradient of one loss. Their division by the sum of all scores changes no rank and is left out.
    """

    reference: ClassVar[str] = "Lee et al. 2019"

    def score(self, evidence: Evidence, budget: Budget) -> Scores:
        net, weights = scoring_copy(evidence.model)
        gradient = [torch.zeros_like(weight) for weight in weights.values()]
        for x, y, share in self._parts(*_typed(evidence, net)):
            loss = share * F.cross_entropy(net(x), y)
            _add(gradient, torch.autograd.grad(loss, list(weights.values()), materialize_grads=True))
        pairs = zip(weights.items(), gradient, strict=True)
        return {name: (g * w).abs().detach().double().cpu().numpy() for (name, w), g in pairs}

    def flops(self, evidence: Evidence, forward_flops: int) -> int:
        """One forward and backward of the probe."""
        return TRAIN * forward_flops * evidence.n_inputs


@dataclass(frozen=True)
class Grasp(Sensitivity):
    """w (H g): what taking the weight away would cost the flow of gradients (Wang et al. 2020).

    Their S = -w (H g) is half the first-order change of |g|^2 as w shrinks by its own value, and the largest S
    leave; ours has the sign that larger stays. The loss is that of the logits over `temperature`, on `per_class`
    images of each class in the probe. Gradient and Hessian are those of the prunable weights.
    """

    reference: ClassVar[str] = "Wang et al. 2020"

    temperature: Positive = 200.0
    per_class: Count = 10

    def score(self, evidence: Evidence, budget: Budget) -> Scores:
        net, weights = scoring_copy(evidence.model)
        x, y = _typed(evidence, net)
        rows = first_of_each_class(y, self.per_class)
        x, y = x[rows], y[rows]
        wanted = list(weights.values())
        gradient = [torch.zeros_like(weight) for weight in wanted]
        for inputs, labels, share in self._parts(x, y):
            loss = share * F.cross_entropy(net(inputs) / self.temperature, labels)
            _add(gradient, torch.autograd.grad(loss, wanted, materialize_grads=True))
        # A second pass: H g needs the gradient of all parts, and their graphs together would take too much memory.
        product = [torch.zeros_like(weight) for weight in wanted]
        for inputs, labels, share in self._parts(x, y):
            loss = share * F.cross_entropy(net(inputs) / self.temperature, labels)
            graph = torch.autograd.grad(loss, wanted, create_graph=True, materialize_grads=True)
            along = sum(((a * b).sum() for a, b in zip(graph, gradient, strict=True)), torch.zeros(()).to(x))
            _add(product, torch.autograd.grad(along, wanted, materialize_grads=True))
        pairs = zip(weights.items(), product, strict=True)
        return {name: (w * hg).detach().double().cpu().numpy() for (name, w), hg in pairs}

    def flops(self, evidence: Evidence, forward_flops: int) -> int:
        """A gradient and a Hessian product on the images looked at."""
        n_images = len(first_of_each_class(evidence.labelled()[1], self.per_class))
        return (TRAIN + HESSIAN_PRODUCT) * forward_flops * n_images


def scoring_copy(model: nn.Module) -> tuple[nn.Module, dict[str, nn.Parameter]]:
    """A copy to take gradients on, and its prunable weights.

    Batch norms use the statistics of the batch, as in training; dropout is off, so that nothing is random. The
    copy's running statistics move, the network's do not.
    """
    net = copy.deepcopy(model).eval().requires_grad_(False)
    for module in net.modules():  # untrained running statistics would not normalise anything
        if isinstance(module, nn.modules.batchnorm._BatchNorm):
            module.train()
    weights = prunable_weights(net)
    for weight in weights.values():
        weight.requires_grad_(True)
    return net, weights


def first_of_each_class(labels: Int64[Tensor, " samples"], n: int) -> Int64[Tensor, " few"]:
    """Where the first `n` samples of each class stand, class by class."""
    return torch.cat([torch.nonzero(labels == label).flatten()[:n] for label in labels.unique()])


def _typed(evidence: Evidence, net: nn.Module) -> tuple[Float[Tensor, "samples *input"], Int64[Tensor, " samples"]]:
    like = next(net.parameters())
    x, y = evidence.labelled()
    return x.to(like.device, like.dtype), y.to(like.device)


def _add(total: list[Tensor], part: tuple[Tensor, ...]) -> None:
    for running, more in zip(total, part, strict=True):
        running += more.detach()
