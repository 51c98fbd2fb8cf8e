"""What to prune and when, and everything that the author of a method needs.

    from splinecut.pruning import Budget, Evidence, Method, consumer_layers

In this package: the values of pruning (budget, ticket, evidence, method, weight masks), the early-bird detector, and
the verbs `draw`, `mask` and `cut`. How a method is run is `pruning.engine`, the methods are `pruning.methods`, weights
after a cut are `pruning.refit`. How tensors are cut is not here: that is `networks.surgery`.

Names are loaded on first use: recipes are listed without importing torch.
"""

from __future__ import annotations

import importlib
import warnings
from typing import TYPE_CHECKING, Any

_HOME = {  # name -> the module it lives in
    "Budget": "splinecut.pruning.budget",
    "CONTINUE": "splinecut.pruning.method",
    "ConsumerLayer": "splinecut.pruning.activations",
    "EarlyBird": "splinecut.pruning.detect",
    "Evidence": "splinecut.pruning.evidence",
    "FINE_TUNE": "splinecut.pruning.method",
    "Hook": "splinecut.training.hooks",
    "Keep": "splinecut.pruning.budget",
    "METHODS": "splinecut.pruning.methods.catalogue",
    "Method": "splinecut.pruning.method",
    "NO_RETRAINING": "splinecut.pruning.method",
    "Phase": "splinecut.training.ledger",
    "REINIT": "splinecut.pruning.method",
    "Recovery": "splinecut.pruning.method",
    "Round": "splinecut.pruning.method",
    "RunContext": "splinecut.pruning.engine.context",
    "Scores": "splinecut.pruning.method",
    "Stage": "splinecut.pruning.engine.stages",
    "Ticket": "splinecut.pruning.ticket",
    "TrainState": "splinecut.training.hooks",
    "calibrate": "splinecut.pruning.calibration.run",
    "consumer_layers": "splinecut.pruning.activations",
    "cut": "splinecut.pruning.apply",
    "draw": "splinecut.pruning.draw_ticket",
    "filter_norm": "splinecut.pruning.unit_parameters",
    "mask": "splinecut.pruning.apply",
    "prunable_weights": "splinecut.pruning.weight_mask",
    "prune": "splinecut.pruning.engine.driver",
    "random_twin": "splinecut.pruning.ticket",
    "resolve_method": "splinecut.pruning.methods.catalogue",
    "select": "splinecut.pruning.budget",
    "select_evenly": "splinecut.pruning.budget",
    "unit_cuts": "splinecut.pruning.unit_parameters",
}

__all__ = list(_HOME)

if TYPE_CHECKING:  # what type checkers and editors see
    from splinecut.pruning.activations import ConsumerLayer as ConsumerLayer
    from splinecut.pruning.activations import consumer_layers as consumer_layers
    from splinecut.pruning.apply import cut as cut
    from splinecut.pruning.apply import mask as mask
    from splinecut.pruning.budget import Budget as Budget
    from splinecut.pruning.budget import Keep as Keep
    from splinecut.pruning.budget import select as select
    from splinecut.pruning.budget import select_evenly as select_evenly
    from splinecut.pruning.calibration.run import calibrate as calibrate
    from splinecut.pruning.detect import EarlyBird as EarlyBird
    from splinecut.pruning.draw_ticket import draw as draw
    from splinecut.pruning.engine.context import RunContext as RunContext
    from splinecut.pruning.engine.driver import prune as prune
    from splinecut.pruning.engine.stages import Stage as Stage
    from splinecut.pruning.evidence import Evidence as Evidence
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
    from splinecut.pruning.ticket import random_twin as random_twin
    from splinecut.pruning.unit_parameters import filter_norm as filter_norm
    from splinecut.pruning.unit_parameters import unit_cuts as unit_cuts
    from splinecut.pruning.weight_mask import prunable_weights as prunable_weights
    from splinecut.training.hooks import Hook as Hook
    from splinecut.training.hooks import TrainState as TrainState
    from splinecut.training.ledger import Phase as Phase


_RENAMED = {"Bench": "RunContext", "readers": "consumer_layers"}


def __getattr__(name: str) -> Any:
    if name in _RENAMED:
        warnings.warn(
            f"splinecut.pruning.{name} is now {_RENAMED[name]}; the old name goes in 0.3", DeprecationWarning, 2
        )
        name = _RENAMED[name]
    if name not in _HOME:
        raise AttributeError(f"module 'splinecut.pruning' has no attribute {name!r}")
    return getattr(importlib.import_module(_HOME[name]), name)
