"""Slow and obvious: the same geometry by other means, in exact rational arithmetic where it matters."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from fractions import Fraction

import numpy as np
import torch
from torch import nn

from splinecut.geometry.codes import Codes

Point = tuple[Fraction, Fraction]
Form = tuple[Fraction, Fraction, Fraction]  # a u + b v + c
Piece = tuple[list[Point], list[Form], tuple[bool, ...]]  # polygon, outputs as forms, code so far


def at(form: Form, point: Point) -> Fraction:
    return form[0] * point[0] + form[1] * point[1] + form[2]


def half(polygon: list[Point], form: Form) -> list[Point]:
    """The part of a convex polygon where the form is >= 0; [] unless it is > 0 somewhere."""
    if all(at(form, point) <= 0 for point in polygon):
        return []
    kept = []
    for k, a in enumerate(polygon):
        b = polygon[(k + 1) % len(polygon)]
        x, y = at(form, a), at(form, b)
        if x >= 0:
            kept.append(a)
        if x * y < 0:
            t = x / (x - y)
            kept.append((a[0] + t * (b[0] - a[0]), a[1] + t * (b[1] - a[1])))
    return kept


def minus(form: Form, other: Form = (Fraction(0), Fraction(0), Fraction(0))) -> Form:
    return (form[0] - other[0], form[1] - other[1], form[2] - other[2])


def scaled(form: Form, by: Fraction) -> Form:
    return (form[0] * by, form[1] * by, form[2] * by)


def constant(value: Fraction) -> Form:
    return (Fraction(0), Fraction(0), value)


class Fold:
    """An activation by its kinks and, for each interval between them, (slope, intercept)."""

    def __init__(self, kinks: Sequence[Fraction], pieces: Sequence[tuple[Fraction, Fraction]]) -> None:
        self.kinks, self.pieces = kinks, pieces

    def __call__(self, pieces: list[Piece]) -> list[Piece]:
        units = range(len(pieces[0][1]))
        for kink in self.kinks:  # one layer of bits per kink
            for unit in units:
                pieces = [part for piece in pieces for part in self._split(piece, unit, kink)]
        return [(polygon, self._applied(forms, code), code) for polygon, forms, code in pieces]

    @staticmethod
    def _split(piece: Piece, unit: int, kink: Fraction) -> list[Piece]:
        polygon, forms, code = piece
        form = minus(forms[unit], constant(kink))
        above, below = half(polygon, form), half(polygon, scaled(form, Fraction(-1)))
        if above and below:
            return [(above, forms, (*code, True)), (below, forms, (*code, False))]
        return [(polygon, forms, (*code, bool(above)))]

    def _applied(self, forms: list[Form], code: tuple[bool, ...]) -> list[Form]:
        n, m = len(forms), len(self.kinks)
        bits = code[len(code) - n * m :]
        passed = [sum(bits[kink * n + unit] for kink in range(m)) for unit in range(n)]
        return [self._piece(form, self.pieces[k]) for form, k in zip(forms, passed, strict=True)]

    @staticmethod
    def _piece(form: Form, piece: tuple[Fraction, Fraction]) -> Form:
        slope, level = piece
        return (slope * form[0], slope * form[1], slope * form[2] + level)


_0, _1, _2 = Fraction(0), Fraction(1), Fraction(2)
RELU = Fold([_0], [(_0, _0), (_1, _0)])
LEAKY = Fold([_0], [(Fraction(1, 4), _0), (_1, _0)])
ABS = Fold([_0], [(-_1, _0), (_1, _0)])
CLAMP = Fold([_0, _2], [(_0, _0), (_1, _0), (_0, _2)])  # between 0 and 2


def largest_of(size: int) -> Callable[[list[Piece]], list[Piece]]:
    """The maximum over consecutive groups of `size` units; of equal ones the lower index."""

    def split(piece: Piece, first: int) -> list[tuple[Piece, int]]:
        polygon, forms, code = piece
        parts = []
        for i in range(first, first + size):
            cell = polygon
            for j in range(first, first + size):
                lead = minus(forms[i], forms[j])
                is_tie = all(at(lead, point) == 0 for point in cell)
                if j != i and (not is_tie or j < i):
                    cell = half(cell, lead) if cell else []
            if cell:
                parts.append(((cell, forms, code), i))
        return parts

    def layer(pieces: list[Piece]) -> list[Piece]:
        done = [(piece, ()) for piece in pieces]
        for first in range(0, len(pieces[0][1]), size):
            done = [(part, (*winners, i)) for piece, winners in done for part, i in split(piece, first)]
        return [(polygon, [forms[i] for i in winners], code) for (polygon, forms, code), winners in done]

    return layer


def linear(weight: Sequence[Sequence[int]], bias: Sequence[int]) -> Callable[[list[Piece]], list[Piece]]:
    def combine(forms: list[Form], row: Sequence[int], level: int) -> Form:
        sums = [sum((Fraction(w) * form[k] for w, form in zip(row, forms, strict=True)), _0) for k in range(3)]
        return (sums[0], sums[1], sums[2] + Fraction(level))

    def layer(pieces: list[Piece]) -> list[Piece]:
        return [
            (polygon, [combine(forms, row, b) for row, b in zip(weight, bias, strict=True)], code)
            for polygon, forms, code in pieces
        ]

    return layer


def exact_subdivision(layers: Sequence[Callable[[list[Piece]], list[Piece]]], half_width: int = 1) -> list[Piece]:
    """All regions of [-half_width, half_width]^2, in rational arithmetic."""
    h = Fraction(half_width)
    window = [(-h, -h), (h, -h), (h, h), (-h, h)]
    pieces: list[Piece] = [(window, [(_1, _0, _0), (_0, _1, _0)], ())]
    for layer in layers:
        pieces = layer(pieces)
    return pieces


def exact_area(polygon: list[Point]) -> Fraction:
    pairs = zip(polygon, [*polygon[1:], polygon[0]], strict=True)
    return sum((a[0] * b[1] - a[1] * b[0] for a, b in pairs), _0) / 2


def reference_network(width: int, depth: int) -> nn.Sequential:
    """The networks whose region counts are known."""
    torch.manual_seed(0)
    layers: list[nn.Module] = [nn.Linear(2, width), nn.ReLU()]
    for _ in range(depth - 1):
        layers += [nn.Linear(width, width), nn.ReLU()]
    return nn.Sequential(*layers, nn.Linear(width, 2)).double().eval()


def n_regions_of_lines(normals: np.ndarray, offsets: np.ndarray, half_width: float) -> int:
    """1 + lines crossing the square + crossings inside it, for lines n.x + c = 0 in general position."""
    corners = half_width * np.array([[-1, -1], [1, -1], [1, 1], [-1, 1]])
    sides = corners @ normals.T + offsets
    count = 1 + int(((sides.min(axis=0) < 0) & (sides.max(axis=0) > 0)).sum())
    for i in range(len(normals)):
        for j in range(i):
            crossing = np.linalg.solve(normals[[i, j]], -offsets[[i, j]])
            count += int((np.abs(crossing) < half_width).all())
    return count


def pack(layers: Sequence[str], on: Sequence[np.ndarray], held: Sequence[np.ndarray] | None = None) -> Codes:
    """Codes of the given on/off tables, one (samples, units) table per layer; `held` picks units of each."""
    units = tuple(np.arange(table.shape[1]) for table in on) if held is None else tuple(held)
    packed = tuple(np.packbits(table[:, chosen], axis=1) for table, chosen in zip(on, units, strict=True))
    return Codes(tuple(layers), tuple(table.shape[1] for table in on), units, packed)
