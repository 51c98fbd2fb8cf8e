"""Finds where units change state between neighbouring vertices of a segment.

Between two neighbours every value is linear in the share tau of the way, so a unit of a fold crosses its kink at most
once and the winner of a maximum changes where straight lines cross: both are found in closed form.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from splinecut.geometry.graph import Layer, Node


@dataclass(frozen=True)
class Crossings:
    """New vertices at t[left] + tau (t[left + 1] - t[left]), in order along the line.

    Several units may change state at one vertex: `snap_*` lists them all, with the kink their value there equals
    exactly. (The winners of a maximum are not snapped: nothing reads them apart again.)
    """

    left: Int[Tensor, " new"]
    tau: Float[Tensor, " new"]
    layer: Int[Tensor, " new"]
    unit: Int[Tensor, " new"]
    snap_vertex: Int[Tensor, " snaps"]
    snap_unit: Int[Tensor, " snaps"]
    snap_kink: Float[Tensor, " snaps"]


@dataclass(frozen=True)
class _Change:
    """Changes of state of one layer, unsorted: at share `tau` between rows `left` and `left + 1`."""

    left: Int[Tensor, " changes"]
    tau: Float[Tensor, " changes"]
    unit: Int[Tensor, " changes"]


def crossings(
    node: Node,
    layers: list[tuple[int, Layer]],
    values: Float[Tensor, " rows entries"],
    t: Float[Tensor, " rows"],
    tolerance: float,
    width: float,
) -> Crossings:
    """The new vertices that a folding node needs; `layers` are its own with their places among all layers.

    A value within `tolerance` times the largest is zero; changes closer than `width` in t are one.
    """
    # Relative to the layer: a unit may cancel to zero, and rounding is relative to what it was summed from.
    margin = tolerance * float(values.abs().amax())
    if node.role == "max":
        crossings = [_overtakings(node, values, margin)]
    else:
        crossings = [_sign_changes(values - layer.kink if layer.kink else values, margin) for _, layer in layers]
    left = torch.cat([each.left for each in crossings])
    tau = torch.cat([each.tau for each in crossings])
    unit = torch.cat([each.unit for each in crossings])
    kinks = [torch.nan] if node.role == "max" else [layer.kink for _, layer in layers]
    place = torch.cat([torch.full_like(each.unit, place) for each, (place, _) in zip(crossings, layers, strict=True)])
    kink = torch.cat([torch.full_like(each.tau, kink) for each, kink in zip(crossings, kinks, strict=True)])
    order = torch.from_numpy(np.lexsort((tau.numpy(), left.numpy())))
    return _merge(t, width, *(each[order] for each in (left, tau, place, unit, kink)))


def _merge(t: Tensor, width: float, left: Tensor, tau: Tensor, layer: Tensor, unit: Tensor, kink: Tensor) -> Crossings:
    """One vertex for crossings that coincide, none for those that coincide with a vertex there is."""
    length = t[left + 1] - t[left]
    # A crossing next to a vertex is that vertex; a second one there would make a piece of no length.
    is_inside = (tau * length > width) & ((1 - tau) * length > width)
    left, tau, layer, unit, kink, length = (each[is_inside] for each in (left, tau, layer, unit, kink, length))
    is_new = torch.ones_like(is_inside[is_inside])
    is_new[1:] = (left[1:] != left[:-1]) | ((tau[1:] - tau[:-1]) * length[1:] > width)
    vertex = is_new.cumsum(0) - 1
    # All units of a merged vertex are snapped, not just the first: else the others cross again right beside it.
    has_kink = ~kink.isnan()
    snaps = (vertex[has_kink], unit[has_kink], kink[has_kink])
    return Crossings(left[is_new], tau[is_new], layer[is_new], unit[is_new], *snaps)


def _sign_changes(values: Float[Tensor, " rows units"], margin: float) -> _Change:
    """Wherever a value goes strictly from one side of zero to the other."""
    is_above, is_below = values > margin, values < -margin
    left, unit = ((is_above[:-1] & is_below[1:]) | (is_below[:-1] & is_above[1:])).nonzero(as_tuple=True)
    before, after = values[left, unit], values[left + 1, unit]
    return _Change(left, before / (before - after), unit)


def _overtakings(node: Node, values: Float[Tensor, " rows entries"], margin: float) -> _Change:
    """Wherever another entry of a window becomes the largest.

    The largest of some straight lines is their upper envelope. It is walked from the left: of the lines steeper
    than the present one, the first to be met takes over.
    """
    assert node.windows is not None
    windows = torch.from_numpy(node.windows)
    entries = torch.where(windows >= 0, values[:, windows.clamp(min=0)], -torch.inf)
    top = entries.amax(dim=2, keepdim=True) - margin
    is_top = entries >= top
    # An entry that is largest at both ends is largest in between, since a maximum of lines is convex.
    left, window = (~(is_top[:-1] & is_top[1:]).any(dim=2)).nonzero(as_tuple=True)
    before, after = entries[left, window], entries[left + 1, window]
    slope = torch.where(before.isfinite(), after - before, -torch.inf)
    best = before.masked_fill(~is_top[left, window], -torch.inf)
    # Of entries tied at the left end the steepest leads from there on.
    present = torch.where(best.isfinite(), slope, -torch.inf).argmax(dim=1, keepdim=True)
    overtakings = [(left[:0], before[:0, 0], window[:0])]
    while len(left):
        gain = slope - slope.gather(1, present)
        behind = before.gather(1, present) - before
        meets = torch.where(gain > 0, behind / gain, torch.inf)
        tau = meets.amin(dim=1, keepdim=True)
        # Of several met at once the steepest takes over; the others would be overtaken at the same point.
        present = torch.where(meets <= tau, slope, -torch.inf).argmax(dim=1, keepdim=True)
        goes_on = ((tau > 0) & (tau < 1))[:, 0]
        left, window, before, slope, present = (each[goes_on] for each in (left, window, before, slope, present))
        overtakings.append((left, tau[goes_on, 0], window))
    left, tau, window = (torch.cat(column) for column in zip(*overtakings, strict=True))
    return _Change(left, tau, window)
