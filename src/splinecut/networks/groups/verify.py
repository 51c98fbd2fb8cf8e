"""Verifies groups: with random units removed, the cut network must equal the masked one.

What is compared is the network's code, on random weights and inputs (see `randomized`). Every group loses other random
units, in five rounds: a program that counts its units, or pairs units that were not tied, gives something else. The
outputs are compared, and what every layer that reads removed units gives. Then the two are compared in train mode, and
the cut network must run one step of training, forwards and backwards, where the dense one does.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _NormBase
from torch.nn.modules.dropout import _DropoutNd

from splinecut.networks.groups.randomized import (
    RandomizedCopy,
    change,
    close,
    copied,
    floating,
    randomized_copy,
    run_as_it_is,
    tensors,
)
from splinecut.networks.groups.values import BLOCKS, Groups, Keep
from splinecut.networks.inputs import Arguments
from splinecut.networks.model_state import evaluating
from splinecut.networks.surgery.cut import cut
from splinecut.networks.surgery.mask import mask

# Shares between which each group draws what it keeps, in rounds. Two of about a half, so that equal groups differ in
# size and in what is left; one of few units and two of a single unit, since arithmetic on a size (size // 8) may agree
# at half of it. Two, since a single unit may happen to be off.
_KEPT = ((0.4, 0.6), (0.4, 0.6), (0.1, 0.2), (0.0, 0.0), (0.0, 0.0))
_SINGLE = 3  # the first round of a single unit
_STOPS = "the network does not run"
_PATIENCE = 3  # branches that may fail for one reason, and none be right, before all the others are given up

Seen = dict[str, list[Tensor]]  # what was recorded of a run: path of a layer, or "outputs" -> tensors
Fails = Callable[[Sequence[str]], str | None]
"""(names of what leaves) -> why the network without it is wrong; None where it is right"""


def proved(model: nn.Module, groups: Groups, inputs: Arguments) -> Groups:
    """The groups and branches that can leave as they claim; the groups that cannot are left whole, with the reason.

    Where nothing compared reacts to what was removed, `Groups.unproved` says so.
    """
    if not groups.groups and not groups.branches:
        return groups
    try:
        spare = randomized_copy(model, inputs)
    except Exception as error:  # a network that cannot be copied cannot be cut either
        reason = f"the network cannot be copied ({_first_line(error)})"
        return _without(replace(groups, branches=()), {group.name: reason for group in groups})
    dense = _seen(spare.model, spare, groups, groups.full_keep())
    groups = _proved_branches(spare, groups, dense)
    for number in range(len(_KEPT)):
        wrong = _search([group.name for group in groups], _compare_check(spare, groups, dense, number))
        # A network that stops with an error at a single unit (squeeze() without an axis) gives no wrong result.
        is_fine = [name for name, reason in wrong.items() if number >= _SINGLE and reason.startswith(_STOPS)]
        groups = _without(groups, {name: reason for name, reason in wrong.items() if name not in is_fine})
    groups = _without(groups, _search([group.name for group in groups], _train_check(spare, groups)))
    return replace(groups, unproved=_unproved(spare, groups, dense))


def _proved_branches(spare: RandomizedCopy, groups: Groups, dense: Seen) -> Groups:
    def fails(names: Sequence[str]) -> str | None:
        stays = np.array([branch.name not in names for branch in groups.branches])
        return _compared(spare, groups, dense, {BLOCKS: stays})

    gone = _search([branch.name for branch in groups.branches], fails, _PATIENCE)
    return replace(groups, branches=tuple(branch for branch in groups.branches if branch.name not in gone))


def _kept(groups: Groups, number: int) -> dict[str, np.ndarray]:
    """What every group of two units or more keeps in a round: two units at least, but for the last rounds' one."""
    # Fixed by round and network: the same network always gives the same groups.
    random = np.random.default_rng([number, groups.n_units])
    least, kept = 1 if number >= _SINGLE else 2, {}
    for group in groups:
        n_kept = max(round(group.size * random.uniform(*_KEPT[number])), least)
        if group.size > 1:
            kept[group.name] = random.permutation(group.size) < min(n_kept, group.size - 1)
    return kept


