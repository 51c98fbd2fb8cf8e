"""Channels that must be removed together: read from the exported program, verified on random numbers, stored.

`read` holds `groups` and `blocks`, `values` what they give, `rules` how operators couple channels. Applying a choice
of units is `networks.surgery`, choosing them is `pruning`.
"""

from __future__ import annotations

from typing import Any


def __getattr__(name: str) -> Any:
    """`groups` and `blocks`, loaded on first use: surgery needs `values` alone, and `read` needs surgery."""
    if name in ("groups", "blocks"):
        from splinecut.networks.groups import read

        return getattr(read, name)
    raise AttributeError(f"module 'splinecut.networks.groups' has no attribute {name!r}")
