"""Refit: removed units hand their outgoing weights to kept ones, and batch norms follow.

`fold` needs no data. If the removed unit r draws the same cut as a kept unit k, from the same side, its activation is
a multiple of k's, relu(a z) = a relu(z), and k takes over a times r's outgoing weights: exact. Otherwise r goes to the
kept unit it is most like, a being the projection of r's (w, c) on k's; a unit that is like none hands nothing on.

`least_squares` runs a probe through the cut network once. When the probe reaches a layer, what the whole network sent
there is regressed on what the cut one sends (`pruning.regression`), and its weights change before it runs. Batch norms
change their statistics by what the cut changed on the probe (`pruning.norms`). So every layer is fitted on an already
fitted network.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np
import torch
from jaxtyping import Float, Int64
from torch import Tensor, nn

from splinecut.errors import InputError
from splinecut.geometry.cuts import Cuts
from splinecut.networks.groups.values import Groups, Keep, UnitGroup
from splinecut.networks.inputs import Arguments, as_arguments, batches, check_finite, count, held_out, to_model
from splinecut.networks.model_state import evaluating
from splinecut.networks.surgery.finite import is_finite
from splinecut.pruning.evidence import Reader, batch_size, readers, unit_cuts
from splinecut.pruning.refit.batch_norms import Statistics, correct, on_first_input, tracking
from splinecut.pruning.refit.batch_norms import replace as replace_statistics
from splinecut.pruning.refit.held_out import listed, say
from splinecut.pruning.refit.regression import fitted

ROWS = 80_000  # rows of a regression at most; more positions of an image add little,
NUMBERS = 2**22  # and no more activations than this, as long as there are four rows a unit and 4,000


def fold(model: nn.Module, smaller: nn.Module, groups: Groups, keep: Keep) -> None:
    """Adds to `smaller`, cut from `model`, the outgoing weights that removed units hand on. Needs no data."""
    surgery = _Surgery(model, smaller, groups, keep)
    for group in groups:
        kept = np.asarray(keep[group.name], bool)
        if group.kind == "selector" or kept.all() or not kept.any():
            continue
        handed = torch.from_numpy(_handed(model, group, kept)[:, kept])
        for reader in readers(model, group):
            surgery.write(reader, kept, handed)


def _handed(model: nn.Module, group: UnitGroup, kept: np.ndarray) -> Float[np.ndarray, "units units"]:
    """C with row n = how unit n is made of kept units: itself if it is kept, a multiple of the likest one if not."""
    drawn = [unit_cuts(model, group, producer) for producer in group.producers if producer.weight]
    full = torch.cat([_with_offset(cuts) for cuts in drawn], dim=1)
    products = (full @ full.T).numpy()
    squares = products.diagonal().copy()
    result = np.diag(kept.astype(float))
    likeness = products / np.sqrt(np.outer(squares, squares)).clip(min=np.finfo(float).tiny)
    likeness[:, ~kept] = -np.inf
    for unit in np.flatnonzero(~kept):
        nearest = int(likeness[unit].argmax())
        if likeness[unit, nearest] > 0:
            result[unit, nearest] = products[unit, nearest] / squares[nearest]
    return result


def _with_offset(cuts: Cuts) -> Float[Tensor, "units inputs_and_one"]:
    """(w, c) of each unit, as they stand in the network."""
    return torch.cat([cuts.normal * cuts.norm[:, None], (cuts.offset * cuts.norm)[:, None]], dim=1)


@torch.no_grad()
def least_squares(
    model: nn.Module,
    smaller: nn.Module,
    groups: Groups,
    keep: Keep,
    probe: Float[Tensor, "samples *input"] | Arguments,
) -> None:
    """Fits what reads the cut groups to what the whole network `model` sent there, layer by layer, in one pass.

    A layer whose weights do better as they are, on inputs held out of the fit, keeps them; a ProbeWarning names it.
    """
    arguments = as_arguments(probe)
    check_finite(arguments)
    surgery, n_inputs = _Surgery(model, smaller, groups, keep), count(arguments)
    by_module: dict[str, list[tuple[Reader, np.ndarray]]] = {}
    for group in groups:
        kept = np.asarray(keep[group.name], bool)
        for reader in readers(model, group) if kept.any() and not kept.all() else ():
            by_module.setdefault(reader.module, []).append((reader, kept))
    seen = _see(model, [reader for found in by_module.values() for reader, _ in found], arguments)
    is_normed = {p.path for group in groups for p in group.producers if p.norm}
    left_alone: list[str] = []

    def fit(path: str, module: nn.Module, x: Tensor) -> None:
        for reader, kept in by_module[path]:
            shrunk = replace(reader, columns=surgery.columns(reader)[kept])
            whole = torch.cat(seen.sent[reader.place]).double()
            left = _some(shrunk, x, len(kept), n_inputs, n_inputs).double()
            is_held = held_out(n_inputs).repeat_interleave(-(-len(left) // n_inputs))[: len(left)]
            constant = "bias" if module.bias is not None else "norm" if path in is_normed else "nothing"
            outgoing = surgery.outgoing(reader)
            found = fitted(whole, left, torch.tensor(kept), _products(outgoing), is_held, constant)
            if found is None:
                left_alone.append(path)
                continue
            surgery.write(reader, kept, found.made_of)
            if isinstance(module.bias, Tensor):
                module.bias.add_((outgoing.sum(dim=(2, 3)) @ found.missing).to(module.bias))

    def follow(path: str, norm: nn.Module, x: Tensor) -> None:
        correct(norms[path], seen.norms[path], surgery.stays(f"{path}.running_mean"), x)

    norms = {path: norm for path, norm in tracking(smaller).items() if path in seen.norms}
    looks = {path: _with_path(fit, path) for path in by_module} | {path: _with_path(follow, path) for path in norms}
    with evaluating(smaller), on_first_input(smaller, looks):
        smaller(*to_model(arguments, smaller))
    _warn(left_alone, n_inputs)


def _with_path(look: Callable[[str, nn.Module, Tensor], None], path: str) -> Callable[[nn.Module, Tensor], None]:
    return lambda module, x: look(path, module, x)


def _warn(left_alone: list[str], n_inputs: int) -> None:
    if left_alone:
        say(
            f"not refitted, since on held-out inputs their weights do better as they are: {listed(left_alone)}; "
            f"give more than {n_inputs} inputs as probe"
        )
    elif n_inputs == 1:
        say("a refit on one input cannot be checked; give a few hundred training inputs as probe")


@torch.no_grad()
def recalibrate(model: nn.Module, probe: Float[Tensor, "samples *input"] | Arguments) -> None:
    """Gives every batch norm the mean and variance of what the probe sends it, in one pass, in order.

    For networks whose statistics are no longer of use. Those of a trained network know more than a small probe does;
    `least_squares` corrects them instead. Where the probe's are not finite, the network is left as it was.
    """
    arguments = as_arguments(probe)
    check_finite(arguments)
    norms = tracking(model)
    old = [(buffer, buffer.clone()) for norm in norms.values() for buffer in _statistics(norm)]

    def take(path: str, norm: nn.Module, x: Tensor) -> None:
        replace_statistics(norms[path], x)
        if not all(is_finite(buffer) for buffer in _statistics(norms[path])):
            raise _not_finite(path)

    with evaluating(model), on_first_input(model, {path: _with_path(take, path) for path in norms}):
        try:
            model(*to_model(arguments, model))
        except InputError:
            for buffer, values in old:
                buffer.copy_(values)
            raise


def _statistics(norm: nn.BatchNorm2d) -> list[Tensor]:
    return [buffer for name, buffer in norm.named_buffers() if name.startswith("running_")]


@dataclass
class _Seen:
    """What the whole network did on the probe: what it sent to each reader, thinned, and to each batch norm."""

    sent: dict[tuple[str, str], list[Float[Tensor, "rows units"]]] = field(default_factory=dict)
    norms: dict[str, Statistics] = field(default_factory=dict)


def _see(model: nn.Module, wanted: list[Reader], arguments: Arguments) -> _Seen:
    """Runs the probe through the whole network, batch by batch."""
    seen, n_inputs = _Seen(), count(arguments)
    by_module: dict[str, list[Reader]] = {}
    for reader in wanted:
        by_module.setdefault(reader.module, []).append(reader)

    def keep_rows(path: str, _: nn.Module, x: Tensor) -> None:
        for reader in by_module[path]:
            rows = _some(reader, x, len(reader.columns), n_here, n_inputs)
            if not torch.isfinite(rows).all():
                raise _not_finite(path)
            seen.sent.setdefault(reader.place, []).append(rows)

    def note(path: str, _: nn.Module, x: Tensor) -> None:
        seen.norms.setdefault(path, Statistics()).add(x)
        if not seen.norms[path].is_finite:
            raise _not_finite(path)

    looks = {path: _with_path(keep_rows, path) for path in by_module}
    looks |= {path: _with_path(note, path) for path in tracking(model)}
    with evaluating(model), torch.random.fork_rng(devices=[]):
        for part in batches(arguments, batch_size(arguments)):
            n_here = count(part)
            with on_first_input(model, looks):
                model(*to_model(part, model))
    return seen


def _not_finite(path: str) -> InputError:
    return InputError(
        f"what the network sends to {path} on the probe must be finite, and its squares too, got NaN or "
        "infinities; give inputs normalised as in training, and check the network itself on them"
    )


def _some(reader: Reader, x: Tensor, n_units: int, n_here: int, n_inputs: int) -> Float[Tensor, "rows units"]:
    """The same rows of every input, about as many in all as ROWS and NUMBERS say.

    n_units: of the whole network, so that the rows of the whole and the cut one are the same; n_here: inputs in `x`.
    The stride is odd, which keeps it off the grid of an image.
    """
    rows = reader.rows(x)
    per_input = max(1, len(rows) // n_here)
    wanted = -(-max(4 * n_units + 4000, min(ROWS, NUMBERS // n_units)) // n_inputs)
    step = max(1, per_input // wanted) | 1
    if len(rows) == n_here * per_input:
        rows = rows.view(n_here, per_input, -1)[:, ::step].flatten(0, 1)
    return rows.cpu()


def _products(outgoing: Float[Tensor, "outputs units positions taps"]) -> Float[Tensor, "units units"]:
    """B = W^T W: how much an error that two units share matters to the layer's output, over all positions and taps."""
    flat = outgoing.transpose(0, 1).flatten(1)
    return flat @ flat.T


