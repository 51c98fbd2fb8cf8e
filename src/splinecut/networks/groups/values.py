"""Channel groups as values: which slices of which tensors are one unit, and the cost of the network without some.

A keep map says what stays: group name -> one bool per unit. These values suffice to prune a network that was never
traced, as long as its tensors have the same names and shapes.
"""

from __future__ import annotations

import hashlib
import json
import warnings
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Literal

import numpy as np
from jaxtyping import Bool, Int64
from torch import nn

from splinecut.errors import InputError, unknown

Keep = Mapping[str, Bool[np.ndarray, " units"]]
Role = Literal["producer", "follower", "consumer", "selector", "pointer"]
BLOCKS = "blocks"  # the key of a keep map under which whole residual branches stay or go


@dataclass(frozen=True, eq=False)
class Member:
    """One axis of one parameter or buffer, and which unit of the group each position belongs to (-1: none).

    producer: the unit's own weights; follower: what goes along with it (norms, depthwise filters, scales);
    consumer: the weights that read it. A selector is a list of channels whose entries are the units; `source` has the
    unit that picks each channel. A pointer is a list of channels of an axis that shrinks itself; `source` has the
    unit of each channel, and what is left of the list is renumbered.
    """

    key: str
    axis: int
    role: Role
    units: Int64[np.ndarray, " positions"]
    source: Int64[np.ndarray, " inputs"] | None = None

    def stays(self, keep: Bool[np.ndarray, " units"]) -> Bool[np.ndarray, " positions"]:
        """Which positions stay when the units in `keep` do; those of no unit always do."""
        return _stays(self.units, keep)


@dataclass(frozen=True)
class Producer:
    """A layer that makes the group's units: its weight and bias, and the batch norm that reads nothing else.

    A selector makes nothing; it has no weight, and `norm` is the batch norm whose channels it picks.
    """

    path: str
    weight: str | None
    axis: int  # of the weight, along which its units lie
    bias: str | None
    norm: str | None


@dataclass(frozen=True, eq=False)
class UnitGroup:
    """`size` units that leave one by one, each taking its slices of all `members` along."""

    name: str
    size: int
    members: tuple[Member, ...]
    producers: tuple[Producer, ...]
    kind: Literal["channels", "selector"] = "channels"

    def __len__(self) -> int:
        return self.size

    def role(self, role: Role) -> tuple[Member, ...]:
        """The members that play `role`."""
        return tuple(member for member in self.members if member.role == role)

    def rows(self, producer: Producer) -> Int64[np.ndarray, " rows"]:
        """The unit of each row of the producer's weight; of each channel of the norm, for a selector."""
        if producer.weight is None:
            selector = self.role("selector")[0]
            assert selector.source is not None
            return selector.source
        return next(m.units for m in self.members if (m.key, m.axis) == (producer.weight, producer.axis))

    def __str__(self) -> str:
        others = ", ".join(p.path for p in self.producers if p.path != self.name)
        read = ", ".join(sorted({_owner(m.key) for m in self.role("consumer")}))
        return f"{self.name}: {self.size} units{f', tied with {others}' if others else ''}, read by {read or 'nothing'}"


@dataclass(frozen=True)
class Branch:
    """A residual branch that can go whole: the modules that run only in it, and their parameters."""

    name: str
    modules: tuple[str, ...]
    keys: tuple[str, ...]


