"""Splits convex polygons along all the units that cut them; the hot kernel of the subdivision.

Inside one polygon every cutting unit is a chord between two points of its boundary, which the edges already hold.
Cells are split one chord at a time, depth first, each passing on only the chords that may still cut it, so the work
grows with what comes out (c chords with x crossings: c + x + 1 cells) and not with cells times chords.

Every point of a polygon is kept as a mixture of its corners, so the value of any unit at any point follows from its
values at the corners, and whole rows are mixed later, in bulk.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from jaxtyping import Float, Int64
from numba import njit

from splinecut.geometry.subdivision.crossings import Edges

if TYPE_CHECKING:
    from splinecut.geometry.subdivision.run import Mesh


class Cells(NamedTuple):
    """Polygons as they come out: ragged rings, what made each edge, the polygon each one was cut from."""

    offsets: Int64[np.ndarray, " cells_and_one"]
    ring: Int64[np.ndarray, " places"]
    label: Int64[np.ndarray, " places"]
    parent: Int64[np.ndarray, " cells"]


class Inner(NamedTuple):
    """New vertices inside polygons: mixtures of their polygon's corners; both units are zero there."""

    weight: Float[np.ndarray, "inner corners"]
    unit: Int64[np.ndarray, " inner"]
    other: Int64[np.ndarray, " inner"]
    polygon: Int64[np.ndarray, " inner"]


class _Points(NamedTuple):
    """Points of the polygon at hand: those of its boundary in order, then those inside."""

    vertex: np.ndarray  # (points,) number of the vertex
    weight: np.ndarray  # (points, corners)
    follows: np.ndarray  # (boundary points,) label of the edge to the next point
    value: np.ndarray  # (cuts, corners) of the cutting units
    sign: np.ndarray  # of one unit at the points of a cell


class _Pile(NamedTuple):
    """Cells waiting to be split, and the one at hand.

    A cell is a cycle of points with what makes the edge after each: r for a piece of the boundary after point r,
    -1 - k for a piece of chord k.
    """

    point: np.ndarray
    made: np.ndarray
    cut: np.ndarray
    size: np.ndarray  # (depth,) points of each waiting cell
    n_cuts: np.ndarray  # (depth,) chords that may still cut it
    cell: np.ndarray
    cell_made: np.ndarray
    cell_cut: np.ndarray


