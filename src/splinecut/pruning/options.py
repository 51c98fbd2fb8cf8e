"""A method's options checked against the annotations of its fields: types and ranges, for all methods in one place.

    population: Count = 64

A wrong value is an InputError of one line, whether it comes from a recipe, from `sc.draw` or from the constructor.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import fields
from functools import cache
from numbers import Integral, Real
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

from pydantic import Field
from pydantic.fields import FieldInfo

from splinecut.errors import InputError, unknown

Count = Annotated[int, Field(ge=1)]
NotNegativeInt = Annotated[int, Field(ge=0)]
Positive = Annotated[float, Field(gt=0)]
NotNegative = Annotated[float, Field(ge=0)]
Share = Annotated[float, Field(gt=0, le=1)]

_WORDS = {int: "a whole number", float: "a number", bool: "true or false", str: "a text", NoneType: "nothing"}


def check_options(method: str, kind: type, options: Mapping[str, Any]) -> None:
    """Raises InputError where a field of the method's dataclass cannot hold the value given for it.

    A whole number will do for a float, NumPy's numbers for Python's; True and False are no numbers. Values are left
    as they are, so that records and tickets say what was given.
    """
    defaults = {field.name: field.default for field in fields(kind)}
    for name, value in options.items():
        if name not in defaults:
            raise unknown(f"option of {method}", name, defaults)
        hint = _hints(kind).get(name, Any)
        if get_origin(hint) is Literal:
            if value not in get_args(hint):
                raise unknown(f"{name} of {method}", str(value), get_args(hint))
            continue
        allowed = _alternatives(hint)
        bounds = next((bounds for one, bounds in allowed if _holds(one, value)), None)
        if bounds is None:
            words = " or ".join(_WORDS.get(one, str(one)) for one, _ in allowed)
            raise InputError(f"{name} of {method} must be {words}, got {value!r}{_remedy(allowed, value)}")
        if not _is_within(bounds, value):
            raise InputError(
                f"{name} of {method} must be {_range(bounds)}, got {value!r}; the default is {defaults[name]}"
            )


Bounds = Mapping[str, float]
"""Any of ge, gt, le, lt -> the bound."""


@cache
def _hints(kind: type) -> dict[str, Any]:
    try:
        return get_type_hints(kind, include_extras=True)
    except NameError:  # a name that only type checkers import: these fields cannot be checked, the method may be fine
        return {}


def _alternatives(hint: Any) -> list[tuple[Any, Bounds]]:
    """The types a field allows, each with the range it is annotated with."""
    parts = get_args(hint) if get_origin(hint) in (Union, UnionType) else (hint,)
    return [(get_args(part)[0], _bounds(part)) if get_origin(part) is Annotated else (part, {}) for part in parts]


def _bounds(hint: Any) -> Bounds:
    given = [one for extra in get_args(hint)[1:] if isinstance(extra, FieldInfo) for one in extra.metadata]
    return {name: getattr(one, name) for one in given for name in ("ge", "gt", "le", "lt") if hasattr(one, name)}


def _is_within(bounds: Bounds, value: Any) -> bool:
    return (
        (
            value >= bounds.get("ge", -math.inf)
            and value <= bounds.get("le", math.inf)
            and ("gt" not in bounds or value > bounds["gt"])
            and ("lt" not in bounds or value < bounds["lt"])
        )
        if bounds
        else True
    )


def _range(bounds: Bounds) -> str:
    """The range in words: "in (0, 1]", "at least 1", "positive"."""
    low, high = bounds.get("ge", bounds.get("gt")), bounds.get("le", bounds.get("lt"))
    if low is not None and high is not None:
        return f"in {'[' if 'ge' in bounds else '('}{low}, {high}{']' if 'le' in bounds else ')'}"
    if high is not None:
        return f"at most {high}" if "le" in bounds else f"below {high}"
    return f"at least {low}" if "ge" in bounds else "positive" if low == 0 else f"above {low}"


def _holds(kind: Any, value: Any) -> bool:
    if kind is bool:
        return isinstance(value, bool)
    if kind in (int, float):
        is_number = isinstance(value, Integral if kind is int else Real) and not isinstance(value, bool)
        return is_number and not math.isnan(value)
    origin = get_origin(kind) or kind
    if origin is Literal:
        return value in get_args(kind)
    if origin in (list, tuple):  # JSON and TOML know lists only
        return isinstance(value, (list, tuple))
    return kind is Any or not isinstance(origin, type) or isinstance(value, origin)


def _remedy(allowed: list[tuple[Any, Bounds]], value: Any) -> str:
    """The same without quotation marks, where that is what was meant."""
    if isinstance(value, str) and any(kind in (int, float) for kind, _ in allowed):
        try:
            number = float(value)
        except ValueError:
            return "; give a number without quotation marks"
        return f"; write {int(number) if number.is_integer() else number} without quotation marks"
    return "; see docs/methods.md for the options of each method"


def is_number(value: Any) -> bool:
    """Whether a value is a real number, Python's or NumPy's, and not NaN; True and False are none."""
    return _holds(float, value)
