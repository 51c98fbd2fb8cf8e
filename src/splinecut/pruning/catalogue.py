"""The table of pruning methods: one row each, written by hand."""

from __future__ import annotations

from splinecut.pruning.method import Method
from splinecut.pruning.simple import L2, Random, Slimming
from splinecut.pruning.spline import Spline

METHODS: dict[str, type[Method]] = {
    "spline": Spline,
    "random": Random,
    "l2": L2,
    "slimming": Slimming,
}
