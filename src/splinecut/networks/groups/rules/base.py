"""The type of a rule, and helpers of several rules."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from jaxtyping import Int64
from torch import Tensor, fx

if TYPE_CHECKING:
    from splinecut.networks.groups.label_pass import LabelPass

Arguments = Mapping[str, Any]
Rule = Callable[["LabelPass", fx.Node, Arguments], Any]
"""(walk, node, its arguments by name) -> labels of the node's value"""


def is_free(walk: LabelPass, vector: Any) -> bool:
    """Whether the argument is a parameter, which can shrink, or missing."""
    return vector is None or walk.key(vector) is not None


def follow(walk: LabelPass, units: Int64[Tensor, " units"], *vectors: Any) -> None:
    """Parameters with one entry per unit leave with it; None is no parameter."""
    for vector in vectors:
        if vector is not None:
            walk.ties.tie(walk.axis_labels(vector, 0, "follower"), units)
