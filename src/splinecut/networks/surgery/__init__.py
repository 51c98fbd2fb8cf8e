"""Applying a keep map to a network: `mask` it reversibly, or `cut` it into a smaller one; both give equal outputs.

What follows from a keep map alone belongs here, with optimizer state and files of cut networks. Which units to keep is
decided in `pruning`, which units belong together in `networks.groups`.
"""

from __future__ import annotations

import warnings
from typing import Any

from splinecut.networks.layers import Zero
from splinecut.networks.surgery.cut import cut as cut
from splinecut.networks.surgery.mask import Mask as Mask
from splinecut.networks.surgery.mask import mask as mask
from splinecut.networks.surgery.mask import mask_weights as mask_weights
from splinecut.networks.surgery.save import load as load
from splinecut.networks.surgery.save import save as save


def __getattr__(name: str) -> Any:
    """`Nothing`, the name that `networks.layers.Zero` had in 0.1."""
    if name == "Nothing":
        text = "splinecut.networks.surgery.Nothing is now splinecut.networks.layers.Zero; the old name goes in 0.3"
        warnings.warn(text, DeprecationWarning, stacklevel=2)
        return Zero
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
