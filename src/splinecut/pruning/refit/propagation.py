"""The refit of a whole network: the probe runs through the dense and the cut network side by side, layer by layer.

When a layer is reached whose input is no longer what it was, its weights are fitted before it runs, so that errors of
earlier layers are made good by later ones instead of adding up. The target of a layer is what the dense one gives,
behind its batch norm; at the end of a residual branch it also includes what the stream is already off, so that block
outputs match and not branch outputs.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
import torch
from jaxtyping import Bool, Float, Int64
from torch import Tensor

from splinecut.networks.groups.values import Groups, Keep
from splinecut.networks.inputs import Arguments, count, held_out
from splinecut.networks.program import Layer, Program, Values
from splinecut.progress_bar import Report
from splinecut.pruning.refit.layer_fit import fit_layer, has_constant
from splinecut.pruning.refit.layer_rows import LayerRows
from splinecut.pruning.refit.moments import Moments
from splinecut.pruning.refit.norm_update import correct_norm, fold_into_norm
from splinecut.pruning.refit.ridge import Fit
from splinecut.pruning.refit.shared_taps import SharedTaps, shared_taps

POSITIONS = 40  # of an image's map that a regression looks at
COLUMNS = 4608  # channels x taps of which products are kept: 170 MB; layers above are fitted channel by channel
OPTIONAL = 2304  # columns up to which layers that lost no input of their own are fitted too


@dataclass
class Propagation:
    """What a run of `propagate` leaves.

    weights: of the cut network at full size, removed units read with weight zero.
    dense, cut: outputs of both networks on the probe, row by row; `is_held` says which rows no fit has seen.
    moments: (fitting, held-out) of the layers asked for.
    fits: layer -> its fit.
    """

    weights: dict[str, Tensor]
    dense: Tensor
    cut: Tensor
    is_held: Bool[Tensor, " inputs"]
    moments: dict[str, tuple[Moments, Moments]] = field(default_factory=dict)
    fits: dict[str, Fit] = field(default_factory=dict)


@dataclass(frozen=True, eq=False)
class Removal:
    """What a keep map takes away from each layer: which columns it still reads, and which of its outputs are read."""

    groups: Groups
    keep: Keep

    def channels(self, layer: Layer, n_channels: int) -> Bool[Tensor, " channels"]:
        """Which channels of its input (of each of its groups) the layer still reads."""
        axis, stays = (0 if layer.is_transposed else 1), np.ones(n_channels, bool)
        for group in self.groups:
            kept = np.asarray(self.keep.get(group.name, np.True_), bool)
            for member in group.role("consumer") if not kept.all() else ():
                if (member.key, member.axis) == (layer.key, axis):
                    # All positions of no unit stay; grouped transposed layers list every group, all alike.
                    stays &= np.where(member.units < 0, True, kept[member.units])[:n_channels]
        return torch.from_numpy(stays)

    def outputs(self, layer: Layer, n_outputs: int) -> Float[Tensor, " outputs"]:
        """1 for outputs that somebody still reads."""
        axis = 1 if layer.is_transposed else 0
        rows = self.slices.get(layer.key, {}).get(axis)
        if rows is None:
            return torch.ones(n_outputs, dtype=torch.float64)
        return torch.from_numpy(np.resize(rows, n_outputs)).double()

    @cached_property
    def slices(self) -> dict[str, dict[int, Bool[np.ndarray, " positions"]]]:
        """Tensor -> axis -> which positions stay; once, since a DenseNet has hundreds of readers of many groups."""
        return self.groups.slices(self.keep)

    @property
    def dropped(self) -> set[str]:
        """Parameters of residual branches that go whole."""
        return {key for branch in self.groups.dropped(self.keep) for key in branch.keys}


@torch.no_grad()
def propagate(
    program: Program,
    arguments: Arguments,
    removal: Removal,
    collect: frozenset[str] = frozenset(),
    on_all: bool = False,
    every_layer: bool = True,
    residual_target: bool = True,
    report: Report = lambda share, what="": None,
) -> Propagation:
    """Cuts by `removal` and refits, in one run of the probe through both networks.

    collect:         layers whose moments are kept.
    on_all:          fit on held-out rows too, once the ridge is chosen; then nothing is left to measure errors on.
    every_layer:     also fit layers that lost no input, but whose input has changed.
    residual_target: include the stream's error in the target of the layer that ends a branch.
    """
    run = _Run(program, arguments, removal, collect, on_all, every_layer, residual_target)
    events: list[tuple[int, Layer | None, int]] = sorted(
        [(program.place[layer.node], layer, -1) for layer in program.layers.values()]
        + [(program.place[norm.node], None, i) for i, norm in enumerate(program.norms)],
        key=lambda event: event[0],
    )
    for done, (place, layer, norm) in enumerate(events):
        report(done / len(events), layer.key.rpartition(".")[0] if layer else "batch norm")
        if layer is not None:
            run.reach_layer(place, layer)
        else:
            run.reach_norm(place, norm)
    return run.finish()


@dataclass(frozen=True, eq=False)
class _Seen:
    """(fitting, held-out) moments of a layer, and mean and mean square of what the dense one gives behind its norm."""

    moments: tuple[Moments, Moments]
    output: Float[Tensor, "mean_and_square outputs"]


class _Run:
    """The state of `propagate`: the values of both networks on every chunk of the probe."""

    def __init__(
        self,
        program: Program,
        arguments: Arguments,
        removal: Removal,
        collect: frozenset[str],
        on_all: bool,
        every_layer: bool,
        residual_target: bool,
    ) -> None:
        self.program, self.removal, self.collect, self.on_all = program, removal, collect, on_all
        self.every_layer, self.residual_target = every_layer, residual_target
        self.generator = torch.Generator().manual_seed(0)
        self.dense: list[Values] = []
        self.n_rows: list[int] = []
        for n_rows, values in program.chunks(arguments):
            self.dense.append(values)
            self.n_rows.append(n_rows)
        self.cut: list[Values] | None = None  # as the dense one until something changes
        self.at = 0
        self.weights = dict(program.weights)
        dropped = removal.dropped
        self.weights |= {key: torch.zeros_like(self.weights[key]) for key in dropped if key in self.weights}
        self.dropped = dropped
        self.is_held = held_out(count(arguments))
        self.moments: dict[str, tuple[Moments, Moments]] = {}
        self.fits: dict[str, Fit] = {}

    def advance(self, place: int) -> None:
        """Runs both networks up to, not including, the step at `place`."""
        for chunk, values in enumerate(self.dense):
            self.program.run(values, self.at, place, self.program.weights)
            if self.cut is not None:
                self.program.run(self.cut[chunk], self.at, place, self.weights)
        self.at = place

    def reach_layer(self, place: int, layer: Layer) -> None:
        if layer.key in self.dropped:
            if self.cut is None:
                self.advance(place)
                self._part()
            return
        rows = LayerRows.of(layer, self.program.weights)
        channels = self.removal.channels(layer, rows.n_channels)
        loses = not bool(channels.all())
        is_shared = len(next(n for n, k in self.program.keys.items() if k == layer.key).users) > 1
        wants_fit = loses or (
            self.cut is not None and self.every_layer and rows.n_columns <= OPTIONAL and not is_shared
        )
        if not wants_fit and layer.key not in self.collect:
            return
        self.advance(place)
        if loses and self.cut is None:
            self._part()
        folded = shared_taps(layer, rows, self.removal, self.program.weights) if rows.n_columns > COLUMNS else None
        if rows.n_columns > COLUMNS and folded is None:
            self._without_fit(layer, rows, channels)
            return
        seen = self._look(layer, rows, folded)
        if layer.key in self.collect:
            self.moments[layer.key] = seen.moments
        if wants_fit and not is_shared:
            self._fit(layer, rows, channels if folded is None else folded.stays, folded, seen)
        elif loses:
            self._without_fit(layer, rows, channels)

    def _part(self) -> None:
        """From here on the networks differ."""
        self.cut = [dict(values) for values in self.dense]

    def _look(self, layer: Layer, rows: LayerRows, folded: SharedTaps | None) -> _Seen:
        """What the layer receives in the cut network, and what it should give, on the whole probe."""
        n_groups = 1 if folded else rows.n_groups
        n_outputs = rows.n_outputs // n_groups
        sizes = (1, folded.n_units, folded.n_units) if folded else (n_groups, rows.n_columns, n_outputs)
        fitting, held = Moments.zero(*sizes), Moments.zero(*sizes)
        scale = layer.norm.scale(self.program.weights) if layer.norm else None
        sums, n_sums, start = torch.zeros(2, rows.n_outputs, dtype=torch.float64), 0, 0
        for chunk, (dense, n) in enumerate(zip(self.dense, self.n_rows, strict=True)):
            cut = dense if self.cut is None else self.cut[chunk]
            at = rows.positions(layer.node.meta["val"].shape, POSITIONS, self.generator)
            x = rows.inputs(cut[layer.source], at)
            if folded:
                x, y = folded.rows(x), folded.targets(rows.inputs(dense[layer.source], at))
            else:
                z = rows.outputs(self._dense_output(layer, dense), at)
                z = z if scale is None else z * scale
                counted = z[: n * len(z) // self.program.batch]
                sums += torch.stack([each.sum(0, dtype=torch.float64) for each in (counted, counted.square())]).cpu()
                n_sums += len(counted)
                if self.residual_target and layer.stream is not None and cut is not dense:
                    z = z + rows.outputs(dense[layer.stream] - cut[layer.stream], at)
                y = z.reshape(len(z), n_groups, -1).transpose(0, 1)
            # Rows of an input are on one side: positions of one image resemble each other. Rows that only fill up the
            # last batch are on neither.
            side = self.is_held[start : start + n].repeat_interleave(x.shape[1] // self.program.batch)
            held.add(x[:, : len(side)][:, side], y[:, : len(side)][:, side])
            fitting.add(x[:, : len(side)][:, ~side], y[:, : len(side)][:, ~side])
            start += n
        for moments in (fitting, held):
            moments.check(layer.key.rpartition(".")[0] or layer.key)
        return _Seen((fitting, held), sums / max(1, n_sums))

    def _dense_output(self, layer: Layer, dense: Values) -> Tensor:
        values = {layer.source: dense[layer.source]}
        return self.program.run(values, self.at, self.at + 1, self.program.weights)[layer.node]

    def _fit(self, layer: Layer, rows: LayerRows, stays: Tensor, folded: SharedTaps | None, seen: _Seen) -> None:
        """Gives the layer the weights that fit best, and the constant to its bias or batch norm."""
        counts = self.removal.outputs(layer, rows.n_outputs).view(rows.n_groups, -1)
        dense = self.program.weights
        own = fit_layer(layer, rows, dense, seen.moments, stays, folded, counts, self.on_all)
        self.fits[layer.key], self.weights[layer.key] = own.fitted, own.weight
        if has_constant(layer):
            after = None if own.columns is None else _mean_and_variance(*seen.moments, own.columns, own.fitted)
            fold_into_norm(layer, self.weights, dense, own.offset, None if after is None else seen.output, after)

    def _without_fit(self, layer: Layer, rows: LayerRows, channels: Bool[Tensor, " channels"]) -> None:
        """Removed units are read with weight zero, and nothing makes up for them."""
        matrix = rows.matrix(self.program.weights[layer.key])
        matrix[:, ~channels.repeat_interleave(rows.n_taps)] = 0.0
        self.weights[layer.key] = rows.weight(matrix, self.program.weights[layer.key])

    def reach_norm(self, place: int, index: int) -> None:
        """A batch norm behind no layer: its statistics change by what the cut changed."""
        norm = self.program.norms[index]
        if self.cut is None or norm.mean in self.dropped:
            return
        self.advance(place)
        source = norm.node.all_input_nodes[0]
        pairs = [(d[source][:n], c[source][:n]) for d, c, n in zip(self.dense, self.cut, self.n_rows, strict=True)]
        correct_norm(norm, self.weights, pairs)

    def finish(self) -> Propagation:
        """Runs both networks to the end."""
        self.advance(len(self.program.steps))
        dense, cut = (self._outputs(chunks) for chunks in (self.dense, self.cut or self.dense))
        return Propagation(self.weights, dense, cut, self.is_held, self.moments, self.fits)

    def _outputs(self, chunks: list[Values]) -> Tensor:
        """The outputs of all inputs; those that only filled up the last batch are dropped."""
        values = [chunk[self.program.output] for chunk in chunks]
        rows = [n * len(value) // self.program.batch for n, value in zip(self.n_rows, values, strict=True)]
        return torch.cat([value[:n] for n, value in zip(rows, values, strict=True)])


def _mean_and_variance(
    fitting: Moments, held: Moments, columns: Int64[Tensor, " kept"], fitted: Fit
) -> Float[Tensor, "mean_and_variance outputs"]:
    """Of what the fitted layer gives, behind the norm's scale and without a bias."""
    every = fitting.merged(held).centred().restricted(columns)
    mean = (fitted.weight * every.mean_x[:, :, None]).sum(1)
    return torch.stack([mean.flatten(), (fitted.weight * (every.xx @ fitted.weight)).sum(1).flatten()])
