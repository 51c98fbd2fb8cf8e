"""A user's own object by its import path, "package.module:name": models, methods."""

from __future__ import annotations

import importlib
import textwrap
from typing import Any

from splinecut.errors import InputError, unknown


def load_object(path: str, kind: str) -> Any:
    """What stands at "package.module:name"; `kind` is what it should be, for messages ("model", "method").

    Raises InputError where the module cannot be imported, whatever it raises, or has no such callable.
    """
    module_name, _, attribute = path.partition(":")
    try:
        module = importlib.import_module(module_name)
    except Exception as error:  # whatever stands in a user's module runs here
        remedy = "run this in its folder, or put that on PYTHONPATH" if isinstance(error, ImportError) else "fix it"
        raise InputError(f"cannot import {module_name!r} of {kind} {path!r}: {one_line(error)}; {remedy}") from error
    if not callable(value := getattr(module, attribute, None)):
        callables = [name for name in vars(module) if callable(getattr(module, name))]
        raise unknown(f"{kind} in module {module_name!r}", attribute, callables)
    return value


def one_line(error: Exception) -> str:
    """An error as one line that is not too long to read."""
    return textwrap.shorten(f"{type(error).__name__}: {error}", 300, placeholder=" ...")