@dataclass(frozen=True, eq=False)
class Groups:
    """All groups of a network in the order they run, what was left whole and why, and what the network costs."""

    groups: tuple[UnitGroup, ...]
    left_whole: Mapping[str, str]
    branches: tuple[Branch, ...]
    parameter_shapes: Mapping[str, tuple[int, ...]]
    buffer_shapes: Mapping[str, tuple[int, ...]]
    uses: Mapping[str, int] = field(repr=False)  # weight -> how often a forward pass of one input multiplies by it
    fixed_flops: int = 0  # of products without weights, such as attention
    unproved: str = ""  # why no comparison could show that cutting is right; empty where one did

    def __len__(self) -> int:
        return len(self.groups)

    def __iter__(self) -> Iterator[UnitGroup]:
        return iter(self.groups)

    def __getitem__(self, which: int | str) -> UnitGroup:
        if isinstance(which, int):
            return self.groups[which]
        if which not in self._by_name:
            raise unknown("group", which, self._by_name)
        return self._by_name[which]

    def __str__(self) -> str:
        lines = [str(group) for group in self.groups]
        lines += [f"{name}: left whole, {reason}" for name, reason in self.left_whole.items()]
        lines += [f"not proved: {self.unproved}"] if self.unproved else []
        return "\n".join(lines)

    @cached_property
    def _by_name(self) -> dict[str, UnitGroup]:
        return {group.name: group for group in self.groups}

    @property
    def n_units(self) -> int:
        return sum(group.size for group in self.groups)

    def full_keep(self) -> dict[str, Bool[np.ndarray, " units"]]:
        """The keep map that keeps every unit."""
        return {group.name: np.ones(group.size, bool) for group in self.groups}

    def everything(self) -> dict[str, Bool[np.ndarray, " units"]]:
        """Deprecated name of `full_keep`."""
        warnings.warn("Groups.everything is now full_keep; the old name goes in 0.3", DeprecationWarning, stacklevel=2)
        return self.full_keep()

    def check(self, keep: Keep) -> None:
        """Raises InputError where `keep` names no group of this network or has the wrong length."""
        for name, kept in keep.items():
            size = len(self.branches) if name == BLOCKS and self.branches else self[name].size
            if np.shape(kept) != (size,):
                raise InputError(f"keep of group {name} must have shape ({size},), got {np.shape(kept)}; one per unit")

    def check_model(self, model: nn.Module) -> None:
        """Raises InputError where `model` is not the network these groups were read from, at full size."""
        has = dict(model.named_parameters()) | dict(model.named_buffers())
        for key, shape in {**self.parameter_shapes, **self.buffer_shapes}.items():
            if key not in has:
                raise unknown("tensor of this network", key, has, remedy="apply the ticket to the same architecture")
            if tuple(has[key].shape) != shape:
                raise InputError(
                    f"{key} must have shape {shape}, got {tuple(has[key].shape)}; "
                    "apply the ticket to an uncut network of the architecture it was drawn for"
                )
        for member in (member for group in self.groups for member in group.members):
            if member.source is None:
                continue
            # Lists of channels decide which unit is which, so that they must be the ones the groups were read from.
            places = has[member.key].detach().cpu().numpy()
            ours = member.units >= 0
            if not np.array_equal(member.source[places[ours]], member.units[ours]):
                raise InputError(f"{member.key} lists other channels than in the network the ticket was drawn for")

    def slices(self, keep: Keep) -> dict[str, dict[int, Bool[np.ndarray, " positions"]]]:
        """For every tensor that shrinks under `keep`: axis -> which positions stay."""
        by_key: dict[str, dict[int, np.ndarray]] = {}
        for name, kept in keep.items():
            if name == BLOCKS or kept.all():
                continue
            for member in self[name].members:
                axes = by_key.setdefault(member.key, {})
                stays = member.stays(keep_at_least_one(kept))
                axes[member.axis] = axes[member.axis] & stays if member.axis in axes else stays
        return by_key

    def dropped(self, keep: Keep) -> tuple[Branch, ...]:
        """The branches that go whole under `keep`."""
        kept = keep.get(BLOCKS, np.ones(len(self.branches), bool))
        return tuple(branch for branch, stays in zip(self.branches, kept, strict=True) if not stays)

    def parameters(self, keep: Keep | None = None) -> int:
        """How many parameters the network has when `keep` stays."""
        return sum(self._sizes(keep or {}, self.parameter_shapes).values())

    def flops(self, keep: Keep | None = None) -> int:
        """FLOPs of a forward pass of one input when `keep` stays: two per multiply-add, norms not counted."""
        sizes = self._sizes(keep or {}, {**self.parameter_shapes, **self.buffer_shapes})
        return self.fixed_flops + 2 * sum(uses * sizes.get(key, 0) for key, uses in self.uses.items())

    def _sizes(self, keep: Keep, shapes: Mapping[str, tuple[int, ...]]) -> dict[str, int]:
        slices = self.slices(keep)
        gone = {key for branch in self.dropped(keep) for key in branch.keys}
        sizes = {}
        for key, shape in shapes.items():
            if key not in gone:
                axes = slices.get(key, {})
                sizes[key] = int(np.prod([axes[a].sum() if a in axes else n for a, n in enumerate(shape)], dtype=int))
        return sizes

    @cached_property
    def fingerprint(self) -> str:
        """A digest of the units and the tensors they live in: equal for equal architectures read alike."""
        from splinecut.networks.groups.serialization import to_json

        facts = {name: value for name, value in to_json(self).items() if name not in ("left_whole", "unproved")}
        return hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()[:16]


def keep_at_least_one(kept: Bool[np.ndarray, " units"]) -> Bool[np.ndarray, " units"]:
    """What a cut network holds: a group of which nothing stays keeps its first unit, so that no layer is empty."""
    return kept if np.any(kept) else np.arange(len(kept)) == 0


def _stays(units: Int64[np.ndarray, " positions"], keep: Bool[np.ndarray, " units"]) -> np.ndarray:
    return np.where(units < 0, True, np.asarray(keep, bool)[units])


def _owner(key: str) -> str:
    return key.rpartition(".")[0] or key