def split(
    mesh: Mesh,
    edges: Edges,
    cut_offsets: Int64[np.ndarray, " polygons_and_one"],
    cut_units: Int64[np.ndarray, " cuts"],
    values: Float[np.ndarray, "vertices units"],
    tolerance: Float[np.ndarray, " units"],
    mark: int,
    limit: int,
) -> tuple[Cells, Inner]:
    """All polygons after cutting; those without cuts come through as they are.

    Vertices are numbered: old ones, those on edges, inner ones. Edges made here get the label mark + unit.
    Stops with one cell too many beyond `limit`.
    """
    n_cuts, n_corners = np.diff(cut_offsets), np.diff(mesh.offsets)
    total, most, width = int(n_cuts.sum()), int(n_cuts.max()), int(n_corners.max())
    # c chords cross at most c (c - 1) / 2 times. Room never used is never touched, so generous bounds cost nothing.
    n_inner = int(min((n_cuts * (n_cuts - 1) // 2).sum(), 2 * (limit + 2 + total)))
    n_cells = int(min(len(n_cuts) + total + n_inner, limit + len(n_cuts) + 2))
    n_boundary = width + 2 * most
    n_points = n_boundary + min(most * (most - 1) // 2, n_inner)
    n_pile = n_boundary + 4 * most + 8
    n_places = len(mesh.ring) + 2 * len(edges.share) + 2 * total + 4 * n_inner + n_pile
    cells = Cells(_ints(n_cells + 1), _ints(n_places), _ints(n_places), _ints(n_cells))
    inner = Inner(np.empty((n_inner, width)), _ints(n_inner), _ints(n_inner), _ints(n_inner))
    mixtures, value = np.empty((n_points, width)), np.empty((most, width))
    points = _Points(_ints(n_points), mixtures, _ints(n_boundary), value, _ints(n_pile))
    waiting = (_ints(n_pile), _ints(n_pile), _ints(most * (most + 3) // 2 + 2), _ints(most + 3), _ints(most + 3))
    pile = _Pile(*waiting, _ints(n_pile), _ints(n_pile), _ints(most))
    # At most half full, so that open addressing finds an entry in a few steps.
    n_table = 1 << int(max(6, np.ceil(np.log2(2 * n_inner + 1))))
    count = np.zeros(3, dtype=np.int64)
    _split_all(
        (mesh.offsets, mesh.ring, mesh.label),
        tuple(edges[:4]),
        (cut_offsets, cut_units, values, tolerance),
        (mark, limit),
        (np.full(n_table, -1), _ints(n_table)),
        tuple(points),
        tuple(pile),
        tuple(cells),
        tuple(inner),
        count,
    )
    n_out, n_places, n_new = count.tolist()
    done = Cells(cells.offsets[: n_out + 1], cells.ring[:n_places], cells.label[:n_places], cells.parent[:n_out])
    return done, Inner(*(array[:n_new] for array in inner))


def _ints(*shape: int) -> np.ndarray:
    return np.empty(shape, dtype=np.int64)


@njit(cache=True, error_model="numpy")
def _value(value, weight, k, point, n_corners):  # type: ignore[no-untyped-def]
    x = 0.0
    for c in range(n_corners):
        x += weight[point, c] * value[k, c]
    return x


@njit(cache=True, error_model="numpy")
def _above(sign, count):  # type: ignore[no-untyped-def]
    """First and last place of the cyclic run where the sign is > 0; -1 unless both signs occur strictly."""
    # A convex cell has one run above zero; only where it also lies strictly below is it cut.
    rise, fall, n_below = -1, -1, 0
    last = sign[count - 1]
    for k in range(count):
        if sign[k] < 0:
            n_below += 1
        if sign[k] > 0 and last <= 0:
            rise = k
        if sign[k] <= 0 and last > 0:
            fall = k - 1
        last = sign[k]
    if n_below == 0:
        rise = -1
    return rise, fall if fall >= 0 else count - 1


@njit(cache=True, error_model="numpy")
def _draw(p, rings, edges, cuts, points):  # type: ignore[no-untyped-def]
    """Boundary points of polygon p and values of its cutting units; gives the number of boundary points."""
    offsets, ring, label = rings
    edge_at, ends, ranges, t_edge = edges
    cut_offsets, cut_units, values, _ = cuts
    vertex, weight, follows, value, _ = points
    first, n_corners = offsets[p], offsets[p + 1] - offsets[p]
    n = np.int64(0)
    for c in range(n_corners):
        edge = edge_at[first + c]
        low, high = ranges[edge], ranges[edge + 1]
        # Neighbours walk a common edge in opposite directions but hold its points in one order.
        is_forward = ends[edge, 0] == ring[first + c]
        onward = c + 1 if c + 1 < n_corners else 0
        for k in range(-1, high - low):
            vertex[n] = ring[first + c]
            t = 0.0
            if k >= 0:
                at = low + k if is_forward else high - 1 - k
                vertex[n] = len(values) + at
                t = t_edge[at] if is_forward else 1.0 - t_edge[at]
            for j in range(n_corners):
                weight[n, j] = 0.0
            weight[n, c] = 1.0 - t
            weight[n, onward] = t
            follows[n] = label[first + c]
            n += 1
        for k in range(cut_offsets[p + 1] - cut_offsets[p]):
            value[k, c] = values[ring[first + c], cut_units[cut_offsets[p] + k]]
    return n


@njit(cache=True, error_model="numpy")
def _split_all(rings, edges, cuts, numbers, hashed, points, pile, cells, inner, count):  # type: ignore[no-untyped-def]
    offsets, ring, label = rings
    cut_offsets, cut_units, values, tolerance = cuts
    mark, limit = numbers
    table, index = hashed
    vertex, weight, follows, value, sign = points
    pile_point, pile_made, pile_cut, pile_size, pile_n_cuts, cell, cell_made, cell_cut = pile
    out_offsets, out_ring, out_label, out_parent = cells
    new_weight, new_unit, new_other, new_polygon = inner
    n_before = len(values) + len(edges[3])
    mask = len(table) - 1
    n_out, n_places, n_new = 0, 0, 0
    out_offsets[0] = 0
    for p in range(len(offsets) - 1):
        c0 = cut_offsets[p]
        n_cuts = cut_offsets[p + 1] - c0
        n_corners = offsets[p + 1] - offsets[p]
        if n_out > limit:
            break
        if n_cuts == 0:
            for place in range(offsets[p], offsets[p + 1]):
                out_ring[n_places] = ring[place]
                out_label[n_places] = label[place]
                n_places += 1
            out_parent[n_out] = p
            n_out += 1
            out_offsets[n_out] = n_places
            continue

        n = _draw(p, rings, edges, cuts, points)
        n_points = n
        for point in range(n):
            pile_point[point] = point
            pile_made[point] = point
        for k in range(n_cuts):
            pile_cut[k] = k
        pile_size[0] = n
        pile_n_cuts[0] = n_cuts
        depth, top, top_cut = 1, n, n_cuts
        while depth > 0 and n_out <= limit:
            depth -= 1
            size, n_left = pile_size[depth], pile_n_cuts[depth]
            top -= size
            top_cut -= n_left
            for place in range(size):
                cell[place] = pile_point[top + place]
                cell_made[place] = pile_made[top + place]
            for rank in range(n_left):
                cell_cut[rank] = pile_cut[top_cut + rank]

            # the first chord that still cuts this cell; those before it need not be passed on
            rise, fall, k, passed = -1, -1, -1, 0
            while passed < n_left and rise < 0:
                k = cell_cut[passed]
                passed += 1
                slack = tolerance[cut_units[c0 + k]]
                for place in range(size):
                    x = _value(value, weight, k, cell[place], n_corners)
                    sign[place] = 1 if x > slack else -1 if x < -slack else 0
                rise, fall = _above(sign, size)
            n_left -= passed

            if rise < 0:
                for place in range(size):
                    made = cell_made[place]
                    out_ring[n_places] = vertex[cell[place]]
                    out_label[n_places] = follows[made] if made >= 0 else mark + cut_units[c0 - 1 - made]
                    n_places += 1
                out_parent[n_out] = p
                n_out += 1
                out_offsets[n_out] = n_places
                continue

            # Where the chord enters and leaves: at a point of the cell, or inside an edge that is a piece of a chord.
            # (Inside a piece of the boundary it cannot be but for rounding; then the point below zero stands in.)
            # Both cells beside an edge ask for the point on it: the table hands out the same one.
            before, after = (rise + size - 1) % size, (fall + 1) % size
            enter, leave = cell[before], cell[after]
            for side in range(2):
                edge = fall if side else before
                if sign[after if side else before] == 0 or cell_made[edge] >= 0:
                    continue
                chord = -1 - cell_made[edge]
                low, high = (chord, k) if chord < k else (k, chord)
                # Two chords cross once, so the pair names the point; c0 keeps polygons apart in the one table.
                key = ((c0 + low) << 32) | (c0 + high)
                slot = (key * -7046029254386353131 >> 20) & mask
                while table[slot] != key and table[slot] != -1:
                    slot = (slot + 1) & mask
                if table[slot] == -1:
                    table[slot] = key
                    index[slot] = n_points
                    a, b = cell[edge], cell[edge + 1 if edge + 1 < size else 0]
                    at_a, at_b = _value(value, weight, k, a, n_corners), _value(value, weight, k, b, n_corners)
                    # From the ends of the edge, not from two chords: it then lies on the edge at any angle.
                    t = at_a / (at_a - at_b)
                    for c in range(new_weight.shape[1]):
                        new_weight[n_new, c] = 0.0
                    for c in range(n_corners):
                        weight[n_points, c] = (1.0 - t) * weight[a, c] + t * weight[b, c]
                        new_weight[n_new, c] = weight[n_points, c]
                    vertex[n_points] = n_before + n_new
                    new_unit[n_new] = cut_units[c0 + low]
                    new_other[n_new] = cut_units[c0 + high]
                    new_polygon[n_new] = p
                    n_new += 1
                    n_points += 1
                if side:
                    leave = index[slot]
                else:
                    enter = index[slot]

            # onto the pile: the part below zero, then the part above
            for part in range(2):
                bottom = top
                place, final, edge = (rise, fall, before) if part else (after, before, fall)
                origin, target = (enter, leave) if part else (leave, enter)
                pile_point[top] = origin
                pile_made[top] = cell_made[edge]
                top += 1
                for _ in range(size):
                    if cell[place] == origin:
                        pile_made[top - 1] = cell_made[place]
                    elif cell[place] != target:
                        pile_point[top] = cell[place]
                        pile_made[top] = cell_made[place]
                        top += 1
                    if place == final:
                        break
                    place = (place + 1) % size
                pile_point[top] = target
                pile_made[top] = -1 - k
                top += 1
                # A part of two points is thinner than the tolerance; it has no area and is dropped.
                if top - bottom < 3 or origin == target:
                    top = bottom
                    continue
                pile_size[depth] = top - bottom
                pile_n_cuts[depth] = n_left
                depth += 1
                for later in range(n_left):
                    pile_cut[top_cut + later] = cell_cut[passed + later]
                top_cut += n_left
    count[0], count[1], count[2] = n_out, n_places, n_new
