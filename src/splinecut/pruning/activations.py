"""What flows into the layers that read a group's units: consumer layers, their inputs, means and covariances.

A consumer layer multiplies the units of a group by weights of its own, so these weights can be refitted when units
leave. Its inputs are looked at as rows, one for each sample and position, with one column a unit.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, cast

import numpy as np
import torch
from jaxtyping import Float, Int64
from torch import Tensor, nn

from splinecut.errors import InputError
from splinecut.networks.groups.values import UnitGroup
from splinecut.networks.inputs import Arguments, as_arguments, batches, count, to_model
from splinecut.networks.model_state import evaluating

BATCH = 64  # probe inputs that run through the network together,
NUMBERS = 2**20  # or fewer, if they have more numbers than this: large images run faster when few are in the caches
ROWS = 20_000  # rows of a consumer's input that are looked at; more positions of an image add little

Place = tuple[str, str]
"""(group, parameter): what identifies a consumer layer, since one layer may read several groups side by side."""


@dataclass(frozen=True, eq=False)
class ConsumerLayer:
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
    def place(self) -> Place:
        """What identifies it."""
        return (self.group, self.key)

    def weight(self, model: nn.Module) -> Float[Tensor, "units positions rest"]:
        """The outgoing weights of every unit, float64: `rest` runs over outputs and kernel taps."""
        weight = model.get_parameter(self.key).detach().double().transpose(0, 1)
        return weight[torch.from_numpy(self.columns)].flatten(2)

    def rows(self, x: Tensor, step: int = 1) -> Float[Tensor, "rows units"]:
        """The layer's input `x` as one row a sample and position, columns in the order of the units.

        With a `step` only every `step`-th row, without building the others.
        """
        is_image = x.dim() > 2 and not self.is_linear
        if is_image and step > 1:
            # Indexed before they are laid out: rows of whole images would be copied only to be dropped.
            where = torch.arange(0, len(x) * x[0, 0].numel(), step, device=x.device)
            sample, *position = torch.unravel_index(where, (len(x), *x.shape[2:]))
            return self._by_unit(x.movedim(1, -1)[(sample, *position)])
        channels = x.movedim(1, -1) if is_image else x
        return self._by_unit(channels.reshape(-1, channels.shape[-1]))[::step]

    def _by_unit(self, channels: Float[Tensor, "rows channels"]) -> Float[Tensor, "rows_and_positions units"]:
        if self.columns.size == channels.shape[1] and np.array_equal(self.columns[:, 0], np.arange(channels.shape[1])):
            return channels  # one column a unit, in order: no copy
        picked = channels[:, torch.from_numpy(self.columns).to(channels.device)]
        return picked.transpose(1, 2).reshape(-1, len(self.columns))

    def n_rows(self, x: Tensor) -> int:
        """How many rows `rows` gives for the input `x`."""
        return x.numel() // x.shape[-1 if self.is_linear or x.dim() == 2 else 1] * self.columns.shape[1]


def consumer_layers(model: nn.Module, group: UnitGroup) -> list[ConsumerLayer]:
    """The layers that read `group` and whose weights can be refitted: linear and ungrouped convolutions."""
    layers = []
    for member in group.role("consumer"):
        path = member.key.rpartition(".")[0]
        module = model.get_submodule(path)
        is_conv = isinstance(module, nn.Conv1d | nn.Conv2d | nn.Conv3d) and module.groups == 1
        if member.axis != 1 or not (is_conv or isinstance(module, nn.Linear)):
            continue
        # Stable, so that the positions of a unit keep their order: fold and refit match them one by one.
        places = np.argsort(member.units, kind="stable")
        places = places[np.sort(member.units) >= 0]
        columns = places.reshape(group.size, -1)
        layers.append(ConsumerLayer(group.name, member.key, path, columns, isinstance(module, nn.Linear)))
    return layers


class _Enough(Exception):
    """The last layer of interest has been reached."""


def stop_forward() -> None:
    """Called by an input hook: what comes after this layer need not run."""
    raise _Enough


@contextmanager
def input_hooks(
    model: nn.Module, on_input: Mapping[str, Callable[[Tensor], None]], once: bool = False
) -> Iterator[None]:
    """Calls `on_input[path]` with the input of the module at `path` just before it runs; detached.

    once: only the first time, if a module runs more than once.
    """
    seen = set[str]()

    def hook(path: str) -> Callable[[nn.Module, tuple[Any, ...], dict[str, Any]], None]:
        def look(_: nn.Module, inputs: tuple[Any, ...], by_name: dict[str, Any]) -> None:
            if not (once and path in seen):
                seen.add(path)
                on_input[path](cast(Tensor, inputs[0] if inputs else next(iter(by_name.values()))).detach())

        return look

    handles = [model.get_submodule(path).register_forward_pre_hook(hook(path), with_kwargs=True) for path in on_input]
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()


@torch.no_grad()
def run_with_input_hooks(
    model: nn.Module, probe: Tensor | Arguments, on_input: Mapping[str, Callable[[Tensor], None]]
) -> None:
    """Runs the probe through `model` in eval mode, batch by batch, and shows what enters the modules in `on_input`."""
    arguments = as_arguments(probe)
    with evaluating(model), torch.random.fork_rng(devices=[]), input_hooks(model, on_input):
        for part in batches(arguments, batch_size(arguments)):
            try:
                model(*to_model(part, model))
            except _Enough:
                continue


def batch_size(arguments: Arguments) -> int:
    """How many inputs of the probe run together."""
    largest = max(value[0].numel() for value in arguments if isinstance(value, Tensor) and value.ndim)
    return max(1, min(BATCH, NUMBERS // max(1, largest)))


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
            self.origin = rows.mean(0).cpu().numpy()  # fixed from now on: sums about a moving origin cannot be added
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


def running_covariances(
    model: nn.Module, probe: Tensor | Arguments, consumers: Sequence[ConsumerLayer], n_rows: int = ROWS
) -> tuple[dict[Place, RunningCovariance], dict[Place, int]]:
    """Mean and covariance of the input of each consumer layer, by its place, and how many rows its input has in all.

    One pass of the probe. At most about `n_rows` rows of a layer are looked at.
    """
    arguments = as_arguments(probe)
    covariances = {consumer.place: RunningCovariance.of(len(consumer.columns)) for consumer in consumers}
    totals = dict.fromkeys(covariances, 0)
    most = int(n_rows * batch_size(arguments) / count(arguments))
    on_input: dict[str, Callable[[Tensor], None]] = {}
    for module in {consumer.module for consumer in consumers}:
        here = [consumer for consumer in consumers if consumer.module == module]

        def look(x: Tensor, here: list[ConsumerLayer] = here) -> None:
            for consumer in here:
                covariances[consumer.place].add(consumer.rows(x, stride(consumer.n_rows(x), most)))
                totals[consumer.place] += consumer.n_rows(x)

        on_input[module] = look
    run_with_input_hooks(model, arguments, on_input)
    for consumer in consumers:
        if not covariances[consumer.place].is_finite:
            raise InputError(
                f"what reaches {consumer.module} on the probe must be finite and its squares too, got NaN or "
                "infinities; give inputs normalised as in training, and check that the network itself is finite on them"
            )
    return covariances, totals


def stride(n_rows: int, most: int) -> int:
    """The step at which about `most` of `n_rows` rows are taken; odd, which keeps it off the grid of an image."""
    step = n_rows // max(1, most)
    return step | 1 if step > 1 else 1
