"""Refit: removed units hand their outgoing weights to kept ones, and batch norm takes new statistics.

`fold` needs no data. If the removed unit r draws the same cut as a kept unit k, from the same side, its activation is
a multiple of k's, relu(a z) = a relu(z), and k takes over a times r's outgoing weights: exact. Otherwise r goes to the
kept unit it is most like, a being the projection of r's (w, c) on k's; a unit that is like none hands nothing on.

`least_squares` runs a probe through the cut network once. When the probe reaches a layer, what the whole network sent
there, X, is regressed on what the cut one sends, X' (X ~ X' C^T), and the layer's weights W become W C before it runs;
batch norms take their statistics from what reaches them. So every layer is fitted on an already fitted network.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import cast

import numpy as np
import torch
from jaxtyping import Float, Int64
from torch import Tensor, nn

from splinecut.geometry.cuts import Cuts
from splinecut.networks.units import Groups, Keep, UnitGroup
from splinecut.networks.wrappers import evaluating
from splinecut.pruning.evidence import Reader, readers, unit_cuts, watch

RIDGE = 1e-3  # of the mean second moment
NORMS = (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d)


@dataclass(frozen=True)
class RefitCost:
    """Forward passes a refit took: images through the whole network, images through the cut one."""

    whole: int = 0
    smaller: int = 0


def fold(model: nn.Module, smaller: nn.Module, groups: Groups, keep: Keep) -> RefitCost:
    """Adds to `smaller`, cut from `model`, the outgoing weights that removed units hand on. Needs no data."""
    for group in groups:
        kept = np.asarray(keep[group.name], bool)
        if group.kind == "selector" or kept.all() or not kept.any():
            continue
        handed = _handed(model, group, kept)
        for reader in readers(model, group):
            _write(model, smaller, groups, keep, reader, torch.from_numpy(handed))
    return RefitCost()


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
    model: nn.Module, smaller: nn.Module, groups: Groups, keep: Keep, probe: Float[Tensor, "samples *input"]
) -> RefitCost:
    """Fits what reads the cut groups to what the whole network `model` sent there, layer by layer, in one pass."""
    by_module: dict[str, list[tuple[Reader, np.ndarray]]] = {}
    for group in groups:
        kept = np.asarray(keep[group.name], bool)
        for reader in readers(model, group) if kept.any() and not kept.all() else ():
            by_module.setdefault(reader.module, []).append((reader, kept))
    sent = _sent(model, [reader for found in by_module.values() for reader, _ in found], probe)
    is_normed = {p.path for group in groups for p in group.producers if p.norm}

    def fit(path: str, module: nn.Module, x: Tensor) -> None:
        for reader, kept in by_module[path]:
            shrunk = replace(reader, columns=_renumbered(reader, groups, keep)[kept])
            whole, left = sent[reader.place].double(), _some(shrunk, x, len(kept), len(probe)).double()
            # Where a bias or a batch norm takes up a constant, only what varies needs to be explained.
            is_centred = module.bias is not None or path in is_normed
            means = (whole.mean(0), left.mean(0)) if is_centred else (torch.zeros(()), torch.zeros(()))
            made_of = _regression(whole - means[0], left - means[1])
            columns = torch.zeros(len(kept), len(kept), dtype=torch.float64)
            columns[:, torch.tensor(kept)] = made_of
            _write(model, smaller, groups, keep, reader, columns)
            if isinstance(module.bias, Tensor):
                missing = _outgoing(model, groups, keep, reader).sum(dim=(2, 3)).cpu() @ (means[0] - made_of @ means[1])
                module.bias.add_(missing.to(module.bias))

    with evaluating(smaller), _as_it_arrives(smaller, dict.fromkeys(by_module, fit)):
        like = next(smaller.parameters())
        smaller(probe.to(like.device, like.dtype))
    return RefitCost(whole=len(probe), smaller=len(probe))


@torch.no_grad()
def recalibrate(model: nn.Module, probe: Float[Tensor, "samples *input"]) -> RefitCost:
    """Gives every batch norm the mean and variance of what the probe sends it, in one pass, in order."""
    with evaluating(model), _as_it_arrives(model, {}):
        like = next(model.parameters())
        model(probe.to(like.device, like.dtype))
    return RefitCost(smaller=len(probe))


def _regression(whole: Float[Tensor, "rows units"], left: Float[Tensor, "rows kept"]) -> Float[Tensor, "units kept"]:
    """C with whole ~ left C^T in least squares, ridge RIDGE."""
    gram = left.T @ left
    ridge = RIDGE * gram.diagonal().mean().clamp_min(torch.finfo(gram.dtype).tiny)
    gram += ridge * torch.eye(len(gram), dtype=gram.dtype)
    return torch.linalg.solve(gram, left.T @ whole).T


def _sent(model: nn.Module, wanted: list[Reader], probe: Tensor) -> dict[tuple[str, str], Float[Tensor, "rows units"]]:
    """What the whole network sends to each reader, thinned to what a regression needs."""
    found: dict[tuple[str, str], list[Tensor]] = {}
    see: dict[str, Callable[[Tensor], None]] = {}
    for module in {reader.module for reader in wanted}:
        here = [reader for reader in wanted if reader.module == module]

        def look(x: Tensor, here: list[Reader] = here) -> None:
            for reader in here:
                found.setdefault(reader.place, []).append(_some(reader, x, len(reader.columns), len(probe)))

        see[module] = look
    watch(model, probe, see)
    return {place: torch.cat(parts) for place, parts in found.items()}


def _some(reader: Reader, x: Tensor, n_units: int, n_probe: int) -> Float[Tensor, "rows units"]:
    """The same rows of every image, so many that the whole probe gives about four for each unit and 4,000 more.

    The stride is odd, which keeps it off the grid of an image.
    """
    rows = reader.rows(x).view(len(x), -1, len(reader.columns))
    wanted = -(-(4 * n_units + 4000) // n_probe)
    step = max(1, rows.shape[1] // wanted)
    return rows[:, :: step | 1].reshape(-1, len(reader.columns)).cpu()


def _renumbered(reader: Reader, groups: Groups, keep: Keep) -> Int64[np.ndarray, "units positions"]:
    """The reader's columns, counted in the cut network; meaningless for units that left."""
    stays = groups.slices(keep)[reader.key][1]
    return (np.cumsum(stays) - 1)[reader.columns]


