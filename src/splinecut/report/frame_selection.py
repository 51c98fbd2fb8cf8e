"""Which stored partitions a page shows when all of them would make it too large to open."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import groupby

from splinecut.experiments.film.frames import Frame, Frames

ROOM = 12_000_000  # bytes for partitions; a page of 15 MB still opens at once, and tables need the rest


def thinned(films: Sequence[Frames], sizes: Mapping[Frame, int], room: int = ROOM) -> tuple[list[Frames], list[str]]:
    """The films with every k-th frame of each stage, the first and the last always, and a sentence if k is not 1.

    k is the smallest power of two whose frames take no more than `room` bytes together.
    """
    step, most = 1, max((len(film) for film in films), default=0)
    kept = list(films)
    while sum(sizes[frame] for film in kept for frame in film) > room and step < most:
        step *= 2
        kept = [replace(film, frames=_every(film.frames, step)) for film in films]
    if step == 1:
        return kept, []
    shown, stored = (sum(len(film) for film in some) for some in (kept, films))
    return kept, [f"{shown} of {stored} stored partitions are shown, so that the page stays small enough to open."]


def _every(frames: Sequence[Frame], step: int) -> tuple[Frame, ...]:
    stages = [list(stage) for _, stage in groupby(frames, key=lambda frame: frame.stage)]
    return tuple(frame for stage in stages for i, frame in enumerate(stage) if i % step == 0 or i == len(stage) - 1)
