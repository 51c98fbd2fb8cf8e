"""What each group could lose: the order in which its units leave, and its readers refitted with some of them gone."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
import torch
from jaxtyping import Bool, Int64
from torch import Tensor

from splinecut.networks.groups.values import Groups, UnitGroup
from splinecut.networks.program import Layer, Program
from splinecut.pruning.output_error.swaps import swapped
from splinecut.pruning.refit.elimination import Reader, removal_order
from splinecut.pruning.refit.layer_fit import fit_layer, has_constant, scaled_matrix
from splinecut.pruning.refit.layer_rows import LayerRows
from splinecut.pruning.refit.moments import Moments
from splinecut.pruning.refit.norm_update import fold_into_norm
from splinecut.pruning.refit.propagation import COLUMNS, Removal
from splinecut.pruning.refit.shared_taps import SharedTaps, shared_taps

Kept = Bool[np.ndarray, " units"]


def readers_of(program: Program, groups: Groups) -> dict[str, list[Layer]]:
    """Group -> the layers that read it and can be refitted, in the order they run."""
    found: dict[str, list[Layer]] = {}
    for group in groups:
        layers = [
            program.layers[member.key]
            for member in group.role("consumer")
            if member.key in program.layers and member.axis == (0 if program.layers[member.key].is_transposed else 1)
        ]
        found[group.name] = sorted(dict.fromkeys(layers), key=lambda layer: program.place[layer.node])
    return found


@dataclass(eq=False)
class Candidates:
    """The network as cut so far, and what may be taken from it next.

    alive:   group -> units that are still there.
    moments: layer -> (fitting, held-out), of its input in the network as cut so far and of its target.
    """

    program: Program
    groups: Groups
    readers: Mapping[str, list[Layer]]
    alive: dict[str, Kept]
    moments: Mapping[str, tuple[Moments, Moments]]
    _folded: dict[str, SharedTaps | None] = field(default_factory=dict)

    def order(self, group: UnitGroup) -> Int64[np.ndarray, " alive"]:
        """The group's remaining units, the first to leave first."""
        left = np.flatnonzero(self.alive[group.name])
        known = [self._reader(layer, group) for layer in self.readers[group.name] if layer.key in self.moments]
        if not known or len(left) < 2:
            return left
        return left[removal_order(known).numpy()]

    def swapped(self, group: UnitGroup, order: Int64[np.ndarray, " alive"], n_kept: int) -> Int64[np.ndarray, " alive"]:
        """`order` after swaps between its last `n_kept` units and the others, while a swap helps the readers."""
        known = [self._reader(layer, group) for layer in self.readers[group.name] if layer.key in self.moments]
        if not known or not 0 < n_kept < len(order):
            return order
        left = np.flatnonzero(self.alive[group.name])
        return left[swapped(known, np.searchsorted(left, order), n_kept)]

    def changed(self, group: UnitGroup, kept: Kept) -> dict[str, Tensor]:
        """The weights of the group's readers with only `kept` left of it, fitted on one part of the probe."""
        weights: dict[str, Tensor] = {}
        removal, dense = Removal(self.groups, {**self.alive, group.name: kept}), self.program.weights
        for layer in self.readers[group.name]:
            if layer.key not in self.moments:
                continue
            rows = LayerRows.of(layer, dense)
            folded = self._shared(layer, rows)
            stays = removal.channels(layer, rows.n_channels) if folded is None else torch.from_numpy(kept)
            own = fit_layer(layer, rows, dense, self.moments[layer.key], stays, folded)
            weights[layer.key] = own.weight
            if has_constant(layer):
                fold_into_norm(layer, weights, dense, own.offset, None, None)
        return weights

    def _shared(self, layer: Layer, rows: LayerRows) -> SharedTaps | None:
        if rows.n_columns <= COLUMNS:
            return None
        if layer.key not in self._folded:
            self._folded[layer.key] = shared_taps(layer, rows, Removal(self.groups, self.alive), self.program.weights)
        return self._folded[layer.key]

    def _reader(self, layer: Layer, group: UnitGroup) -> Reader:
        """What the layer knows of the group, restricted to columns that are still read."""
        rows = LayerRows.of(layer, self.program.weights)
        seen = self.moments[layer.key][0].centred()
        left = torch.from_numpy(np.flatnonzero(self.alive[group.name]))
        folded = self._shared(layer, rows)
        if folded is not None:
            weight, stays, blocks = folded.weight, torch.from_numpy(self.alive[group.name]), left[:, None]
        else:
            weight = scaled_matrix(layer, rows, self.program.weights)
            channels = Removal(self.groups, self.alive).channels(layer, rows.n_channels)
            stays = channels.repeat_interleave(rows.n_taps)
            blocks = _blocks(layer, rows, group)[left]
        places = torch.cumsum(stays, 0) - 1
        columns = torch.nonzero(stays)[:, 0]
        return Reader(seen.restricted(columns), weight[:, columns], places[blocks], float(seen.yy.sum()))


def _blocks(layer: Layer, rows: LayerRows, group: UnitGroup) -> Int64[Tensor, "units block"]:
    """The columns of each unit of a group: all its channels, all their taps."""
    axis = 0 if layer.is_transposed else 1
    member = next(m for m in group.role("consumer") if (m.key, m.axis) == (layer.key, axis))
    units = member.units[: rows.n_channels]
    channels = np.argsort(units, kind="stable")[np.sort(units) >= 0].reshape(group.size, -1)
    return (torch.from_numpy(channels)[:, :, None] * rows.n_taps + torch.arange(rows.n_taps)).flatten(1)
