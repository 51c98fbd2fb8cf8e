"""From a network to a ticket: read its groups, score their units, select within the budget."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, fields
from typing import Any

import numpy as np
from jaxtyping import Float
from torch import Tensor, nn

from splinecut.errors import InputError, unknown
from splinecut.networks.groups import groups as read_groups
from splinecut.networks.units import Groups, Keep
from splinecut.networks.wrappers import unwrapped
from splinecut.pruning.budget import Budget, select
from splinecut.pruning.catalogue import METHODS
from splinecut.pruning.evidence import Evidence
from splinecut.pruning.ticket import Ticket


def draw(
    model: nn.Module,
    example: Float[Tensor, "samples *input"],
    method: str = "spline",
    keep: float | None = None,
    budget: Budget | None = None,
    residual: str = "tied",
    seed: int = 0,
    **options: Any,
) -> Ticket:
    """The ticket that `method` draws for `model`: which channels stay within the budget.

    example:  a batch of inputs; its shape is what the network is read with, and criteria that look at activations
              look at these, so give a few hundred training images.
    keep:     short for Budget(keep); the method's own `scope` goes into it.
    residual: "tied", "select" or "inner", see `sc.groups`.
    options:  of the method, e.g. form="paper", scope="layer" for "spline".

    The network is left as found; the same arguments draw the same ticket.
    """
    if (keep is None) == (budget is None):
        raise InputError(f"give either keep or budget, got keep={keep} and budget={budget}; keep=0.5 is Budget(0.5)")
    chosen = named(method, budget, options)
    budget = budget or Budget(keep or 0.0, scope=getattr(chosen, "scope", "global"))
    bare = unwrapped(model)
    evidence = Evidence(bare, read_groups(bare, example, residual), example, seed)
    return drawn(evidence, method, chosen, budget)


def named(method: str, budget: Budget | None, options: Mapping[str, Any]) -> Any:
    """The method of that name with these options; where it ranks by scope, the budget's is its own."""
    if method not in METHODS:
        raise unknown("method", method, METHODS)
    known = [field.name for field in fields(METHODS[method])]
    for name in options:
        if name not in known:
            raise unknown(f"option of {method}", name, known)
    scope = {"scope": budget.scope} if budget is not None and "scope" in known else {}
    return METHODS[method](**{**scope, **options})


def drawn(evidence: Evidence, name: str, method: Any, budget: Budget) -> Ticket:
    """The ticket that a method draws from the evidence."""
    groups = evidence.groups
    scores = method.score(evidence, savings(groups, budget))
    options = {**asdict(method), "seed": evidence.seed}
    return Ticket(select(scores, budget, groups), groups, name, budget, options)


def savings(groups: Groups, budget: Budget) -> dict[str, float]:
    """What the first unit to leave each group saves, in the budget's currency: 1 of channels, or FLOPs, or weights."""
    currencies: dict[str, Callable[[Keep | None], int]] = {"flops": groups.flops, "weights": groups.parameters}
    if budget.of not in currencies:
        return {group.name: 1.0 for group in groups}
    cost = currencies[budget.of]
    return {group.name: float(cost({}) - cost({group.name: np.arange(group.size) > 0})) for group in groups}
