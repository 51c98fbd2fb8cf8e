"""splinecut: deep networks as max-affine splines; see their partition, detect when to prune, prune for real.

    import splinecut as sc

Public names are loaded on first use, so that `import splinecut` stays quick.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from splinecut.moved import install

__version__ = "0.1.1"

_HOME = {  # public name -> the module it lives in
    "Budget": "splinecut.pruning.budget",
    "Codes": "splinecut.geometry.codes",
    "EarlyBird": "splinecut.pruning.detect",
    "Experiment": "splinecut.experiments.spec",
    "Findings": "splinecut.geometry.certify",
    "InputError": "splinecut.errors",
    "Partition": "splinecut.geometry.partition",
    "Pieces": "splinecut.geometry.line",
    "ProbeWarning": "splinecut.errors",
    "RegionLimit": "splinecut.geometry.subdivision.run",
    "Slice": "splinecut.geometry.slices",
    "SplinecutError": "splinecut.errors",
    "Ticket": "splinecut.pruning.ticket",
    "UnprovedWarning": "splinecut.errors",
    "calibrate": "splinecut.pruning.calibration.run",
    "certify": "splinecut.api",
    "codes": "splinecut.api",
    "cut": "splinecut.pruning.apply",
    "distance": "splinecut.geometry.codes",
    "draw": "splinecut.pruning.draw_ticket",
    "groups": "splinecut.networks.groups.read",
    "load": "splinecut.networks.surgery",
    "local_affine": "splinecut.api",
    "mask": "splinecut.pruning.apply",
    "pieces_along": "splinecut.api",
    "run": "splinecut.experiments.runner",
    "save": "splinecut.networks.surgery",
    "subdivide": "splinecut.api",
}

__all__ = ["__version__", *_HOME]

if TYPE_CHECKING:  # what type checkers and editors see
    from splinecut.api import certify as certify
    from splinecut.api import codes as codes
    from splinecut.api import local_affine as local_affine
    from splinecut.api import pieces_along as pieces_along
    from splinecut.api import subdivide as subdivide
    from splinecut.errors import InputError as InputError
    from splinecut.errors import ProbeWarning as ProbeWarning
    from splinecut.errors import SplinecutError as SplinecutError
    from splinecut.errors import UnprovedWarning as UnprovedWarning
    from splinecut.experiments.runner import run as run
    from splinecut.experiments.spec import Experiment as Experiment
    from splinecut.geometry.certify import Findings as Findings
    from splinecut.geometry.codes import Codes as Codes
    from splinecut.geometry.codes import distance as distance
    from splinecut.geometry.line import Pieces as Pieces
    from splinecut.geometry.partition import Partition as Partition
    from splinecut.geometry.slices import Slice as Slice
    from splinecut.geometry.subdivision.run import RegionLimit as RegionLimit
    from splinecut.networks.groups.read import groups as groups
    from splinecut.networks.surgery import load as load
    from splinecut.networks.surgery import save as save
    from splinecut.pruning.apply import cut as cut
    from splinecut.pruning.apply import mask as mask
    from splinecut.pruning.budget import Budget as Budget
    from splinecut.pruning.calibration.run import calibrate as calibrate
    from splinecut.pruning.detect import EarlyBird as EarlyBird
    from splinecut.pruning.draw_ticket import draw as draw
    from splinecut.pruning.ticket import Ticket as Ticket


install()


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'splinecut' has no attribute {name!r}")
    value = getattr(importlib.import_module(_HOME[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
