"""Whether groups mean what they say: one unit taken from each, the cut network must equal the masked one."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves

from splinecut.networks.surgery.cut import cut
from splinecut.networks.surgery.mask import mask
from splinecut.networks.units import BLOCKS, Groups, Keep

_SLACK = {torch.float64: 1e-8, torch.float32: 1e-4}  # of the largest output; sums are taken in another order
_COARSE = 5e-2  # half precision

Trials = dict[str, Keep]


def proved(model: nn.Module, groups: Groups, inputs: tuple[Any, ...]) -> Groups:
    """The groups and branches that can leave as they claim; the groups that cannot are left whole, with the reason.

    All are tried at once; only when that fails are halves tried, and halves of halves.
    """
    places = np.arange(len(groups.branches))
    leave_branch: Trials = {branch.name: {BLOCKS: places != place} for place, branch in enumerate(groups.branches)}
    leave_unit: Trials = {group.name: {group.name: np.arange(group.size) > 0} for group in groups if group.size > 1}
    for name in _search(model, groups, inputs, leave_branch):
        groups = replace(groups, branches=tuple(branch for branch in groups.branches if branch.name != name))
    for name, reason in _search(model, groups, inputs, leave_unit).items():
        groups = _without(groups, name, reason)
    return groups


def _without(groups: Groups, name: str, reason: str) -> Groups:
    kept = tuple(group for group in groups if group.name != name)
    whole = dict(groups.left_whole) | {producer.path: reason for producer in groups[name].producers}
    touched = {member.key for group in kept for member in group.members}
    buffers = {key: shape for key, shape in groups.buffer_shapes.items() if key in touched}
    return replace(groups, groups=kept, left_whole=whole, buffer_shapes=buffers)


def _search(model: nn.Module, groups: Groups, inputs: tuple[Any, ...], trials: Trials) -> dict[str, str]:
    reason = _disagreement(model, groups, inputs, _together(trials)) if trials else None
    if reason is None:
        return {}
    if len(trials) == 1:
        return dict.fromkeys(trials, reason)
    names = list(trials)
    halves = [names[: len(names) // 2], names[len(names) // 2 :]]
    found: dict[str, str] = {}
    for half in halves:
        found |= _search(model, groups, inputs, {name: trials[name] for name in half})
    return found or dict.fromkeys(trials, reason)


def _together(trials: Trials) -> Keep:
    keep: dict[str, np.ndarray] = {}
    for trial in trials.values():
        for name, stays in trial.items():
            keep[name] = keep[name] & stays if name in keep else stays
    return keep


def _disagreement(model: nn.Module, groups: Groups, inputs: tuple[Any, ...], keep: Keep) -> str | None:
    """Why the cut network is not the masked one; None where it is."""
    with torch.no_grad():
        with mask(model, groups, keep):
            expected = _tensors(model(*inputs))
        try:
            got = _tensors(cut(model, groups, keep)(*inputs))
        except Exception as error:
            first = next(iter(str(error).splitlines()), "")
            return f"the network does not run without one of its units ({type(error).__name__}: {first[:120]})"
    if all(map(_close, expected, got)) and len(expected) == len(got):
        return None
    return "the network computes something else without one of its units: its code counts them"


def _tensors(output: Any) -> list[Tensor]:
    return [leaf for leaf in tree_leaves(output) if isinstance(leaf, Tensor)]


def _close(a: Tensor, b: Tensor) -> bool:
    if a.shape != b.shape or not a.is_floating_point():
        return bool(a.shape == b.shape and torch.equal(a, b))
    slack = _SLACK.get(a.dtype, _COARSE) * float(a.abs().nan_to_num(posinf=0).max()) if a.numel() else 0.0
    return torch.allclose(a, b, rtol=0.0, atol=slack, equal_nan=True)
