"""Warnings about a probe that is too small, at the line of the caller outside splinecut."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Sequence
from pathlib import Path

from splinecut.errors import ProbeWarning

PACKAGE = str(Path(__file__).parents[2])


def warn_about_probe(message: str) -> None:
    """A ProbeWarning at the outermost line that called into splinecut: the line that chose the probe."""
    frame, depth, outermost = sys._getframe(), 1, 1
    while frame.f_back is not None:
        outermost = depth if frame.f_code.co_filename.startswith(PACKAGE) else outermost
        frame, depth = frame.f_back, depth + 1
    warnings.warn(message, ProbeWarning, stacklevel=outermost + 1)


def listed(names: Sequence[str], most: int = 5) -> str:
    """The first few names, and how many more there are."""
    shown = ", ".join(names[:most])
    return shown if len(names) <= most else f"{shown} and {len(names) - most} more layers"
