"""Activation codes: which units are on for which samples, packed eight to a byte, and how far codes lie apart.

The code of an input names the region it lies in: one bit per folding unit, `> 0` is on. Two networks of one
architecture are compared by the share of bits in which their codes of the same samples differ (You et al. 2022,
Sec. 3.3). The mean is taken first within each layer and then over layers, as the authors do, or over all bits.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal, overload

import numpy as np
import torch
from jaxtyping import Bool, Float, Int, UInt8
from torch import Tensor

from splinecut.errors import InputError, unknown
from splinecut.geometry.graph import Graph, Layer, Node, first_argmax, is_on

Mean = Callable[["Float[np.ndarray, ' layers']", "Int[np.ndarray, ' layers']"], float]
"""(share of differing bits per layer, number of bits per layer) -> one number for the network."""


def over_layers(share: Float[np.ndarray, " layers"], n_bits: Int[np.ndarray, " layers"]) -> float:
    """Every layer counts alike, however many units it has (paper and authors' code)."""
    return float(share.mean()) if len(share) else 0.0


def over_bits(share: Float[np.ndarray, " layers"], n_bits: Int[np.ndarray, " layers"]) -> float:
    """Every bit counts alike: the Hamming distance of the whole codes as a share."""
    return float((share * n_bits).sum() / n_bits.sum()) if n_bits.sum() else 0.0


@dataclass(frozen=True)
class Codes:
    """The codes of some samples, layer by layer.

    layers:   names of the folding layers, in the order in which the network runs them
    n_units:  how many units each layer has per sample
    units:    which of them are held, ascending; all of them unless a sample was drawn
    packed:   per layer (samples, ceil(units held / 8)) bytes, first unit in the highest bit, padded with zeros
    """

    layers: tuple[str, ...]
    n_units: tuple[int, ...]
    units: tuple[Int[np.ndarray, " held"], ...]
    packed: tuple[UInt8[np.ndarray, " samples bytes"], ...]

    def __len__(self) -> int:
        """The number of samples."""
        return len(self.packed[0]) if self.packed else 0

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Codes) and _is_comparable(self, other) and not _differing(self, other).any()

    __hash__ = None  # type: ignore[assignment]  # holds arrays

    def bits(self, layer: str | None = None) -> Bool[np.ndarray, " samples bits"]:
        """The bits, unpacked: of one layer, or of all layers side by side."""
        if layer is not None and layer not in self.layers:
            raise unknown("layer", layer, self.layers)
        chosen = range(len(self.layers)) if layer is None else [self.layers.index(layer)]
        columns = [np.unpackbits(self.packed[i], axis=1, count=len(self.units[i])) for i in chosen]
        return np.concatenate(columns, axis=1).astype(bool) if columns else np.zeros((0, 0), dtype=bool)


def codes(
    graph: Graph,
    x: Float[Tensor, " samples *input"],
    per_layer: int | None = None,
    seed: int = 0,
    batch_size: int = 256,
    winners: bool = False,
) -> Codes:
    """The activation codes of the samples x, computed in the precision of the graph's parameters.

    With `per_layer`, at most that many units of each layer are held, drawn by `seed`; see `standard_error`. `winners`
    adds the maxima: a bit for every entry of every window, on for the one that is largest (the first, of equal ones).
    """
    layers = [layer for layer in graph.layers if layer.bits or winners]
    sizes = [layer.bits or _n_entries(graph[layer.node]) for layer in layers]
    sampled = sample_units(sizes, per_layer, seed) if per_layer is not None else tuple(np.arange(n) for n in sizes)
    batches = [_packed(graph, part, sampled, winners) for part in x.split(batch_size)]
    packed = tuple(np.concatenate(column) for column in zip(*batches, strict=True))
    return Codes(tuple(layer.name for layer in layers), tuple(sizes), sampled, packed)


def visit(graph: Graph, x: Float[Tensor, " samples *input"]) -> Iterator[tuple[Layer, list[Tensor]]]:
    """Every folding layer with the values it reads, in order, while the network runs; nothing is kept."""
    layers: dict[str, list[Layer]] = {}
    for layer in graph.layers:
        layers.setdefault(layer.node, []).append(layer)
    values = {graph.nodes[0].name: x}
    for place, node in enumerate(graph.nodes[1:], start=1):
        for layer in layers.get(node.name, ()):
            yield layer, [values[name] for name in node.inputs]
        values[node.name] = graph.step(node, values)
        for name in {*node.inputs, node.name}:
            if graph.last_use.get(name, -1) <= place:
                del values[name]


@torch.no_grad()
def _packed(
    graph: Graph, x: Tensor, sampled: Sequence[np.ndarray], winners: bool
) -> list[UInt8[np.ndarray, " samples bytes"]]:
    tables = (
        is_on(inputs[0], layer.kink).flatten(1) if layer.bits else _winners(graph[layer.node], inputs)
        for layer, inputs in visit(graph, like_parameters(graph, x))
        if layer.bits or winners
    )
    return [
        np.packbits((on if len(units) == on.shape[1] else on[:, units]).cpu().numpy(), axis=1)
        for on, units in zip(tables, sampled, strict=True)
    ]


def _winners(node: Node, inputs: list[Tensor]) -> Bool[Tensor, " samples entries"]:
    """One-hot tables of the first largest entry of each window, side by side."""
    assert node.windows is not None
    windows = torch.from_numpy(node.windows).to(inputs[0].device)
    flat = torch.cat([value.flatten(1) for value in inputs], dim=1)
    entries = torch.where(windows >= 0, flat[:, windows.clamp(min=0)], -torch.inf)
    return torch.nn.functional.one_hot(first_argmax(entries), entries.shape[-1]).bool().flatten(1)


