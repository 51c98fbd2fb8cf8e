"""Torch-Pruning 1.6.1 at its best without training: global ranking, its own surgery, batch norms refreshed.

The importance is its group L2 norm or its group Taylor score. Without labels the gradient of the Taylor score is the
root mean square, over batches of the probe, of the gradient of the likelihood of labels that the network draws itself:
the mean would vanish, since the expected score of a model's own labels is zero. The pruning ratio is bisected until
FLOPs are within 1 % of those asked for.

What to set is decided for it, in every cell, by the divergence from the dense outputs on the probe: by what scores are
divided before layers are compared (`normalizer`), and whether batch norms keep their statistics or get the probe's.
"""

from __future__ import annotations

import copy
import warnings
from collections.abc import Callable
from functools import partial
from typing import Any, Literal

import torch
from torch import Tensor, nn

from splinecut.errors import InputError
from splinecut.networks.cost import forward_flops
from splinecut.networks.inputs import as_arguments, batches, take
from splinecut.networks.layers import Select
from splinecut.pruning.refit.batch_norms import recalibrate, tracking
from studies.oneshot.subject import Inputs, Subject, divergence, outputs, relative_error

Importance = Literal["l2", "taylor"]
NORMALIZERS = ("mean", "max", None)  # "mean" is the default
BATCH = 16  # inputs of one gradient
TOLERANCE = 0.01  # of the dense FLOPs asked for
STEPS = 24  # of the bisection


def pruned(subject: Subject, probe: Inputs, keep: float, importance: Importance) -> nn.Module:
    """The network with `keep` of its FLOPs, within 1 %; the dense one is left as it was."""
    gradients = _gradients(subject, probe) if importance == "taylor" else {}
    example = take(as_arguments(probe), slice(0, 1))
    found: list[nn.Module] = []
    for normalizer in NORMALIZERS:
        smaller = _cut_to(keep, subject, partial(_cut, subject, example, importance, normalizer, gradients))
        found += [] if smaller is None else [smaller, *_recalibrated(smaller, probe)]
    if not found:
        raise InputError(f"no setting comes within {TOLERANCE:.0%} of {keep:g} of the FLOPs")
    dense = outputs(subject.model, probe)
    error = relative_error if subject.labels is None else divergence
    return min(found, key=lambda model: error(dense, outputs(model, probe)))


def _cut_to(keep: float, subject: Subject, cut: Callable[[float], nn.Module]) -> nn.Module | None:
    """The network cut by the pruning ratio at which FLOPs are nearest to those asked for, found by bisection.

    None where none is within TOLERANCE.
    """
    low, high, nearest, best = 0.0, 1.0, subject.model, 1 - keep
    for _ in range(STEPS):
        ratio = (low + high) / 2
        smaller = cut(ratio)
        beyond = forward_flops(smaller, subject.test) / subject.flops - keep
        if abs(beyond) < abs(best):
            nearest, best = smaller, beyond
        if abs(best) <= TOLERANCE * keep / 4:
            break
        low, high = (ratio, high) if beyond > 0 else (low, ratio)
    return nearest if abs(best) <= TOLERANCE * keep else None


def _cut(
    subject: Subject,
    example: tuple[Any, ...],
    importance: Importance,
    normalizer: str | None,
    gradients: dict[str, Tensor],
    ratio: float,
) -> nn.Module:
    """A copy of the network without `ratio` of the channels of its groups, by global rank."""
    import torch_pruning

    model = _without_selectors(copy.deepcopy(subject.model))
    for name, parameter in model.named_parameters():
        parameter.requires_grad_(True)  # its graph is read from gradients
        parameter.grad = gradients[name].clone() if name in gradients else None
    kinds = torch_pruning.importance
    kind = {"l2": kinds.GroupMagnitudeImportance, "taylor": kinds.GroupTaylorImportance}[importance]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of parameters that it leaves alone
        pruner = torch_pruning.pruner.BasePruner(
            model,
            example if len(example) > 1 else example[0],
            importance=kind(normalizer=normalizer),
            global_pruning=True,
            pruning_ratio=ratio,
            ignored_layers=_left_whole(subject, model),
            forward_fn=(lambda network, inputs: network(*inputs)) if len(example) > 1 else None,
        )
        pruner.step()
    return model.eval()


def _without_selectors(model: nn.Module) -> nn.Module:
    """The network without our input selectors, which it cannot read and which select everything before a cut."""
    for module in list(model.modules()):
        for name, child in module.named_children():
            if isinstance(child, Select):
                setattr(module, name, nn.Identity())
    return model


def _left_whole(subject: Subject, model: nn.Module) -> list[nn.Module]:
    """Layers whose outputs all rows leave alone: residual streams, and the last layer."""
    free = {producer.path for group in subject.groups(subject.residual) for producer in group.producers}
    kinds = (nn.Linear, nn.modules.conv._ConvNd)
    layers = {path: module for path, module in model.named_modules() if isinstance(module, kinds)}
    # A depthwise convolution makes no units of its own: it goes with those it reads.
    return [
        module
        for path, module in layers.items()
        if path not in free and not (getattr(module, "groups", 1) > 1 and module.groups == module.out_channels)
    ]


def _gradients(subject: Subject, probe: Inputs) -> dict[str, Tensor]:
    """The root mean square of the gradients of batches, for every parameter."""
    model = copy.deepcopy(subject.model).requires_grad_(True)
    generator = torch.Generator().manual_seed(0)
    squares = {name: torch.zeros_like(parameter) for name, parameter in model.named_parameters()}
    for part in batches(as_arguments(probe), BATCH):
        model.zero_grad()
        found = model(*part)
        if subject.labels is None:
            loss = (found * torch.randn(found.shape, generator=generator)).sum(1).mean()
        else:
            labels = torch.multinomial(found.detach().softmax(1), 1, generator=generator)[:, 0]
            loss = nn.functional.cross_entropy(found, labels)
        loss.backward()
        for name, parameter in model.named_parameters():
            if parameter.grad is not None:
                squares[name] += parameter.grad.square()
    return {name: total.sqrt() for name, total in squares.items()}


def _recalibrated(model: nn.Module, probe: Inputs) -> list[nn.Module]:
    """The network with the probe's batch-norm statistics; nothing where it has no such norms."""
    if not tracking(model):
        return []
    fresh = copy.deepcopy(model)
    recalibrate(fresh, probe)
    return [fresh]
