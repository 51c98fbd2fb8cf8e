"""From a network to a ticket: read its groups, score their units, select within the budget."""

from __future__ import annotations

import warnings
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from jaxtyping import Float, Int64
from torch import Tensor, nn

from splinecut.errors import InputError, UnprovedWarning
from splinecut.networks.groups.read import groups as read_groups
from splinecut.networks.groups.values import Groups
from splinecut.networks.inputs import Arguments, as_arguments, check_finite
from splinecut.networks.model_state import unwrapped
from splinecut.pruning.budget import Budget
from splinecut.pruning.evidence import NO_GROUPS, Evidence
from splinecut.pruning.method import Method
from splinecut.pruning.methods.catalogue import resolve_method
from splinecut.pruning.options import is_number
from splinecut.pruning.ticket import Ticket


def draw(
    model: nn.Module,
    example: Float[Tensor, "samples *input"] | Arguments,
    method: str | type[Method] | Method = "spline",
    keep: float | None = None,
    budget: Budget | None = None,
    residual: str | None = None,
    seed: int = 0,
    labels: Int64[Tensor, " samples"] | None = None,
    cache: str | Path | None = None,
    **options: Any,
) -> Ticket:
    """The ticket that `method` draws for `model`: which channels, or single weights, stay within the budget.

    example:  a batch of inputs, or a tuple of the network's arguments; its shape is what the network is read with,
              and criteria that look at activations look at these, so give a few hundred training images. They must be
              finite; where a layer has fewer rows of them than units, a ProbeWarning says how many would do.
    method:   a name of the catalogue, "package.module:Class", or a `Method` of your own, as a value or a class.
    keep:     short for Budget(keep); the method's own `scope` goes into it.
    budget:   its scope must be the method's own where both are given; the default "global" gives way to the method's.
    residual: "auto", "tied", "select" or "inner", see `sc.groups`; left out, the method's own ("tied" for most).
    labels:   the classes of the example inputs, for methods that look at the loss.
    cache:    a folder where measurements are kept while they are made: the same call, interrupted, resumes.
    options:  of the method, e.g. effort="fast", or form="paper", scope="layer" for "spline".

    The network is left as found; the same arguments draw the same ticket.
    """
    if (keep is None) == (budget is None):
        raise InputError(f"give either keep or budget, got keep={keep} and budget={budget}; keep=0.5 is Budget(0.5)")
    if budget is not None and not isinstance(budget, Budget):
        remedy = f"keep={budget}" if is_number(budget) else 'budget=sc.Budget(0.5, "flops"), or keep=0.5'
        raise InputError(f"budget must be a Budget, got {budget!r}; write {remedy}")
    name, chosen = resolve_method(method, options, budget)
    if chosen.has_search:
        raise InputError(f"{name} draws only after a search or training of its own; run it from a recipe: sc.run")
    if budget is None:
        assert keep is not None
        budget = Budget(keep, chosen.units)
    budget = _within_scope(chosen, budget)
    # Before anything runs: one NaN would make every covariance NaN, and the error would name a layer instead.
    check_finite(as_arguments(example), "the example inputs")
    bare = unwrapped(model)
    groups = NO_GROUPS if chosen.units == "weights" else read_groups(bare, example, residual or chosen.residual)
    if chosen.units != "weights":
        _check_groups(groups, budget)
    evidence = Evidence(bare, groups, example, seed, labels, cache=Path(cache) if cache is not None else None)
    return ticket_from_evidence(evidence, name, chosen, budget)


def _check_groups(groups: Groups, budget: Budget) -> None:
    """Refuses a network of which nothing can leave, and warns where no comparison showed that a cut is right."""
    if budget.of == "blocks":
        raise InputError("a budget of blocks needs a method that scores residual branches; run gal from a recipe")
    if not len(groups):
        reasons = [f"{name} ({reason})" for name, reason in groups.left_whole.items()]
        more = f" and {len(reasons) - 5} more" if len(reasons) > 5 else ""
        raise InputError(f"no channels of this network can be removed: {'; '.join(reasons[:5]) or 'it has none'}{more}")
    if groups.unproved:
        warnings.warn(f"the cut is not proved: {groups.unproved}", UnprovedWarning, stacklevel=3)


def _within_scope(method: Method, budget: Budget) -> Budget:
    """The budget with the method's own scope, where it has one; refuses two scopes that differ.

    A Budget cannot tell whether its "global" was written down or is the default, so that one gives way.
    """
    own = getattr(method, "scope") if method.scope_option else budget.scope  # noqa: B009  (no field of every method)
    if own != budget.scope != "global":
        raise InputError(
            f"one scope decides the selection, got scope={own!r} of the method and {budget.scope!r} of the budget; "
            "leave one of them out"
        )
    return replace(budget, scope=own)


def ticket_from_evidence(evidence: Evidence, name: str, method: Method, budget: Budget) -> Ticket:
    """The ticket that a method draws from the evidence, in one round."""
    groups = None if method.units == "weights" else evidence.groups
    scores = method.score(evidence, budget)
    keep = method.select(scores, budget, groups, evidence.search_result)
    facts = getattr(scores, "facts", {})
    return Ticket(keep, groups, name, budget, {**asdict(method), "seed": evidence.seed}, facts)