def _outgoing(
    model: nn.Module, groups: Groups, keep: Keep, reader: Reader
) -> Float[Tensor, "outputs units positions taps"]:
    """The whole network's weights from every unit to the outputs that stay."""
    weight = model.get_parameter(reader.key).detach().double()
    outputs = groups.slices(keep).get(reader.key, {}).get(0)
    weight = weight if outputs is None else weight[torch.from_numpy(outputs)]
    return (
        weight[:, torch.from_numpy(reader.columns)].flatten(3)
        if weight.dim() > 2
        else weight[:, torch.from_numpy(reader.columns)].unsqueeze(3)
    )


def _write(
    model: nn.Module,
    smaller: nn.Module,
    groups: Groups,
    keep: Keep,
    reader: Reader,
    made_of: Float[Tensor, "units units"],
) -> None:
    """Sets the cut reader's weights: a kept unit carries its own and, by `made_of`, those it stands in for."""
    kept = next(np.asarray(keep[g.name], bool) for g in groups if g.name == reader.group)
    outgoing = torch.einsum("onpt,nk->okpt", _outgoing(model, groups, keep, reader).cpu(), made_of)
    weight = smaller.get_parameter(reader.key)
    columns = torch.from_numpy(_renumbered(reader, groups, keep)[kept])
    values = outgoing[:, torch.tensor(kept)].reshape(len(weight), *columns.shape, *weight.shape[2:])
    with torch.no_grad():
        weight[:, columns] = values.to(weight)


@contextmanager
def _as_it_arrives(model: nn.Module, fits: Mapping[str, Callable[[str, nn.Module, Tensor], None]]) -> Iterator[None]:
    """Each module named in `fits` is fitted to its input just before it runs; so is every batch norm."""
    handles = []
    for path, module in model.named_modules():
        if path in fits:
            look = partial(_fit_once, fits[path], path, set())
            handles.append(module.register_forward_pre_hook(look))
        elif isinstance(module, NORMS) and module.track_running_stats:
            handles.append(module.register_forward_pre_hook(_take_statistics))
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()


def _fit_once(
    fit: Callable[[str, nn.Module, Tensor], None], path: str, done: set[str], module: nn.Module, inputs: tuple[Tensor]
) -> None:
    """A layer that runs twice is fitted to its first input."""
    if path not in done:
        done.add(path)
        fit(path, module, inputs[0])


def _take_statistics(module: nn.Module, inputs: tuple[Tensor]) -> None:
    norm, x = cast(nn.BatchNorm2d, module), inputs[0].detach()
    assert norm.running_mean is not None and norm.running_var is not None
    axes = [axis for axis in range(x.dim()) if axis != 1]
    norm.running_mean.copy_(x.mean(axes))
    norm.running_var.copy_(x.var(axes, unbiased=True))
