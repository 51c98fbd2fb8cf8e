"""Reads the groups of a network: channels that must be removed together."""

from __future__ import annotations

import contextlib
from dataclasses import replace

import numpy as np
import torch
from jaxtyping import Int64
from scipy.sparse import coo_matrix
from scipy.sparse.csgraph import connected_components
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves, tree_map_only

from splinecut.errors import InputError, unknown
from splinecut.networks.cost import count_flops
from splinecut.networks.export import canonical_names, export
from splinecut.networks.groups.label_pass import LabelPass, Maker
from splinecut.networks.groups.labels import varies
from splinecut.networks.groups.randomized import copied, run
from splinecut.networks.groups.residual_branches import branches
from splinecut.networks.groups.values import Branch, Groups, Member, Producer, UnitGroup
from splinecut.networks.inputs import Arguments, as_arguments, count, take, to_model
from splinecut.networks.model_state import evaluating, unwrapped

RESIDUAL = {
    "tied": "a residual stream shrinks as one",
    "auto": "as tied; the default criterion leaves a stream whole unless cutting it is measured to be better",
    "select": "streams stay whole; blocks drop inputs by their `Select` modules, each a group of its own",
    "inner": "streams stay whole; only units that never meet a residual sum can leave",
}
_ROWS = 2  # of the example that are run


