"""Exceptions. Messages state what was expected, what was given, and the fix."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class SplinecutError(Exception):
    """Base of every error a user can cause or meet; the command line prints it as one line and exits with 2."""


class InputError(SplinecutError, ValueError):
    """A value given to us is not one we can work with."""


class ProbeWarning(UserWarning):
    """The probe is too small for what is asked of it; the message names the layers and how many inputs would do."""


class UnprovedWarning(UserWarning):
    """Nothing could show that a network is cut rightly; compare its outputs before and after."""


def unknown(kind: str, got: str, known: Iterable[str], remedy: str = "") -> InputError:
    """The error for a name we do not know: says the nearest known one, and all of them when they are few.

    >>> str(unknown("model", "vgg61", ["vgg16", "mlp"]))
    "unknown model 'vgg61'; did you mean 'vgg16'? known: mlp, vgg16"
    """
    names = sorted(known)
    nearest = difflib.get_close_matches(got, names, n=1, cutoff=0.5)
    hint = f"; did you mean {nearest[0]!r}?" if nearest else ";"
    listing = f" known: {', '.join(names)}" if len(names) <= 30 else ""
    return InputError(f"unknown {kind} {got!r}{hint}{listing}{'; ' + remedy if remedy else ''}")
