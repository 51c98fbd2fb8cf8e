"""Which parameters of a cut network learn, and how large a step each of them takes."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from splinecut.networks.inputs import Arguments
from splinecut.pruning.calibration.imitation import run

SMALLEST_UNIT = 0.1  # of the root mean square over all units: a unit near zero can grow too
SMALLEST_VECTOR = 0.01  # biases that begin at zero can grow too


def learning_parameters(
    student: nn.Module, teacher: nn.Module, few: Arguments, blocks: Sequence[str], output: str | int | None
) -> list[nn.Parameter]:
    """Those that require gradients, but none of a layer that is as in the dense network and comes after all blocks.

    Such a layer, given what it was given before, does what it did before.
    """
    named = {name: p for name, p in student.named_parameters() if p.requires_grad}
    if not blocks:
        return list(named.values())
    outputs = run(student, few, blocks, output).blocks
    sums = [block.sum() for block in outputs if block.requires_grad]
    reached = torch.autograd.grad(sums, list(named.values()), allow_unused=True) if sums else [None] * len(named)
    # Statistics count too: a batch norm that a refit corrected for the old features must follow the new ones.
    changed = _changed_modules(student, teacher)
    learning = [
        parameter
        for (name, parameter), gradient in zip(named.items(), reached, strict=True)
        if gradient is not None or name.rpartition(".")[0] in changed
    ]
    return learning or list(named.values())


def step_size(parameter: nn.Parameter) -> Tensor:
    """What a step of Adam is multiplied by: the root mean square of the weights of a unit, or of a vector of biases.

    So the learning rate is a relative change, and one rate serves networks whose weights are of different sizes.
    """
    weights = parameter.detach()
    whole = weights.square().mean().sqrt()
    if weights.ndim < 2:
        return whole.clamp(min=SMALLEST_VECTOR)
    units = weights.flatten(1).square().mean(1).sqrt()
    return units.clamp(min=SMALLEST_UNIT * float(whole)).view(-1, *[1] * (weights.ndim - 1))


def _changed_modules(student: nn.Module, teacher: nn.Module) -> set[str]:
    """Paths of the modules with a parameter or buffer of their own that is not as in the dense network."""
    before = teacher.state_dict()
    return {
        name.rpartition(".")[0]
        for name, tensor in student.state_dict().items()
        if name not in before or tensor.shape != before[name].shape or not torch.equal(tensor, before[name].to(tensor))
    }
