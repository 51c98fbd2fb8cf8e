"""splinecut: deep networks as max-affine splines; see their partition, detect when to prune, prune for real.

    import splinecut as sc

Public names are loaded on first use, so that `import splinecut` stays quick.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

_HOME = {  # public name -> the module it lives in
    "SplinecutError": "splinecut.errors",
    "InputError": "splinecut.errors",
}

__all__ = ["__version__", *_HOME]

if TYPE_CHECKING:  # what type checkers and editors see
    from splinecut.errors import InputError as InputError
    from splinecut.errors import SplinecutError as SplinecutError


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'splinecut' has no attribute {name!r}")
    value = getattr(importlib.import_module(_HOME[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
