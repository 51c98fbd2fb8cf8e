"""Groups to JSON and back, packed to be stored inside tickets."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from jaxtyping import Int64

from splinecut.networks.groups.values import Branch, Groups, Member, Producer, UnitGroup


def to_json(groups: Groups) -> dict[str, Any]:
    """Plain lists and dicts; `from_json` is the inverse."""
    return {
        "groups": [_group_to_json(group) for group in groups],
        "left_whole": dict(groups.left_whole),
        "branches": [{"name": b.name, "modules": [*b.modules], "keys": [*b.keys]} for b in groups.branches],
        "parameters": {key: list(shape) for key, shape in groups.parameter_shapes.items()},
        "buffers": {key: list(shape) for key, shape in groups.buffer_shapes.items()},
        "uses": dict(groups.uses),
        "fixed_flops": groups.fixed_flops,
        **({"unproved": groups.unproved} if groups.unproved else {}),
    }


def from_json(body: Mapping[str, Any]) -> Groups:
    """The groups that `to_json` wrote down."""
    return Groups(
        groups=tuple(map(_group_from_json, body["groups"])),
        left_whole=dict(body["left_whole"]),
        branches=tuple(Branch(b["name"], tuple(b["modules"]), tuple(b["keys"])) for b in body["branches"]),
        parameter_shapes={key: tuple(shape) for key, shape in body["parameters"].items()},
        buffer_shapes={key: tuple(shape) for key, shape in body["buffers"].items()},
        uses=dict(body["uses"]),
        fixed_flops=body["fixed_flops"],
        unproved=body.get("unproved", ""),
    )


def _group_to_json(group: UnitGroup) -> dict[str, Any]:
    members = [
        {"key": m.key, "axis": m.axis, "role": m.role, "units": _pack(m.units, group.size)}
        | ({} if m.source is None else {"source": _pack(m.source, group.size)})
        for m in group.members
    ]
    producers = [[p.path, p.weight, p.axis, p.bias, p.norm] for p in group.producers]
    return {"name": group.name, "size": group.size, "kind": group.kind, "producers": producers, "members": members}


def _group_from_json(body: Mapping[str, Any]) -> UnitGroup:
    size = body["size"]
    members = tuple(
        Member(
            key=m["key"],
            axis=m["axis"],
            role=m["role"],
            units=_unpack(m["units"], size),
            source=_unpack(m["source"], size) if "source" in m else None,
        )
        for m in body["members"]
    )
    return UnitGroup(body["name"], size, members, tuple(Producer(*p) for p in body["producers"]), body["kind"])


def _pack(units: Int64[np.ndarray, " positions"], size: int) -> list[int] | dict[str, int]:
    """Units as {length, start, block, times}: each unit `block` positions long, all of them `times` over, from `start`.

    That is how convolutions, flattening, concatenation and grouped convolutions lay them out; any other layout is
    listed position by position.
    """
    places = np.flatnonzero(units >= 0)
    start = int(places[0])
    block = int(np.argmin(units[start:] == units[start])) or len(units) - start
    times, rest = divmod(len(places), size * block)
    packed = {"length": len(units), "start": start, "block": block, "times": times}
    if rest == 0 and times and np.array_equal(_unpack(packed, size), units):
        return packed
    return [int(unit) for unit in units]


def _unpack(packed: list[int] | Mapping[str, int], size: int) -> Int64[np.ndarray, " positions"]:
    if isinstance(packed, list):
        return np.array(packed, np.int64)
    units = np.full(packed["length"], -1, np.int64)
    run = np.tile(np.repeat(np.arange(size), packed["block"]), packed["times"])
    units[packed["start"] : packed["start"] + len(run)] = run[: len(units) - packed["start"]]
    return units