@dataclass(frozen=True)
class _Surgery:
    """Where the weights of the whole network are found, and where they go in the cut one."""

    model: nn.Module
    smaller: nn.Module
    groups: Groups
    keep: Keep

    @cached_property
    def _slices(self) -> dict[str, dict[int, np.ndarray]]:
        return self.groups.slices(self.keep)  # once: a dense network has hundreds of readers, each of many groups

    def stays(self, key: str, axis: int = 0) -> Tensor | None:
        """Which positions of a tensor's axis stay; None where all do."""
        found = self._slices.get(key, {}).get(axis)
        return None if found is None else torch.from_numpy(found)

    def columns(self, reader: Reader) -> Int64[np.ndarray, "units positions"]:
        """The reader's columns, counted in the cut network; meaningless for units that left."""
        return (np.cumsum(self._slices[reader.key][1]) - 1)[reader.columns]

    def outgoing(self, reader: Reader) -> Float[Tensor, "outputs units positions taps"]:
        """The whole network's weights from every unit to the outputs that stay; float64, on the CPU."""
        weight = self.model.get_parameter(reader.key).detach().double().cpu()
        outputs = self.stays(reader.key)
        weight = weight if outputs is None else weight[outputs]
        picked = weight[:, torch.from_numpy(reader.columns)]
        return picked.flatten(3) if weight.dim() > 2 else picked.unsqueeze(3)

    def write(self, reader: Reader, kept: np.ndarray, made_of: Float[Tensor, "units kept"]) -> None:
        """Sets the cut reader's weights: a kept unit carries its own and, by `made_of`, those it stands in for."""
        weight = self.smaller.get_parameter(reader.key)
        columns = torch.from_numpy(self.columns(reader)[kept])
        outgoing = torch.einsum("onpt,nk->okpt", self.outgoing(reader), made_of)
        with torch.no_grad():
            weight[:, columns] = outgoing.reshape(len(weight), *columns.shape, *weight.shape[2:]).to(weight)
