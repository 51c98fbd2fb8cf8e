"""What a criterion may look at: the network, its groups, a few inputs, and what flows into each group's readers."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, cast

import numpy as np
import torch
from jaxtyping import Float, Int64
from torch import Tensor, nn

from splinecut.errors import InputError
from splinecut.geometry.cuts import Cuts, cuts, fold_batch_norm
from splinecut.networks.groups.values import Groups, Producer, UnitGroup
from splinecut.networks.inputs import Arguments, as_arguments, batches, count, to_model
from splinecut.networks.model_state import evaluating

BATCH = 64  # probe inputs that run through the network together,
NUMBERS = 2**20  # or fewer, if they have more numbers than this: large images run faster when few are in the caches
ROWS = 20_000  # samples of a reader's input that are looked at; more positions of an image add little


NO_GROUPS = Groups((), {}, (), {}, {}, {})  # of methods whose units are single weights


@dataclass(frozen=True)
class Evidence:
    """A network in the state it is judged in. `probe`: (samples, *input), or a tuple of the network's arguments.

    labels: the classes of the probe, for criteria that need a loss.
    found:  what the method's own search gave, if it has one.
    """

    model: nn.Module
    groups: Groups
    probe: Float[Tensor, "samples *input"] | Arguments
    seed: int = 0
    labels: Int64[Tensor, " samples"] | None = None
    found: Any = None

    @property
    def arguments(self) -> Arguments:
        """The probe as the arguments of a call."""
        return as_arguments(self.probe)

    @property
    def n_inputs(self) -> int:
        """How many samples the probe has."""
        return count(self.arguments)

    @property
    def images(self) -> Float[Tensor, "samples *input"]:
        """The probe of a network with one argument, for criteria that follow that one through the network."""
        first, *others = self.arguments
        if others or not isinstance(first, Tensor):
            raise InputError(
                f"this method needs a network with one argument, got a probe of {1 + len(others)}; use 'spline', "
                "which takes any, or a method that looks at weights only, such as 'l2'"
            )
        return first

    def labelled(self) -> tuple[Float[Tensor, "samples *input"], Int64[Tensor, " samples"]]:
        """The probe with its labels; refuses where they were not given."""
        if self.labels is None:
            raise InputError("this method looks at the loss and needs labels; pass labels= beside the example inputs")
        return self.images, self.labels


@dataclass(frozen=True, eq=False)
class Reader:
    """A linear or convolutional layer that reads a group's units.

    columns: (units, positions) of the weight's input axis. A flattened image has several positions for each unit,
    and they are treated as further samples of the same unit.
    """

    group: str
    key: str
    module: str
    columns: Int64[np.ndarray, "units positions"]
    is_linear: bool

    @property
    def place(self) -> tuple[str, str]:
        """What identifies a reader: a layer may read several groups, side by side."""
        return (self.group, self.key)

    def weight(self, model: nn.Module) -> Float[Tensor, "units positions rest"]:
        """The outgoing weights of every unit, float64: `rest` runs over outputs and kernel taps."""
        weight = model.get_parameter(self.key).detach().double().transpose(0, 1)
        return weight[torch.from_numpy(self.columns)].flatten(2)

    def rows(self, x: Tensor, step: int = 1) -> Float[Tensor, "rows units"]:
        """What the units send to this layer, one row a sample: the layer's input `x`, sorted by unit.

        With a `step` only every so many rows, without building the others.
        """
        is_image = x.dim() > 2 and not self.is_linear
        if is_image and step > 1:
            where = torch.arange(0, len(x) * x[0, 0].numel(), step, device=x.device)
            sample, *position = torch.unravel_index(where, (len(x), *x.shape[2:]))
            return self._sorted(x.movedim(1, -1)[(sample, *position)])
        channels = x.movedim(1, -1) if is_image else x
        return self._sorted(channels.reshape(-1, channels.shape[-1]))[::step]

    def _sorted(self, channels: Float[Tensor, "rows channels"]) -> Float[Tensor, "rows_and_positions units"]:
        if self.columns.size == channels.shape[1] and np.array_equal(self.columns[:, 0], np.arange(channels.shape[1])):
            return channels
        picked = channels[:, torch.from_numpy(self.columns).to(channels.device)]
        return picked.transpose(1, 2).reshape(-1, len(self.columns))

    def n_rows(self, x: Tensor) -> int:
        """How many rows `x` has for this layer, as `rows` gives them."""
        return x.numel() // x.shape[-1 if self.is_linear or x.dim() == 2 else 1] * self.columns.shape[1]


def readers(model: nn.Module, group: UnitGroup) -> list[Reader]:
    """The layers that read `group` and whose weights can be refitted: linear and ungrouped convolutions."""
    found = []
    for member in group.role("consumer"):
        path = member.key.rpartition(".")[0]
        module = model.get_submodule(path)
        is_conv = isinstance(module, nn.Conv1d | nn.Conv2d | nn.Conv3d) and module.groups == 1
        if member.axis != 1 or not (is_conv or isinstance(module, nn.Linear)):
            continue
        places = np.argsort(member.units, kind="stable")
        places = places[np.sort(member.units) >= 0]
        columns = places.reshape(group.size, -1)
        found.append(Reader(group.name, member.key, path, columns, isinstance(module, nn.Linear)))
    return found


def first_input(inputs: tuple[Any, ...], by_name: dict[str, Any]) -> Tensor:
    """What a layer is called with, by position or by name."""
    return cast(Tensor, inputs[0] if inputs else next(iter(by_name.values())))


class _Enough(Exception):
    """The last layer of interest has been reached."""


@contextmanager
def _watching(model: nn.Module, see: dict[str, Callable[[Tensor], None]]) -> Iterator[None]:
    """Calls `see[path]` with the input of the module at `path` whenever it runs."""

    def hook(look: Callable[[Tensor], None]) -> Callable[[nn.Module, tuple[Any, ...], dict[str, Any]], None]:
        return lambda _, inputs, by_name: look(first_input(inputs, by_name).detach())

    handles = [
        model.get_submodule(path).register_forward_pre_hook(hook(look), with_kwargs=True) for path, look in see.items()
    ]
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()


@torch.no_grad()
def watch(model: nn.Module, probe: Tensor | Arguments, see: dict[str, Callable[[Tensor], None]]) -> None:
    """Runs the probe through `model` in eval mode, batch by batch, and shows what enters the modules in `see`."""
    arguments = as_arguments(probe)
    with evaluating(model), torch.random.fork_rng(devices=[]), _watching(model, see):
        for part in batches(arguments, batch_size(arguments)):
            try:
                model(*to_model(part, model))
            except _Enough:
                continue


def batch_size(arguments: Arguments) -> int:
    """How many inputs of the probe run together."""
    largest = max(value[0].numel() for value in arguments if isinstance(value, Tensor) and value.ndim)
    return max(1, min(BATCH, NUMBERS // max(1, largest)))


def stop() -> None:
    """Called while watching: what comes after this layer need not run."""
    raise _Enough


@dataclass
class RunningCovariance:
    """Mean and covariance of the rows seen so far, in float64.

    Sums are of what exceeds `origin`, the mean of the first rows: units that are far from zero but hardly move would
    lose their variance to rounding otherwise.
    """

    origin: Float[np.ndarray, " units"]
    total: Float[np.ndarray, " units"]
    products: Float[np.ndarray, "units units"]
    n_rows: int = 0

    @classmethod
    def of(cls, size: int) -> RunningCovariance:
        return cls(np.zeros(size), np.zeros(size), np.zeros((size, size)))

    def add(self, rows: Float[Tensor, "rows units"]) -> None:
        if rows.dtype.itemsize < 4:  # half precision holds neither the sums nor the products
            rows = rows.float()
        if not self.n_rows:
            self.origin = rows.mean(0).cpu().numpy()
        beyond = rows - torch.from_numpy(self.origin).to(rows)
        self.total += beyond.sum(0, dtype=torch.float64).cpu().numpy()
        # Products of a batch in the network's own precision, sums over batches in double. By torch, on the threads that
        # the network runs on: those of NumPy's BLAS would go on spinning into the next layer.
        self.products += (beyond.T @ beyond).cpu().numpy()
        self.n_rows += len(rows)

    @property
    def is_finite(self) -> bool:
        """Whether every product could be represented; NaN in an input, or a square beyond the precision, is not."""
        return bool(np.isfinite(self.products).all() and np.isfinite(self.total).all())

    @property
    def mean(self) -> Float[np.ndarray, " units"]:
        return self.origin + self.total / max(1, self.n_rows)

    @property
    def covariance(self) -> Float[np.ndarray, "units units"]:
        beyond = self.total / max(1, self.n_rows)
        return self.products / max(1, self.n_rows) - np.outer(beyond, beyond)


def moments(
    model: nn.Module, probe: Tensor | Arguments, wanted: Sequence[Reader], n_rows: int = ROWS
) -> tuple[dict[tuple[str, str], RunningCovariance], dict[tuple[str, str], int]]:
    """Mean and covariance of what the units send to each reader, by its place, and how many rows it sees in all.

    One pass of the probe. At most about `n_rows` rows of a reader are looked at.
    """
    arguments = as_arguments(probe)
    found = {reader.place: RunningCovariance.of(len(reader.columns)) for reader in wanted}
    rows = dict.fromkeys(found, 0)
    most = int(n_rows * batch_size(arguments) / count(arguments))
    see: dict[str, Callable[[Tensor], None]] = {}
    for module in {reader.module for reader in wanted}:
        here = [reader for reader in wanted if reader.module == module]

        def look(x: Tensor, here: list[Reader] = here) -> None:
            for reader in here:
                found[reader.place].add(reader.rows(x, stride(reader.n_rows(x), most)))
                rows[reader.place] += reader.n_rows(x)

        see[module] = look
    watch(model, arguments, see)
    for reader in wanted:
        if not found[reader.place].is_finite:
            raise InputError(
                f"what reaches {reader.module} on the probe must be finite and its squares too, got NaN or infinities; "
                "give inputs normalised as in training, and check that the network itself is finite on them"
            )
    return found, rows


def stride(n_rows: int, most: int) -> int:
    """So many rows further on, about `most` of them remain; odd, which keeps it off the grid of an image."""
    step = n_rows // max(1, most)
    return step | 1 if step > 1 else 1


def unit_cuts(model: nn.Module, group: UnitGroup, producer: Producer) -> Cuts:
    """The cut of each unit as `producer` draws it, batch norm folded in, in the order of the group's units.

    A transposed layer or one with several rows for a unit (grouped ones) gives the rows of a unit side by side.
    """
    assert producer.weight is not None
    weight = model.get_parameter(producer.weight).detach().movedim(producer.axis, 0)
    bias = model.get_parameter(producer.bias).detach() if producer.bias else None
    if producer.norm is not None:
        norm = cast(nn.BatchNorm2d, model.get_submodule(producer.norm))
        if norm.running_mean is not None and norm.running_var is not None:
            weight, bias = fold_batch_norm(
                weight, bias, norm.weight, norm.bias, norm.running_mean, norm.running_var, norm.eps
            )
    rows = group.rows(producer)
    order = np.argsort(rows, kind="stable")[np.sort(rows) >= 0].reshape(group.size, -1)
    picked = weight[torch.from_numpy(order)].flatten(1)
    offsets = None if bias is None else bias[torch.from_numpy(order)].double().mean(1)
    return cuts(picked.cpu(), None if offsets is None else offsets.cpu())


def selector_scale(model: nn.Module, group: UnitGroup) -> Float[np.ndarray, " units"]:
    """|gain| of the batch norm behind each channel that a selector picks."""
    (producer,) = group.producers
    assert producer.norm is not None
    gain = cast(nn.BatchNorm2d, model.get_submodule(producer.norm)).weight.detach().abs().double().cpu().numpy()
    scale = np.zeros(group.size)
    source = group.rows(producer)
    scale[source[source >= 0]] = gain[source >= 0]
    return scale
