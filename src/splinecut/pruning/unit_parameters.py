"""The parameters that make a group's units: their filters, the norms of these, their cuts, their batch-norm scales.

Every function gives one number or row for each unit of a group, in the group's order. A unit that several layers make
(a residual stream ties them) has the sum over these layers.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import cast

import numpy as np
import torch
from jaxtyping import Float, Int64
from torch import Tensor, nn

from splinecut.geometry.cuts import Cuts, cuts, fold_batch_norm
from splinecut.networks.groups.values import Producer, UnitGroup

BatchNorm = nn.BatchNorm1d | nn.BatchNorm2d | nn.BatchNorm3d
"""As a type, and for `isinstance`."""


def filters(model: nn.Module, group: UnitGroup) -> Iterator[tuple[nn.Parameter, int, Int64[np.ndarray, " rows"]]]:
    """The weights and biases that make a group's units, the axis its rows lie on, and each row's unit (-1: none)."""
    for producer in group.producers:
        if producer.weight is not None:
            yield model.get_parameter(producer.weight), producer.axis, group.rows(producer)
            if producer.bias is not None:
                yield model.get_parameter(producer.bias), 0, group.rows(producer)


def filter_norm(model: nn.Module, group: UnitGroup) -> Float[np.ndarray, " units"]:
    """The L2 norm of each unit's filter, batch norm left out; of a selector's units the batch-norm scale."""
    if group.kind == "selector":
        return selector_scale(model, group)
    squares = np.zeros(group.size)
    for producer in group.producers:
        assert producer.weight is not None
        # Transposed layers have their units on another axis.
        weight = model.get_parameter(producer.weight).detach().double().movedim(producer.axis, 0).flatten(1)
        add_per_unit(squares, group.rows(producer), weight.square().sum(1))
    return np.sqrt(squares)


def add_per_unit(
    total: Float[np.ndarray, " units"], units: Int64[np.ndarray, " rows"], values: Float[Tensor, " rows"]
) -> None:
    """Adds each row's value to the unit it belongs to, in place; rows of no unit (-1) are left out."""
    # add.at, since `total[units] += values` adds only the last of several rows of one unit.
    np.add.at(total, units[units >= 0], values.cpu().numpy()[units >= 0])


def selector_scale(model: nn.Module, group: UnitGroup) -> Float[np.ndarray, " units"]:
    """|gain| of the batch norm behind each channel that a selector picks."""
    (producer,) = group.producers
    assert producer.norm is not None
    gain = cast(nn.BatchNorm2d, model.get_submodule(producer.norm)).weight.detach().abs().double().cpu().numpy()
    scale = np.zeros(group.size)
    source = group.rows(producer)
    scale[source[source >= 0]] = gain[source >= 0]
    return scale


def batch_norms(model: nn.Module, group: UnitGroup) -> list[tuple[BatchNorm, Int64[np.ndarray, " channels"]]]:
    """The batch norms that scale a group's units, each with the unit of every channel (-1: none).

    They are those right behind the layers that make the units. Where such a layer has none (the stream of a
    pre-activation network), they are all norms through which the units are read.
    """
    if all(producer.norm for producer in group.producers):
        paths = [(str(producer.norm), group.rows(producer)) for producer in group.producers]
    else:
        owned = [(*member.key.rpartition("."), member) for member in group.role("follower")]
        paths = [(path, member.units) for path, _, name, member in owned if name == "weight"]
    return [
        (module, units)
        for path, units in paths
        if isinstance(module := model.get_submodule(path), BatchNorm) and module.weight is not None
    ]


def batch_norm_scale(model: nn.Module, group: UnitGroup) -> Float[np.ndarray, " units"]:
    """|gamma| of each unit, added up over its batch norms; the norm of its filter where it has none."""
    norms = batch_norms(model, group)
    if not norms:
        return filter_norm(model, group)
    total = np.zeros(group.size)
    for norm, units in norms:
        add_per_unit(total, units, norm.weight.detach().abs().double())
    return total


def unit_cuts(model: nn.Module, group: UnitGroup, producer: Producer) -> Cuts:
    """The cut of each unit as `producer` draws it, batch norm folded in, in the order of the group's units.

    A transposed layer or one with several rows for a unit (grouped ones) gives the rows of a unit side by side.
    """
    assert producer.weight is not None
    weight = model.get_parameter(producer.weight).detach().movedim(producer.axis, 0)
    bias = model.get_parameter(producer.bias).detach() if producer.bias else None
    if producer.norm is not None:
        norm = cast(nn.BatchNorm2d, model.get_submodule(producer.norm))
        # A norm without running statistics shifts every batch differently: there is no one cut to fold it into.
        if norm.running_mean is not None and norm.running_var is not None:
            weight, bias = fold_batch_norm(
                weight, bias, norm.weight, norm.bias, norm.running_mean, norm.running_var, norm.eps
            )
    rows = group.rows(producer)
    order = np.argsort(rows, kind="stable")[np.sort(rows) >= 0].reshape(group.size, -1)
    picked = weight[torch.from_numpy(order)].flatten(1)
    offsets = None if bias is None else bias[torch.from_numpy(order)].double().mean(1)
    return cuts(picked.cpu(), None if offsets is None else offsets.cpu())
