"""A ticket: what stays of a network, as a value to print, save, compare and replay.

Between scoring a network and cutting it stands a ticket. It carries the groups it speaks of, so it can be applied to
any network of the same architecture, traced or not.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

import numpy as np
from jaxtyping import Bool
from torch import nn

from splinecut.errors import InputError
from splinecut.files import write_atomically, write_json
from splinecut.networks.groups.serialization import from_json, to_json
from splinecut.networks.groups.values import BLOCKS, Groups
from splinecut.networks.model_state import unwrapped
from splinecut.pruning.budget import Budget

SCHEMA = 1
_HEADER = "splinecut"


@dataclass(frozen=True)
class Achieved:
    """What a ticket keeps and of how much; parameters and FLOPs are those of the network it makes."""

    kept: int
    of: int
    parameters: int | None = None
    all_parameters: int | None = None
    flops: int | None = None
    all_flops: int | None = None

    @property
    def density(self) -> float:
        """The share of units (or single weights) kept."""
        return self.kept / self.of if self.of else 1.0


@dataclass(frozen=True, eq=False)
class Ticket:
    """keep: group -> one bool per unit ("blocks" -> one per residual branch); True stays, missing groups stay whole.

    Without `groups` it is a ticket of single weights: parameter name -> one bool per weight.
    """

    keep: Mapping[str, Bool[np.ndarray, " *units"]]
    groups: Groups | None = None
    method: str = ""
    budget: Budget | None = None
    options: Mapping[str, Any] = field(default_factory=dict)  # of the method, as plain JSON
    facts: Mapping[str, Any] = field(default_factory=dict)  # what drawing it found out, as plain JSON

    def __post_init__(self) -> None:
        keep = {name: np.array(kept, dtype=bool) for name, kept in self.keep.items()}  # copies: a ticket is a value
        if self.groups is not None:
            self.groups.check(keep)
            keep = {**self.groups.full_keep(), **keep}
        for kept in keep.values():  # hashed and cached (`achieved`): a changed array would belie both
            kept.setflags(write=False)
        object.__setattr__(self, "keep", keep)

    @property
    def kind(self) -> Literal["channels", "weights", "blocks"]:
        if self.groups is None:
            return "weights"
        return "blocks" if BLOCKS in self.keep else "channels"

    @property
    def predicted(self) -> float | None:
        """How far the refitted network's outputs will be from the dense ones, if the method measured it.

        The squared error relative to the dense outputs (of scores of classes, to their differences), on inputs that
        were held out of the fit.
        """
        return self.facts.get("predicted")

    @cached_property
    def achieved(self) -> Achieved:
        """What is really kept, whatever the budget says."""
        # A ticket of blocks also lists all channels, which would hide how many blocks it drops.
        counted = [self.keep[BLOCKS]] if self.kind == "blocks" else list(self.keep.values())
        kept, total = sum(int(k.sum()) for k in counted), sum(k.size for k in counted)
        if self.groups is None:
            return Achieved(kept, total)
        groups = self.groups
        return Achieved(
            kept, total, groups.parameters(self.keep), groups.parameters(), groups.flops(self.keep), groups.flops()
        )

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Ticket):
            return NotImplemented
        return self._facts() == other._facts() and all(np.array_equal(self.keep[n], other.keep[n]) for n in self.keep)

    def __hash__(self) -> int:
        return hash((self.method, tuple((name, kept.tobytes()) for name, kept in self.keep.items())))

    def _facts(self) -> tuple[Any, ...]:
        fingerprint = None if self.groups is None else self.groups.fingerprint
        return (fingerprint, self.method, self.budget, dict(self.options), list(self.keep))

    def __str__(self) -> str:
        lines = [f"ticket of {self.method or 'unnamed method'}" + (f": {self.budget}" if self.budget else "")]
        width = max(map(len, self.keep), default=0)
        lines += [f"  {name:{width}}  {int(kept.sum())} of {kept.size}" for name, kept in self.keep.items()]
        a = self.achieved
        lines.append(f"  keeps {a.kept} of {a.of} {self.kind} ({a.density:.1%})")
        if a.parameters is not None and a.flops is not None and a.all_parameters and a.all_flops:
            lines.append(f"  {a.parameters} of {a.all_parameters} parameters ({a.parameters / a.all_parameters:.1%})")
            lines.append(f"  {a.flops} of {a.all_flops} FLOPs ({a.flops / a.all_flops:.1%})")
        if self.predicted is not None:
            lines.append(f"  predicted output error after refit: {self.predicted:.3g} of the output, squared")
        for layer, needed in self.facts.get("limited", {}).items():
            lines.append(f"  {layer}: limited by the probe; {needed} inputs or more would do")
        return "\n".join(lines)

    def distance(self, other: Ticket) -> float:
        """The share of units on which two tickets of one architecture disagree: normalised Hamming distance."""
        shapes = [{name: kept.shape for name, kept in ticket.keep.items()} for ticket in (self, other)]
        if shapes[0] != shapes[1]:
            raise InputError("tickets must speak of the same units; compare tickets drawn from one architecture")
        differing = sum(int((self.keep[name] != other.keep[name]).sum()) for name in self.keep)
        return differing / max(1, sum(kept.size for kept in self.keep.values()))

    def check(self, model: nn.Module) -> None:
        """Raises InputError where `model` is not of the architecture the ticket was drawn for."""
        if self.groups is not None:
            self.groups.check_model(unwrapped(model))

    def save(self, path: str | Path) -> Path:
        """Writes the ticket: channels and blocks as .json, single weights as .safetensors, one bit each."""
        path = Path(path)
        # Channels are few and read by people; a mask of single weights has as many bits as the network has weights.
        suffix = ".safetensors" if self.groups is None else ".json"
        if path.suffix != suffix:
            raise InputError(f"a ticket of {self.kind} is saved as {suffix}, got {path.name}; use {path.stem}{suffix}")
        if self.groups is None:
            return self._save_weights(path)
        bits = {name: "".join("01"[int(stays)] for stays in kept) for name, kept in self.keep.items()}
        return write_json(path, self._header() | {"keep": bits, "groups": to_json(self.groups)})

    def _save_weights(self, path: Path) -> Path:
        from safetensors.numpy import save

        packed = {name: np.packbits(kept.reshape(-1)) for name, kept in self.keep.items()}
        header = self._header() | {"shapes": {name: list(kept.shape) for name, kept in self.keep.items()}}
        data = save(packed, metadata={_HEADER: json.dumps(header)})
        return write_atomically(path, lambda file: file.write_bytes(data))

    def _header(self) -> dict[str, Any]:
        return {
            "schema": SCHEMA,
            "kind": self.kind,
            "method": self.method,
            "options": dict(self.options),
            "budget": asdict(self.budget) if self.budget else None,
            "achieved": asdict(self.achieved),
        } | ({"facts": dict(self.facts)} if self.facts else {})

    @classmethod
    def load(cls, path: str | Path) -> Ticket:
        """The ticket saved at `path`."""
        path = Path(path)
        try:
            header, packed = _read(path)
        except (OSError, ValueError, KeyError) as error:
            raise InputError(f"{path} cannot be read as a ticket ({error}); write one with Ticket.save") from error
        if header.get("schema") != SCHEMA:
            raise InputError(f"{path} has ticket schema {header.get('schema')}, expected {SCHEMA}; draw it again")
        budget = Budget(**header["budget"]) if header["budget"] else None
        if packed is None:
            keep = {name: np.array([bit == "1" for bit in bits]) for name, bits in header["keep"].items()}
            facts = header.get("facts", {})
            return cls(keep, from_json(header["groups"]), header["method"], budget, header["options"], facts)
        keep = {name: _unpacked(packed[name], shape) for name, shape in header["shapes"].items()}
        return cls(keep, None, header["method"], budget, header["options"])


def emptied(keep: Mapping[str, Bool[np.ndarray, " *units"]]) -> list[str]:
    """The groups of which nothing stays."""
    return [name for name, kept in keep.items() if kept.size and not kept.any()]


def random_twin(ticket: Ticket, seed: int) -> Ticket:
    """A ticket with the same count in every layer or group and its units drawn at random: it isolates the criterion."""
    generator = np.random.default_rng(seed)
    keep = {name: generator.permuted(kept.reshape(-1)).reshape(kept.shape) for name, kept in ticket.keep.items()}
    return replace(ticket, keep=keep, method=f"{ticket.method} (random twin)", options={"seed": seed}, facts={})


def _read(path: Path) -> tuple[dict[str, Any], dict[str, np.ndarray] | None]:
    if path.suffix == ".json":
        return json.loads(path.read_text(encoding="utf-8")), None
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(path, "np") as file:
            header = json.loads((file.metadata() or {})[_HEADER])
            return header, {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118  (not a dict)
    except SafetensorError as error:
        raise ValueError(str(error)) from error


def _unpacked(bits: np.ndarray, shape: list[int]) -> Bool[np.ndarray, " *units"]:
    return np.unpackbits(bits, count=int(np.prod(shape))).astype(bool).reshape(shape)