def _search(names: list[str], fails: Fails, patience: int | None = None) -> dict[str, str]:
    """The names without which all the others are right together, and why each of them is not.

    All are tried at once; only when that fails are halves tried, each beside what is known to be right. With
    `patience`, after that many failures for one reason and no success the rest is taken to fail likewise.
    """
    reasons: dict[str, str] = {}

    def right(proved: list[str], rest: list[str], reason: str | None = None) -> list[str]:
        if patience and not proved and len(reasons) >= patience and len(set(reasons.values())) == 1:
            reasons.update(dict.fromkeys(rest, next(iter(reasons.values()))))
            return proved
        reason = reason or (fails([*proved, *rest]) if rest else None)
        if reason is None:
            return [*proved, *rest]
        if len(rest) == 1:
            reasons[rest[0]] = reason
            return proved
        # Halving finds f faults among n groups in about f log n comparisons; one by one takes n, each a forward pass.
        first, second = rest[: len(rest) // 2], rest[len(rest) // 2 :]
        more = right(proved, first)
        is_second_at_fault = len(more) == len(proved) + len(first)
        return right(more, second, reason if is_second_at_fault else None)

    right([], names)
    return reasons


def _without(groups: Groups, reasons: dict[str, str]) -> Groups:
    if not reasons:
        return groups
    kept = tuple(group for group in groups if group.name not in reasons)
    left_whole = dict(groups.left_whole)
    for name, reason in reasons.items():
        left_whole |= {producer.path: reason for producer in groups[name].producers}
    touched = {member.key for group in kept for member in group.members}
    buffers = {key: shape for key, shape in groups.buffer_shapes.items() if key in touched}
    return replace(groups, groups=kept, left_whole=left_whole, buffer_shapes=buffers)


def _compare_check(spare: RandomizedCopy, groups: Groups, dense: Seen, number: int) -> Fails:
    kept = _kept(groups, number)
    return lambda names: _compared(spare, groups, dense, {name: kept[name] for name in names if name in kept})


def _compared(spare: RandomizedCopy, groups: Groups, dense: Seen, keep: Keep) -> str | None:
    """Why the cut network is not the masked one; None where it is."""
    with mask(spare.model, groups, keep):
        expected = _seen(spare.model, spare, groups, keep)
    try:
        got = _seen(cut(spare.model, groups, keep), spare, groups, keep)
    except Exception as error:
        return f"{_STOPS} without some of its units ({_first_line(error)})"
    if len(expected["outputs"]) == len(got["outputs"]) and _is_alike(dense, expected, got, spare):
        return None
    if not spare.is_stable:
        return "the network gives something else each time it runs, so that nothing can be compared"
    return "the network computes something else without some of its units: its code counts them"


def _is_alike(dense: Seen, expected: Seen, got: Seen, spare: RandomizedCopy) -> bool:
    for path, values in expected.items():
        for before, a, b in zip(dense[path], values, got[path], strict=False):
            # What a reader gives to units that leave themselves has another size in the cut network.
            is_compared = path == "outputs" or a.shape == b.shape
            if is_compared and not close(a, b, spare.slack, change(before, a)):
                return False
    return True


def _seen(model: nn.Module, spare: RandomizedCopy, groups: Groups, keep: Keep) -> Seen:
    """The outputs of `model`, and those of every layer that reads units which leave under `keep`, by its path."""
    keys = {member.key for name in keep if name != BLOCKS for member in groups[name].role("consumer")}
    with evaluating(model), _recording(model, {key.rpartition(".")[0] for key in keys} - {""}) as seen:
        outputs = run_as_it_is(model, spare.inputs)
    return {**seen, "outputs": outputs}


@contextmanager
def _recording(model: nn.Module, paths: set[str]) -> Iterator[dict[str, list[Tensor]]]:
    seen: dict[str, list[Tensor]] = {path: [] for path in paths}

    def recorder(path: str) -> Callable[[nn.Module, Any, Any], None]:
        return lambda module, args, output: seen[path].extend(value.clone() for value in tensors(output))

    handles = [model.get_submodule(path).register_forward_hook(recorder(path)) for path in paths]
    try:
        yield seen
    finally:
        for handle in handles:
            handle.remove()


def _train_check(spare: RandomizedCopy, groups: Groups) -> Fails:
    """Compares train mode without about half of the units, and tries a step; passes where the dense network cannot.

    Dropout and the statistics of batch norms are switched off: what is left of train mode is the network's own code.
    """
    dense = _in_train_mode(copied(spare.model))
    if _untrainable(copied(spare.model), spare.inputs) is not None:
        return lambda names: None
    outputs = [run_as_it_is(dense, spare.inputs, seed) for seed in (0, 1)]
    is_stable = all(close(a, b, spare.slack, 0.0) for a, b in zip(*outputs, strict=True))
    kept = _kept(groups, 0)

    def fails(names: Sequence[str]) -> str | None:
        keep = {name: kept[name] for name in names if name in kept}
        smaller = cut(spare.model, groups, keep)
        reason = _untrainable(copied(smaller), spare.inputs)
        if reason is not None:
            return f"the network does not train without some of its units ({reason})"
        with mask(dense, groups, keep):
            expected = run_as_it_is(dense, spare.inputs)
        got = run_as_it_is(_in_train_mode(smaller), spare.inputs)
        pairs = zip(outputs[0], expected, got, strict=False)
        if is_stable and not all(close(a, b, spare.slack, change(before, a)) for before, a, b in pairs):
            return "the network computes something else in train mode without some of its units: its code counts them"
        return None

    return fails


def _in_train_mode(model: nn.Module) -> nn.Module:
    for module in model.train().modules():
        if isinstance(module, _NormBase | _DropoutNd):
            module.eval()
    return model


def _untrainable(model: nn.Module, inputs: Arguments) -> str | None:
    """Why one forward and backward pass in train mode fails; None where it does not."""
    try:
        with torch.enable_grad(), torch.random.fork_rng(devices=[]), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            torch.manual_seed(0)
            values = [v for v in floating(tensors(model.train()(*inputs))) if v.requires_grad]
            if values:
                sum(value.abs().sum() for value in values).backward()  # type: ignore[union-attr]
    except Exception as error:
        return _first_line(error)
    return None


def _unproved(spare: RandomizedCopy, groups: Groups, dense: Seen) -> str:
    kept = _kept(groups, 0)
    if not kept:
        return ""
    with mask(spare.model, groups, kept):
        masked = _seen(spare.model, spare, groups, kept)
    pairs = [(a, b) for path, values in masked.items() for a, b in zip(dense[path], values, strict=False)]
    if any(floating([a]) and not close(a, b, spare.slack, 0.0) for a, b in pairs):
        return ""
    return "the outputs do not react when units are removed, so that a wrong cut would not show"


def _first_line(error: Exception) -> str:
    first = next(iter(str(error).splitlines()), "")
    return f"{type(error).__name__}: {first[:120]}" if first else type(error).__name__
