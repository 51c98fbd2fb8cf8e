"""The table of pruning methods: one row each, written by hand."""

from __future__ import annotations

from splinecut.pruning.early import EarlyBirdTicket
from splinecut.pruning.method import Method
from splinecut.pruning.simple import L2, Random
from splinecut.pruning.slimming import Slimming, SlimmingIterative
from splinecut.pruning.spline import Spline

METHODS: dict[str, type[Method]] = {
    "early-bird": EarlyBirdTicket,
    "l2": L2,
    "random": Random,
    "slimming": Slimming,
    "slimming-iterative": SlimmingIterative,
    "spline": Spline,
}
