"""When to prune, what to prune, and everything that the author of a method needs.

    from splinecut.pruning import Method, Evidence, Budget, readers

Names are loaded on first use: recipes are listed without importing torch. How a method is run is `pruning.engine`, the
methods themselves are `pruning.methods`; neither cuts tensors, which is `networks.surgery`.
"""

from __future__ import annotations

import importlib
import warnings
from typing import TYPE_CHECKING, Any

_HOME = {  # name -> the module it lives in
    "RunContext": "splinecut.pruning.engine.context",
    "Budget": "splinecut.pruning.budget",
    "CONTINUE": "splinecut.pruning.method",
    "EarlyBird": "splinecut.pruning.detect",
    "Evidence": "splinecut.pruning.evidence",
    "FINE_TUNE": "splinecut.pruning.method",
    "Hook": "splinecut.training.hooks",
    "METHODS": "splinecut.pruning.methods.catalogue",
    "Method": "splinecut.pruning.method",
    "NO_RETRAINING": "splinecut.pruning.method",
    "Phase": "splinecut.training.ledger",
    "REINIT": "splinecut.pruning.method",
    "Recovery": "splinecut.pruning.method",
    "Round": "splinecut.pruning.method",
    "Scores": "splinecut.pruning.method",
    "Stage": "splinecut.pruning.engine.stages",
    "Ticket": "splinecut.pruning.ticket",
    "TrainState": "splinecut.training.hooks",
    "prune": "splinecut.pruning.engine.driver",
    "readers": "splinecut.pruning.evidence",
    "resolve_method": "splinecut.pruning.methods.catalogue",
    "select": "splinecut.pruning.budget",
    "unit_cuts": "splinecut.pruning.evidence",
}

__all__ = list(_HOME)

if TYPE_CHECKING:  # what type checkers and editors see
    from splinecut.pruning.budget import Budget as Budget
    from splinecut.pruning.budget import select as select
    from splinecut.pruning.detect import EarlyBird as EarlyBird
    from splinecut.pruning.engine.context import RunContext as RunContext
    from splinecut.pruning.engine.driver import prune as prune
    from splinecut.pruning.engine.stages import Stage as Stage
    from splinecut.pruning.evidence import Evidence as Evidence
    from splinecut.pruning.evidence import readers as readers
    from splinecut.pruning.evidence import unit_cuts as unit_cuts
    from splinecut.pruning.method import CONTINUE as CONTINUE
    from splinecut.pruning.method import FINE_TUNE as FINE_TUNE
    from splinecut.pruning.method import NO_RETRAINING as NO_RETRAINING
    from splinecut.pruning.method import REINIT as REINIT
    from splinecut.pruning.method import Method as Method
    from splinecut.pruning.method import Recovery as Recovery
    from splinecut.pruning.method import Round as Round
    from splinecut.pruning.method import Scores as Scores
    from splinecut.pruning.methods.catalogue import METHODS as METHODS
    from splinecut.pruning.methods.catalogue import resolve_method as resolve_method
    from splinecut.pruning.ticket import Ticket as Ticket
    from splinecut.training.hooks import Hook as Hook
    from splinecut.training.hooks import TrainState as TrainState
    from splinecut.training.ledger import Phase as Phase


_RENAMED = {"RunContext": "RunContext"}


def __getattr__(name: str) -> Any:
    if name in _RENAMED:
        warnings.warn(
            f"splinecut.pruning.{name} is now {_RENAMED[name]}; the old name goes in 0.3", DeprecationWarning, 2
        )
        name = _RENAMED[name]
    if name not in _HOME:
        raise AttributeError(f"module 'splinecut.pruning' has no attribute {name!r}")
    return getattr(importlib.import_module(_HOME[name]), name)
