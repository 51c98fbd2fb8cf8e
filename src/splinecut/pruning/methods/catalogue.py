"""The table of pruning methods: one row each, written by hand."""

from __future__ import annotations

from splinecut.pruning.method import Method
from splinecut.pruning.methods.channels.baselines import L2, Random
from splinecut.pruning.methods.channels.boundary import BoundaryKinks
from splinecut.pruning.methods.channels.csgd.method import CentripetalSGD
from splinecut.pruning.methods.channels.early_bird import EarlyBirdTicket
from splinecut.pruning.methods.channels.gal.method import GAL
from splinecut.pruning.methods.channels.gdp import GlobalDynamic
from splinecut.pruning.methods.channels.legr import LeGR
from splinecut.pruning.methods.channels.metapruning.method import MetaPruning
from splinecut.pruning.methods.channels.sfp import SoftFilters
from splinecut.pruning.methods.channels.slimming import Slimming, SlimmingIterative
from splinecut.pruning.methods.channels.spline import Spline
from splinecut.pruning.methods.channels.thinet import ThiNet
from splinecut.pruning.methods.weights.magnitude import Lottery, Magnitude
from splinecut.pruning.methods.weights.random_masks import ErdosRenyiKernel, Uniform
from splinecut.pruning.methods.weights.rigl import Rigl
from splinecut.pruning.methods.weights.sensitivity import Grasp, Snip
from splinecut.pruning.methods.weights.synflow import Synflow

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
