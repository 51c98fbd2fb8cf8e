"""A method's options checked against its fields, so that a value of a wrong type is one line and no traceback."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import fields
from numbers import Integral, Real
from types import NoneType
from typing import Any, Literal, get_args, get_origin, get_type_hints

from splinecut.errors import InputError, unknown

_WORDS = {int: "a whole number", float: "a number", bool: "true or false", str: "a text", NoneType: "nothing"}


def check_options(method: str, kind: type, options: Mapping[str, Any]) -> None:
    """Raises InputError where a field of the method's dataclass cannot hold the value given for it.

    A whole number will do for a float, NumPy's numbers for Python's; True and False are no numbers. Values are left
    as they are, so that records and tickets say what was given.
    """
    known = [field.name for field in fields(kind)]
    hints = get_type_hints(kind)
    for name, value in options.items():
        if name not in known:
            raise unknown(f"option of {method}", name, known)
        if get_origin(hints[name]) is Literal:
            if value not in get_args(hints[name]):
                raise unknown(f"{name} of {method}", str(value), get_args(hints[name]))
            continue
        allowed = get_args(hints[name]) or (hints[name],)
        if not any(_holds(one, value) for one in allowed):
            words = " or ".join(_WORDS.get(one, str(one)) for one in allowed)
            raise InputError(f"{name} of {method} must be {words}, got {value!r}{_remedy(allowed, value)}")


def _holds(kind: Any, value: Any) -> bool:
    if kind is bool:
        return isinstance(value, bool)
    if kind in (int, float):
        is_number = isinstance(value, Integral if kind is int else Real) and not isinstance(value, bool)
        return is_number and not math.isnan(value)
    return isinstance(value, kind)


def _remedy(allowed: tuple[Any, ...], value: Any) -> str:
    """The same without quotation marks, where that is what was meant."""
    if isinstance(value, str) and any(kind in (int, float) for kind in allowed):
        try:
            number = float(value)
        except ValueError:
            return "; give a number without quotation marks"
        return f"; write {int(number) if number.is_integer() else number} without quotation marks"
    return "; see docs/methods.md for the options of each method"


def is_number(value: Any) -> bool:
    """Whether a value is a real number, Python's or NumPy's, and not NaN; True and False are none."""
    return _holds(float, value)
