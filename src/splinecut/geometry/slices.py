"""A 2-D window in input space: the plane x = origin + u basis_0 + v basis_1, and a convex polygon of (u, v) in it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Int64
from numpy.typing import ArrayLike
from torch import Tensor

from splinecut.errors import InputError


@dataclass(frozen=True, eq=False)
class Slice:
    """A window of a plane in input space; arrays are kept in float64.

    origin: one input, any shape.  basis: (2, *input shape), not parallel.
    window: (k, 2) corners of a convex polygon in (u, v), turned counter-clockwise when given clockwise.
    """

    origin: Float[np.ndarray, "..."]
    basis: Float[np.ndarray, "2 ..."]
    window: Float[np.ndarray, "corners 2"]

    def __post_init__(self) -> None:
        for name in ("origin", "basis", "window"):
            object.__setattr__(self, name, _array(name, getattr(self, name)))
        if self.basis.shape != (2, *self.origin.shape):
            raise InputError(
                f"basis must be (2, *origin shape) = {(2, *self.origin.shape)}, got {self.basis.shape}; "
                "give two directions of the shape of one input"
            )
        _refuse_parallel(self.basis)
        object.__setattr__(self, "window", _convex(self.window))

    @classmethod
    def square(cls, half_width: float = 1.0, dim: int = 2) -> Slice:
        """[-half_width, half_width]^2 in the first two coordinates of vectors of length `dim`, the others zero."""
        if not (np.isfinite(half_width) and half_width > 0) or dim < 2:
            raise InputError(f"square needs half_width > 0 and dim >= 2, got {half_width} and {dim}")
        return cls(np.zeros(dim), np.eye(2, dim), _box(-half_width, half_width, -half_width, half_width))

    @classmethod
    def through(cls, a: ArrayLike | Tensor, b: ArrayLike | Tensor, c: ArrayLike | Tensor, margin: float = 0.2) -> Slice:
        """The plane through three inputs, with orthonormal axes (the first from a to b), a at (0, 0).

        The window is the bounding box of the three, wider by `margin` times its size on every side.
        """
        start, *others = (_array(name, value) for name, value in zip("abc", (a, b, c), strict=True))
        if any(other.shape != start.shape for other in others):
            raise InputError(f"a, b, c must have one shape, got {[x.shape for x in (start, *others)]}")
        spanning = np.stack([other - start for other in others])
        _refuse_parallel(spanning)
        axes, corners = np.linalg.qr(spanning.reshape(2, -1).T)
        # QR leaves signs open: b must lie on the positive first axis, on every machine.
        turn = np.where(np.diag(corners) < 0, -1.0, 1.0)
        points = np.concatenate([np.zeros((1, 2)), corners.T * turn])
        low, high = points.min(axis=0), points.max(axis=0)
        grow = margin * (high - low)
        low, high = low - grow, high + grow
        return cls(start, (axes * turn).T.reshape(spanning.shape), _box(low[0], high[0], low[1], high[1]))

    @classmethod
    def span(cls, a: ArrayLike | Tensor, b: ArrayLike | Tensor, margin: float = 0.5) -> Slice:
        """The plane of all mixtures u a + v b of two inputs: a lies at (1, 0), b at (0, 1), the zero input at (0, 0).

        The window is [-margin, 1 + margin]^2.
        """
        first, second = _array("a", a), _array("b", b)
        if first.shape != second.shape:
            raise InputError(f"a and b must have one shape, got {first.shape} and {second.shape}")
        window = _box(-margin, 1 + margin, -margin, 1 + margin)
        return cls(np.zeros_like(first), np.stack([first, second]), window)

    @property
    def input_shape(self) -> tuple[int, ...]:
        return self.origin.shape

    @property
    def area(self) -> float:
        """Area of the window in (u, v)."""
        return float(_turn(self.window, np.roll(self.window, -1, axis=0)).sum() / 2)

    def embed(self, uv: Float[np.ndarray, "points 2"]) -> Float[Tensor, "points ..."]:
        """The inputs at the given coordinates."""
        flat = np.asarray(uv, dtype=np.float64) @ self.basis.reshape(2, -1) + self.origin.ravel()
        return torch.from_numpy(flat.reshape(len(flat), *self.input_shape))

    def coordinates(self, x: ArrayLike | Tensor) -> Float[np.ndarray, "points 2"]:
        """Coordinates (u, v) of the point of the plane nearest to each input: the way back from `embed`."""
        points = _array("x", x).reshape(-1, self.origin.size) - self.origin.ravel()
        return np.linalg.lstsq(self.basis.reshape(2, -1).T, points.T, rcond=None)[0].T


def slices_through(
    probe: Float[Tensor, "samples *input"], classes: Int64[np.ndarray, " samples"], n: int, seed: int
) -> list[Slice]:
    """`n` planes, each through three inputs of different classes as far as there are such, drawn by `seed`.

    Inputs of two numbers are a plane already: the one slice is then the smallest upright square that holds them all.
    """
    points = probe.detach().cpu().double().numpy()
    if points[0].size < 2 or len(points) < 3:
        raise InputError(
            f"slices need at least 3 inputs of 2 or more numbers, got shape {tuple(probe.shape)}; pass more inputs, or "
            "prune by another method"
        )
    if points.shape[1:] == (2,):
        return [_square(points)]
    generator = np.random.default_rng(seed)
    return [Slice.through(*points[_triple(classes, generator)]) for _ in range(n)]


def _square(points: Float[np.ndarray, "samples 2"]) -> Slice:
    low, high = points.min(axis=0), points.max(axis=0)
    half = max(float((high - low).max()) / 2, np.finfo(np.float32).tiny)
    corners = half * np.array([[-1, -1], [1, -1], [1, 1], [-1, 1]])
    return Slice(np.zeros(2), np.eye(2), (low + high) / 2 + corners)


def _triple(classes: Int64[np.ndarray, " samples"], generator: np.random.Generator) -> Int64[np.ndarray, " 3"]:
    """Three different samples; the first ones of a shuffled list that bring new classes, then any others."""
    order = generator.permutation(len(classes))
    _, first = np.unique(classes[order], return_index=True)
    fresh = np.sort(first)
    others = np.setdiff1d(np.arange(len(order)), fresh)
    return order[np.concatenate([fresh, others])[:3]]


def _array(name: str, value: Any) -> Float[np.ndarray, "..."]:
    value = value.detach().cpu().numpy() if isinstance(value, Tensor) else value
    array = np.array(value, dtype=np.float64)
    if not np.isfinite(array).all():
        raise InputError(f"{name} of a slice must be finite, got NaN or infinite entries")
    return array


def _box(left: float, right: float, bottom: float, top: float) -> Float[np.ndarray, "4 2"]:
    return np.array([[left, bottom], [right, bottom], [right, top], [left, top]])


def _turn(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    return a[..., 0] * b[..., 1] - a[..., 1] * b[..., 0]


def _refuse_parallel(basis: Float[np.ndarray, "2 ..."]) -> None:
    lengths = np.linalg.norm(basis.reshape(2, -1), axis=1)
    scaled = basis.reshape(2, -1) / np.where(lengths > 0, lengths, 1)[:, None]
    # Scaled first: short axes are fine, nearly parallel ones lose digits in (u, v).
    if lengths.min() == 0 or np.linalg.svd(scaled, compute_uv=False)[-1] < 1e-9:
        raise InputError("the axes of a slice must not be parallel or zero; give two independent directions")


def _convex(window: np.ndarray) -> Float[np.ndarray, "corners 2"]:
    if window.ndim != 2 or window.shape[1] != 2 or len(window) < 3:
        raise InputError(f"window must be (k, 2) corners with k >= 3, got shape {window.shape}")
    if _turn(window, np.roll(window, -1, axis=0)).sum() < 0:
        window = window[::-1].copy()
    steps = np.roll(window, -1, axis=0) - window
    turns = _turn(steps, np.roll(steps, -1, axis=0))
    # Left turns alone also hold for a star that winds twice; one turn in all makes it a polygon.
    angle = np.arctan2(turns, (steps * np.roll(steps, -1, axis=0)).sum(axis=1)).sum()
    if (turns <= 0).any() or not np.isclose(angle, 2 * np.pi):
        raise InputError("window must be a strictly convex polygon; list its corners in order, without repeats")
    return window
