"""Means over seeds with Student's 95 % intervals, as studies print and store them."""

from __future__ import annotations

import math
from collections.abc import Sequence

from splinecut.experiments.summaries import Estimate


def interval(values: Sequence[float]) -> tuple[float, float]:
    """Mean and half-width of its interval; NaN for a single value."""
    estimate = Estimate.of(values)
    return estimate.mean, math.nan if estimate.half is None else estimate.half


def plus_minus(values: Sequence[float], form: str = ".1f") -> str:
    """Mean and half-width as text; `form` is the format of the mean."""
    mean, half = interval(values)
    return f"{mean:{form}} +- {half:{form.removeprefix('+')}}"
