"""Splits convex polygons along all the units that cut them; the hot kernel of the subdivision.

Inside one polygon every cutting unit is a chord between two points of its boundary, which the edges already hold.
Cells are split one chord at a time, depth first, each passing on only the chords that may still cut it, so the work
grows with what comes out (c chords with x crossings: c + x + 1 cells) and not with cells times chords.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numba import njit

from splinecut.geometry.crossings import grown, slot_of


class Outline(NamedTuple):
    """The boundaries of polygons that are cut, with the vertices their edges received, and the chords inside.

    A boundary point lies at (1 - share) corner_a + share corner_b, corners counted within its polygon. So does any
    point of a chord, between its ends; hence any unit's value anywhere in a polygon follows from those at corners.
    """

    start: np.ndarray  # (polygons + 1,) range of boundary points
    vertex: np.ndarray  # (points,) number of the vertex
    corner_a: np.ndarray
    corner_b: np.ndarray
    share: np.ndarray
    follows: np.ndarray  # label of the edge to the next point
    value_start: np.ndarray  # (polygons + 1,) range of `value`
    value: np.ndarray  # of each cutting unit at each corner, cuts x corners for each polygon
    chord_e: np.ndarray  # (cuts,) boundary point where the chord begins, counted within its polygon
    chord_f: np.ndarray


@njit(cache=True)
def outline(offsets, ring, label, edge_at, ends, ranges, t_edge, cut_offsets, cut_units, values, tolerance):  # type: ignore[no-untyped-def]
    """The outline of every polygon that is cut."""
    n_polygons = len(offsets) - 1
    start = np.zeros(n_polygons + 1, dtype=np.int64)
    value_start = np.zeros(n_polygons + 1, dtype=np.int64)
    for p in range(n_polygons):
        n_cuts = cut_offsets[p + 1] - cut_offsets[p]
        n_points = 0
        if n_cuts > 0:
            for place in range(offsets[p], offsets[p + 1]):
                n_points += 1 + ranges[edge_at[place] + 1] - ranges[edge_at[place]]
        start[p + 1] = start[p] + n_points
        value_start[p + 1] = value_start[p] + n_cuts * (offsets[p + 1] - offsets[p])
    vertex, follows = np.empty(start[-1], dtype=np.int64), np.empty(start[-1], dtype=np.int64)
    corner_a, corner_b = np.empty(start[-1], dtype=np.int64), np.empty(start[-1], dtype=np.int64)
    share = np.empty(start[-1], dtype=np.float64)
    value = np.empty(value_start[-1], dtype=np.float64)
    chord_e, chord_f = np.empty(len(cut_units), dtype=np.int64), np.empty(len(cut_units), dtype=np.int64)
    made = Outline(start, vertex, corner_a, corner_b, share, follows, value_start, value, chord_e, chord_f)
    for p in range(n_polygons):
        if cut_offsets[p + 1] > cut_offsets[p]:
            _draw_boundary(made, p, offsets, ring, label, edge_at, ends, ranges, t_edge, len(values))
            _draw_chords(made, p, offsets, ring, cut_offsets, cut_units, values, tolerance)
    return made


@njit(cache=True)
def _draw_boundary(made, p, offsets, ring, label, edge_at, ends, ranges, t_edge, n_old):  # type: ignore[no-untyped-def]
    n_corners = offsets[p + 1] - offsets[p]
    point = made.start[p]
    for corner in range(n_corners):
        place = offsets[p] + corner
        onward = corner + 1 if corner + 1 < n_corners else 0
        made.vertex[point], made.share[point], made.follows[point] = ring[place], 0.0, label[place]
        made.corner_a[point], made.corner_b[point] = corner, corner
        point += 1
        low, high = ranges[edge_at[place]], ranges[edge_at[place] + 1]
        forward = ends[edge_at[place], 0] == ring[place]
        for k in range(high - low):
            at = low + k if forward else high - 1 - k
            made.vertex[point], made.share[point], made.follows[point] = n_old + at, t_edge[at], label[place]
            made.corner_a[point], made.corner_b[point] = (corner, onward) if forward else (onward, corner)
            point += 1


@njit(cache=True)
def _draw_chords(made, p, offsets, ring, cut_offsets, cut_units, values, tolerance):  # type: ignore[no-untyped-def]
    """Each chord joins the two boundary points next to the part where its unit is above zero."""
    n_corners, n = offsets[p + 1] - offsets[p], made.start[p + 1] - made.start[p]
    sign = np.empty(n, dtype=np.int64)
    for cut in range(cut_offsets[p], cut_offsets[p + 1]):
        unit = cut_units[cut]
        row = made.value_start[p] + (cut - cut_offsets[p]) * n_corners
        for corner in range(n_corners):
            made.value[row + corner] = values[ring[offsets[p] + corner], unit]
        for k in range(n):
            x = _at_boundary(made, row, made.start[p] + k)
            sign[k] = 1 if x > tolerance[unit] else -1 if x < -tolerance[unit] else 0
        rise, fall = _above(sign, n)
        made.chord_e[cut] = rise - 1 if rise > 0 else n - 1
        made.chord_f[cut] = fall + 1 if fall + 1 < n else 0


@njit(cache=True)
def _at_boundary(made, row, point):  # type: ignore[no-untyped-def]
    t = made.share[point]
    return (1.0 - t) * made.value[row + made.corner_a[point]] + t * made.value[row + made.corner_b[point]]


@njit(cache=True)
def _above(sign, count):  # type: ignore[no-untyped-def]
    """First and last place of the cyclic run where the sign is > 0; -1 unless both signs occur strictly."""
    has_below = False
    rise = -1
    for k in range(count):
        has_below = has_below or sign[k] < 0
        if sign[k] > 0 and sign[k - 1 if k > 0 else count - 1] <= 0:
            rise = k
    if not has_below or rise < 0:
        return -1, -1
    fall = rise
    while sign[fall + 1 if fall + 1 < count else 0] > 0:
        fall = fall + 1 if fall + 1 < count else 0
    return rise, fall


@njit(cache=True)
def _room(array, needed):  # type: ignore[no-untyped-def]
    while len(array) < needed:
        array = grown(array)
    return array


@njit(cache=True)
def _rehashed(table, index):  # type: ignore[no-untyped-def]
    larger, places = np.full(2 * len(table), -1, dtype=np.int64), np.empty(2 * len(table), dtype=np.int64)
    for slot in range(len(table)):
        if table[slot] != -1:
            fresh = slot_of(larger, table[slot])
            larger[fresh], places[fresh] = table[slot], index[slot]
    return larger, places


@njit(cache=True)
def split(offsets, ring, label, cut_offsets, cut_units, made, tolerance, n_before, mark, limit):  # type: ignore[no-untyped-def]
    """Cells of all polygons after cutting; polygons without cuts come through as they are.

    label: what made the edge from each ring place to the next; edges made here get mark + unit. Gives (offsets, ring,
    label, parent) of the cells, and for each new interior vertex, numbered from `n_before`, (e, f, s, unit, other):
    it lies at (1-s) e + s f, and both units are zero there. Stops with one cell too many beyond `limit`.
    """
    out_offsets, out_parent = np.zeros(len(offsets) + 1024, np.int64), np.empty(len(offsets) + 1024, np.int64)
    out_ring, out_label = np.empty(2 * len(ring) + 1024, np.int64), np.empty(2 * len(ring) + 1024, np.int64)
    n_out, n_places = 0, 0
    new_e, new_f, new_s = np.empty(1024, np.int64), np.empty(1024, np.int64), np.empty(1024, np.float64)
    new_unit, new_other = np.empty(1024, np.int64), np.empty(1024, np.int64)
    n_new = 0
    # Interior points by the two chords that meet there. A chord passes through both cells beside an edge, so both
    # ask for the point: the table hands out the same one.
    table, index = np.full(4096, -1, np.int64), np.empty(4096, np.int64)
    # A cell is a cycle of points (boundary points first, then interior ones) with what makes the edge after each:
    # boundary point r for a piece of the boundary after r, -1 - k for a piece of chord k. Waiting cells are piled up.
    pile, pile_made, pile_cut = np.empty(256, np.int64), np.empty(256, np.int64), np.empty(256, np.int64)
    frame = np.empty((64, 2), np.int64)
    cell, cell_made, cuts, sign = np.empty(64, np.int64), np.empty(64, np.int64), np.empty(64, np.int64), np.empty(64, np.int64)
    chord_of, along = np.empty(64, np.int64), np.empty(64, np.float64)

    for p in range(len(offsets) - 1):
        if n_out > limit:
            break
        c0, n_cuts = cut_offsets[p], cut_offsets[p + 1] - cut_offsets[p]
        n_corners = offsets[p + 1] - offsets[p]
        if n_cuts == 0:
            out_ring, out_label = _room(out_ring, n_places + n_corners), _room(out_label, n_places + n_corners)
            out_offsets, out_parent = _room(out_offsets, n_out + 2), _room(out_parent, n_out + 2)
            for place in range(offsets[p], offsets[p + 1]):
                out_ring[n_places], out_label[n_places] = ring[place], label[place]
                n_places += 1
            out_parent[n_out] = p
            n_out += 1
            out_offsets[n_out] = n_places
            continue

        b0, n, base = made.start[p], made.start[p + 1] - made.start[p], n_new
        pile, pile_made, pile_cut = _room(pile, n), _room(pile_made, n), _room(pile_cut, n_cuts)
        for point in range(n):
            pile[point], pile_made[point] = point, point
        for k in range(n_cuts):
            pile_cut[k] = k
        frame[0, 0], frame[0, 1] = n, n_cuts
        depth, top, top_cut = 1, n, n_cuts
        while depth > 0 and n_out <= limit:
            depth -= 1
            size, n_left = frame[depth, 0], frame[depth, 1]
            top, top_cut = top - size, top_cut - n_left
            cell, cell_made = _room(cell, size), _room(cell_made, size)
            cuts, sign = _room(cuts, n_left), _room(sign, size)
            for place in range(size):
                cell[place], cell_made[place] = pile[top + place], pile_made[top + place]
            for rank in range(n_left):
                cuts[rank] = pile_cut[top_cut + rank]

            # the first chord that still cuts this cell; those before it are passed on to nobody
            rise, fall, k, rank = -1, -1, -1, 0
            while rank < n_left and rise < 0:
                k = cuts[rank]
                rank += 1
                slack = tolerance[cut_units[c0 + k]]
                row = made.value_start[p] + k * n_corners
                for place in range(size):
                    point = cell[place]
                    if point < n:
                        x = _at_boundary(made, row, b0 + point)
                    else:
                        chord, s = chord_of[point - n], along[point - n]
                        at_e = _at_boundary(made, row, b0 + made.chord_e[c0 + chord])
                        x = (1.0 - s) * at_e + s * _at_boundary(made, row, b0 + made.chord_f[c0 + chord])
                    sign[place] = 1 if x > slack else -1 if x < -slack else 0
                rise, fall = _above(sign, size)

            if rise < 0:
                out_ring, out_label = _room(out_ring, n_places + size), _room(out_label, n_places + size)
                out_offsets, out_parent = _room(out_offsets, n_out + 2), _room(out_parent, n_out + 2)
                for place in range(size):
                    point, by = cell[place], cell_made[place]
                    out_ring[n_places] = made.vertex[b0 + point] if point < n else n_before + base + point - n
                    out_label[n_places] = made.follows[b0 + by] if by >= 0 else mark + cut_units[c0 - 1 - by]
                    n_places += 1
                out_parent[n_out] = p
                n_out += 1
                out_offsets[n_out] = n_places
                continue

            # where the chord enters and leaves: at a point of the cell, or inside an edge that is a piece of a chord.
            # (Inside a piece of the boundary it cannot be but for rounding; then the point below zero stands in.)
            before, after = rise - 1 if rise > 0 else size - 1, fall + 1 if fall + 1 < size else 0
            enter, leave = cell[before], cell[after]
            for side in range(2):
                edge = before if side == 0 else fall
                if sign[before if side == 0 else after] == 0 or cell_made[edge] >= 0:
                    continue
                chord = -1 - cell_made[edge]
                slot = slot_of(table, ((c0 + min(chord, k)) << 32) | (c0 + max(chord, k)))
                if table[slot] == -1:
                    table[slot], index[slot] = ((c0 + min(chord, k)) << 32) | (c0 + max(chord, k)), n_new
                    if n_new == len(new_e):
                        new_e, new_f, new_s = grown(new_e), grown(new_f), grown(new_s)
                        new_unit, new_other = grown(new_unit), grown(new_other)
                    chord_of, along = _room(chord_of, n_new - base + 1), _room(along, n_new - base + 1)
                    e, f = b0 + made.chord_e[c0 + chord], b0 + made.chord_f[c0 + chord]
                    row = made.value_start[p] + k * n_corners
                    at_e, at_f = _at_boundary(made, row, e), _at_boundary(made, row, f)
                    s = at_e / (at_e - at_f) if at_e != at_f else 0.5
                    chord_of[n_new - base], along[n_new - base] = chord, s
                    new_e[n_new], new_f[n_new], new_s[n_new] = made.vertex[e], made.vertex[f], s
                    new_unit[n_new], new_other[n_new] = cut_units[c0 + chord], cut_units[c0 + k]
                    n_new += 1
                if side == 0:
                    enter = n + index[slot] - base
                else:
                    leave = n + index[slot] - base
            if 2 * n_new > len(table):
                table, index = _rehashed(table, index)

            if enter == leave:  # touches the cell in one point, but for rounding: goes on without this chord
                for place in range(size):
                    pile[top + place], pile_made[top + place] = cell[place], cell_made[place]
                for later in range(n_left - rank):
                    pile_cut[top_cut + later] = cuts[rank + later]
                frame[depth, 0], frame[depth, 1] = size, n_left - rank
                depth, top, top_cut = depth + 1, top + size, top_cut + n_left - rank
                continue

            # the part below zero, then the part above, onto the pile
            needed = top + 2 * size + 4
            pile, pile_made = _room(pile, needed), _room(pile_made, needed)
            pile_cut = _room(pile_cut, top_cut + 2 * n_left)
            if depth + 2 > len(frame):
                larger = np.empty((2 * len(frame), 2), np.int64)
                larger[: len(frame)] = frame
                frame = larger
            for part in range(2):
                bottom = top
                place, final = (rise, fall) if part == 1 else (after, before)
                origin, target = (enter, leave) if part == 1 else (leave, enter)
                pile[top], pile_made[top] = origin, cell_made[before if part == 1 else fall]
                top += 1
                while True:
                    if cell[place] == origin:
                        pile_made[top - 1] = cell_made[place]
                    elif cell[place] != target:
                        pile[top], pile_made[top] = cell[place], cell_made[place]
                        top += 1
                    if place == final:
                        break
                    place = place + 1 if place + 1 < size else 0
                pile[top], pile_made[top] = target, -1 - k
                top += 1
                if top - bottom < 3:  # nothing but the chord itself: a part thinner than the tolerance
                    top = bottom
                    continue
                frame[depth, 0], frame[depth, 1] = top - bottom, n_left - rank
                depth += 1
                for later in range(n_left - rank):
                    pile_cut[top_cut + later] = cuts[rank + later]
                top_cut += n_left - rank
    cells = out_offsets[: n_out + 1], out_ring[:n_places], out_label[:n_places], out_parent[:n_out]
    return cells, (new_e[:n_new], new_f[:n_new], new_s[:n_new], new_unit[:n_new], new_other[:n_new])