def groups(model: nn.Module, example: Tensor | Arguments, residual: str = "tied", prove: bool = True) -> Groups:
    """The groups of `model`, in the order they run; `left_whole` says what cannot be cut and why.

    example:  (batch, *input), or a tuple of the network's arguments.
    residual: "tied" or "auto" (a stream shrinks as one), "select" (streams stay; `Select` modules are groups), "inner".
    prove:    take random units out of every group, in five rounds, compare the cut network with the masked one on
              random weights and inputs in float64, and leave whole what does not agree: code that counts channels by
              itself cannot be read off a graph. `Groups.unproved` says where no comparison could show anything.

    The network is read in eval mode, as a copy: it is left as found.
    """
    from splinecut.networks.groups.verify import proved

    if residual not in RESIDUAL:
        raise unknown("residual policy", residual, RESIDUAL)
    residual = "tied" if residual == "auto" else residual
    if not isinstance(model, nn.Module):
        raise InputError(f"model must be an nn.Module, got a {type(model).__name__}; wrap it in one")
    model = unwrapped(model)
    _refuse_unwritable(model)
    with evaluating(model), torch.random.fork_rng(devices=[]):
        spare = _spare(model)
        inputs, batch = _rows(spare, example)
        walk = LabelPass(export(spare, inputs, any_batch=False), spare, residual, batch).run()
        _freeze_shared_memory(walk, model)
        unproved = _read(walk, branches(walk), None if walk.is_priced else count_flops(spare, inputs) // batch)
        return proved(spare, unproved, inputs) if prove else replace(unproved, unproved="it was read with prove=False")


def _spare(model: nn.Module) -> nn.Module:
    """A copy to be read: running or exporting a network may leave caches behind. What has no copy is read itself."""
    try:
        return copied(model)
    except Exception:  # deepcopy raises whatever the modules of a stranger raise
        return model


def _refuse_unwritable(model: nn.Module) -> None:
    for name, parameter in model.named_parameters():
        if isinstance(parameter, nn.parameter.UninitializedParameter):
            raise InputError(f"{name} has no shape yet; run the network once on a batch of inputs before it is pruned")
        if parameter.is_inference():
            raise InputError(
                f"{name} was made in inference mode and cannot be changed; build the network outside of it"
            )


def _freeze_shared_memory(walk: LabelPass, model: nn.Module) -> None:
    """Parameters that are two objects over one memory stay: a copy of the network would part them."""
    owner: dict[int, str] = {}
    for key, parameter in model.named_parameters():
        first = owner.setdefault(parameter.data_ptr(), key) if parameter.numel() else key
        for other in (key, first) if first != key and parameter.data_ptr() else ():
            for (name, _), labels in walk.ties.slots.items():
                if name == other:
                    walk.ties.freeze(labels, f"{key} shares its memory with {first}")


def _rows(model: nn.Module, example: Tensor | Arguments) -> tuple[Arguments, int]:
    """The arguments to read the network with, and how many inputs they are.

    Two rows of the example do, where the network runs on two. Otherwise the example is taken whole: as one input where
    its tensors have different numbers of rows (a graph's nodes and edges).
    """
    inputs = tree_map_only(Tensor, Tensor.detach, as_arguments(example))
    given = [value for value in inputs if isinstance(value, Tensor)]
    if max(value.ndim for value in given) < 2 and any(value.is_floating_point() for value in given):
        raise InputError(f"example must be a batch of inputs (batch, *input), got {_shapes(inputs)}; add a batch axis")
    # Two, not one: with one row a program may drop the batch axis and still run.
    short = take(inputs, slice(_ROWS))
    for tried in (short, to_model(short, model)):
        with contextlib.suppress(Exception):  # whatever the network raises: rows were perhaps cut wrongly
            run(model, tried)
            return tried, count(tried)
    lengths = {len(leaf) for leaf in tree_leaves(inputs) if isinstance(leaf, Tensor) and leaf.ndim}
    try:
        run(model, inputs)
    except Exception as error:
        raise _does_not_run(inputs, error) from error
    return inputs, lengths.pop() if len(lengths) == 1 else 1


def _does_not_run(inputs: Arguments, error: Exception) -> InputError:
    first = next((line.strip() for line in str(error).splitlines() if line.strip()), "")
    hint = "; does the example lack a batch axis?" if len(inputs) == 1 and inputs[0].ndim in (1, 3) else ""
    return InputError(
        f"the network does not run on the example ({_shapes(inputs)}): {type(error).__name__}: {first[:200]}{hint}"
    )


def _shapes(inputs: Arguments) -> str:
    return ", ".join(
        f"shape {tuple(value.shape)}" if isinstance(value, Tensor) else type(value).__name__ for value in inputs
    )


def _read(walk: LabelPass, droppable: tuple[Branch, ...], flops: int | None) -> Groups:
    """Turns the ties of a walk into groups: a class of labels is a unit, layers that share units are a group."""
    _settle_values(walk)
    of, frozen = walk.ties.classes()
    rows = [of[walk.ties.slots[maker.key, maker.axis].numpy()] for maker in walk.makers]
    owner, unit = np.full(len(of), -1), np.full(len(of), -1)  # of each class: its group, and which unit of it
    parts: list[tuple[int, list[Maker]]] = []
    left_whole = dict(walk.whole)
    for together in _components(rows):
        makers = [walk.makers[m] for m in together]
        classes = np.array(list(dict.fromkeys(np.concatenate([rows[m] for m in together]).tolist())), np.int64)
        reason = next((frozen[c] for c in classes.tolist() if c in frozen), None)
        # One class for all rows: they leave together or not at all, and a layer must not be empty.
        if reason is None and len(classes) == 1 < len(rows[together[0]]):
            reason = "all its units are tied together"
        if reason is not None:
            left_whole |= {maker.path: reason for maker in makers}
            continue
        owner[classes], unit[classes] = len(parts), np.arange(len(classes))
        parts.append((len(classes), makers))
    members = _members(walk, of, owner, unit, len(parts))
    names = _names([makers[0] for _, makers in parts])
    unit_groups = tuple(map(_group, names, parts, members, [walk] * len(parts)))
    return _with_costs(walk, unit_groups, left_whole, droppable, flops)


def _names(first: list[Maker]) -> list[str]:
    """A group is named by the module that makes its units, or by the parameter where a module makes several groups."""
    paths = [maker.path for maker in first]
    return [maker.path if paths.count(maker.path) == 1 else maker.key for maker in first]


def _group(name: str, part: tuple[int, list[Maker]], members: tuple[Member, ...], walk: LabelPass) -> UnitGroup:
    size, makers = part
    producers = tuple(
        Producer(m.path, None if m.is_selector else m.key, m.axis, m.bias, walk.norm_after.get(m.key)) for m in makers
    )
    return UnitGroup(name, size, members, producers, "selector" if makers[0].is_selector else "channels")


def _settle_values(walk: LabelPass) -> None:
    """Parameters that were added or multiplied: units must lie along one axis of theirs, or they stay."""
    of, _ = walk.ties.classes()
    weights = {key for key, _ in walk.ties.slots}
    for key, labels in walk.as_value.items():
        classes = torch.from_numpy(of)[labels.flatten()].view(labels.shape)
        axes = [axis for axis in range(labels.ndim) if varies(classes, axis)]
        if key in weights or len(axes) > 1:
            walk.ties.freeze(labels, f"{key} is used in a way that does not say which axis its units lie along")
        elif axes:
            weight_labels = walk.ties.axis_labels(key, axes[0], labels.shape[axes[0]])
            walk.roles[key, axes[0]] = "follower"
            walk.ties.tie(weight_labels, walk.ties.along(labels, axes[0]))


def _components(classes_of: list[Int64[np.ndarray, " rows"]]) -> list[list[int]]:
    """Makers that share a class, in the order of their first; each list is one group."""
    if not classes_of:
        return []
    rows = np.repeat(np.arange(len(classes_of)), [len(classes) for classes in classes_of])
    columns = np.concatenate(classes_of)
    size = len(classes_of) + int(columns.max()) + 1
    # Layers and classes as the two sides of one graph: layers are joined through the classes they share.
    graph = coo_matrix((np.ones(len(rows), bool), (rows, len(classes_of) + columns)), shape=(size, size))
    _, component = connected_components(graph, directed=False)
    components: dict[int, list[int]] = {}
    for maker in range(len(classes_of)):
        components.setdefault(int(component[maker]), []).append(maker)
    return list(components.values())


def _members(
    walk: LabelPass,
    of: Int64[np.ndarray, " labels"],
    owner: Int64[np.ndarray, " classes"],
    unit: Int64[np.ndarray, " classes"],
    n_groups: int,
) -> list[tuple[Member, ...]]:
    by_group: list[list[Member]] = [[] for _ in range(n_groups)]
    for (key, axis), labels in walk.ties.slots.items():
        classes = of[labels.numpy()]
        for group in np.unique(owner[classes][owner[classes] >= 0]):
            units = np.where(owner[classes] == group, unit[classes], -1)
            source = None
            if key in walk.points_at:
                pointed = walk.points_at[key].numpy()
                is_ours = (pointed >= 0) & (owner[of[pointed]] == group)
                source = np.where(is_ours, unit[of[pointed]], -1)
            by_group[group].append(Member(key, axis, walk.roles[key, axis], units, source))
    return [tuple(members) for members in by_group]


def _with_costs(
    walk: LabelPass,
    unit_groups: tuple[UnitGroup, ...],
    left_whole: dict[str, str],
    droppable: tuple[Branch, ...],
    flops: int | None,
) -> Groups:
    first = set(canonical_names(walk.model).values())
    parameters = {key: tuple(p.shape) for key, p in walk.model.named_parameters() if key in first}
    touched = {member.key for group in unit_groups for member in group.members}
    buffers = {key: tuple(b.shape) for key, b in walk.model.named_buffers() if key in touched or key in walk.uses}
    priced = Groups(unit_groups, left_whole, droppable, parameters, buffers, walk.uses)
    if flops is None:
        return priced
    # A product that was priced by the walk but not by the count ran in a fused kernel that the count does not know.
    assert flops >= priced.flops(), f"counted {flops} FLOPs, but layers alone have {priced.flops()}"
    return replace(priced, fixed_flops=flops - priced.flops())