def _n_entries(node: Node) -> int:
    return 0 if node.windows is None else node.windows.size


def like_parameters(graph: Graph, x: Tensor) -> Tensor:
    """x on the device and in the precision of the graph's parameters."""
    like = next((p for p in graph.parameters.values() if p.is_floating_point()), x)
    return x.to(like.device, like.dtype)


def sample_units(n_units: Sequence[int], per_layer: int, seed: int = 0) -> tuple[Int[np.ndarray, " held"], ...]:
    """At most `per_layer` units of every layer, drawn without replacement; the same for the same seed, always.

    Every layer draws from its own stream, so a layer's sample does not depend on the layers before it.
    """
    if per_layer < 2:
        raise InputError(f"per_layer must be at least 2, got {per_layer}; one unit per layer has no standard error")
    streams = np.random.default_rng(seed).spawn(len(n_units))
    return tuple(
        np.sort(stream.choice(n, size=min(per_layer, n), replace=False))
        for stream, n in zip(streams, n_units, strict=True)
    )


@overload
def distance(a: Codes, b: Codes, by_layer: Literal[False] = False, mean: Mean = over_layers) -> float: ...
@overload
def distance(a: Codes, b: Codes, by_layer: Literal[True], mean: Mean = over_layers) -> dict[str, float]: ...
def distance(a: Codes, b: Codes, by_layer: bool = False, mean: Mean = over_layers) -> float | dict[str, float]:
    """The share of bits in which two codes of the same samples differ: one number in [0, 1], or one per layer."""
    _check_comparable(a, b)
    share = _differing(a, b) / np.maximum(_n_bits(a), 1)
    if by_layer:
        return dict(zip(a.layers, share.tolist(), strict=True))
    return mean(share, _n_bits(a))


def standard_error(a: Codes, b: Codes) -> float:
    """The standard error of `distance(a, b)` that comes from holding a sample of the units; 0 when all are held.

    The bits of one unit over the samples go together, so units are what was drawn: with d_u the share of samples on
    which unit u differs, a layer holding n of N units has variance (1 - n/N) var(d_u) / n, and the mean over L
    layers has sqrt(sum of variances) / L.
    """
    _check_comparable(a, b)
    variance = 0.0
    for x, y, units, n_total in zip(a.packed, b.packed, a.units, a.n_units, strict=True):
        n_held = len(units)
        if 1 < n_held < n_total:
            per_unit = np.unpackbits(x ^ y, axis=1, count=n_held).mean(axis=0)
            variance += (1 - n_held / n_total) * per_unit.var(ddof=1) / n_held
    return float(np.sqrt(variance) / max(len(a.layers), 1))


def distance_matrix(codes: Sequence[Codes], mean: Mean = over_layers) -> Float[np.ndarray, "codes codes"]:
    """The distance between every two of the codes (one per epoch, say), by counting bits in words of 64."""
    for other in codes[1:]:
        _check_comparable(codes[0], other)
    n = len(codes)
    if n == 0:
        return np.zeros((0, 0))
    n_bits = _n_bits(codes[0])
    counts = np.stack([_pairwise(np.stack([_words(c.packed[i]) for c in codes])) for i in range(len(n_bits))], axis=-1)
    share = counts / np.maximum(n_bits, 1)
    return np.array([[mean(share[i, j], n_bits) for j in range(n)] for i in range(n)])


def _pairwise(words: np.ndarray, block: int = 2048) -> Int[np.ndarray, "codes codes"]:
    """How many bits differ between every two rows; a block of every row fits the cache and is compared while there."""
    n = len(words)
    counts = np.zeros((n, n), dtype=np.int64)
    for start in range(0, words.shape[1], block):
        part = words[:, start : start + block]
        for i in range(n - 1):
            counts[i, i + 1 :] += np.bitwise_count(part[i] ^ part[i + 1 :]).sum(axis=1, dtype=np.int64)
    return counts + counts.T


def _words(packed: UInt8[np.ndarray, " samples bytes"]) -> np.ndarray:
    flat = packed.reshape(-1)
    # Padding is zero on both sides of a comparison, so it never differs.
    return np.pad(flat, (0, -len(flat) % 8)).view(np.uint64)


def _differing(a: Codes, b: Codes) -> Int[np.ndarray, " layers"]:
    counts = [
        np.bitwise_count(_words(x) ^ _words(y)).sum(dtype=np.int64) for x, y in zip(a.packed, b.packed, strict=True)
    ]
    return np.array(counts, dtype=np.int64)


def _n_bits(codes: Codes) -> Int[np.ndarray, " layers"]:
    return np.array([len(units) * len(codes) for units in codes.units], dtype=np.int64)


def _is_comparable(a: Codes, b: Codes) -> bool:
    return (a.layers, a.n_units, len(a)) == (b.layers, b.n_units, len(b)) and all(
        np.array_equal(x, y) for x, y in zip(a.units, b.units, strict=True)
    )


def _check_comparable(a: Codes, b: Codes) -> None:
    if not _is_comparable(a, b):
        raise InputError(
            f"codes must come from the same layers, units and samples, got {_summary(a)} and {_summary(b)}; "
            "use one architecture, one probe and one sample of units"
        )


def _summary(codes: Codes) -> str:
    n_sampled = sum(len(units) for units in codes.units)
    return f"{len(codes)} samples x {n_sampled} of {sum(codes.n_units)} units in {len(codes.layers)} layers"
