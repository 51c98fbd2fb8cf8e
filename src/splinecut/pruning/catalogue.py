"""The table of pruning methods: one row each, written by hand."""

from __future__ import annotations

from splinecut.pruning.boundary import BoundaryKinks
from splinecut.pruning.csgd import CentripetalSGD
from splinecut.pruning.densities import ErdosRenyiKernel, Uniform
from splinecut.pruning.dynamic import GlobalDynamic
from splinecut.pruning.early import EarlyBirdTicket
from splinecut.pruning.gal import GAL
from splinecut.pruning.legr import LeGR
from splinecut.pruning.magnitude import Lottery, Magnitude
from splinecut.pruning.metapruning import MetaPruning
from splinecut.pruning.method import Method
from splinecut.pruning.rigl import Rigl
from splinecut.pruning.sensitivity import Grasp, Snip
from splinecut.pruning.simple import L2, Random
from splinecut.pruning.slimming import Slimming, SlimmingIterative
from splinecut.pruning.soft import SoftFilters
from splinecut.pruning.spline import Spline
from splinecut.pruning.synflow import Synflow
from splinecut.pruning.thinet import ThiNet

METHODS: dict[str, type[Method]] = {
    "boundary": BoundaryKinks,
    "csgd": CentripetalSGD,
    "early-bird": EarlyBirdTicket,
    "erk": ErdosRenyiKernel,
    "gal": GAL,
    "gdp": GlobalDynamic,
    "grasp": Grasp,
    "l2": L2,
    "legr": LeGR,
    "lottery": Lottery,
    "magnitude": Magnitude,
    "metapruning": MetaPruning,
    "random": Random,
    "rigl": Rigl,
    "sfp": SoftFilters,
    "slimming": Slimming,
    "slimming-iterative": SlimmingIterative,
    "snip": Snip,
    "spline": Spline,
    "synflow": Synflow,
    "thinet": ThiNet,
    "uniform": Uniform,
}
