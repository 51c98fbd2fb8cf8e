"""A ticket applied to a network: as a mask that can be taken off, or as a cut."""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor, nn

from splinecut.errors import InputError, unknown
from splinecut.networks import surgery
from splinecut.networks.inputs import Arguments
from splinecut.networks.model_state import unwrapped
from splinecut.networks.surgery import Mask
from splinecut.networks.surgery.finite import check_made
from splinecut.pruning.refit.fold import fold
from splinecut.pruning.refit.least_squares import least_squares
from splinecut.pruning.ticket import Ticket


def mask(model: nn.Module, ticket: Ticket) -> Mask:
    """Makes `model` compute what its cut would, in place; undo it with `.remove()` or use it in a `with` block.

    Training goes on under the mask: what is removed gets no gradient and stays at zero.
    """
    if ticket.groups is None:
        return surgery.mask_weights(model, ticket.keep)
    return surgery.mask(model, ticket.groups, ticket.keep)


def cut(
    model: nn.Module,
    ticket: Ticket,
    optimizer: torch.optim.Optimizer | None = None,
    refit: str | None = None,
    probe: Float[Tensor, "samples *input"] | Arguments | None = None,
) -> nn.Module:
    """A smaller copy of `model`, of the same class; `optimizer` goes on training it, its state sliced alike.

    refit: None leaves the kept weights as they are; "fold" gives the outgoing weights of removed units to kept ones
    whose cut they repeat, without data; "least_squares" fits every layer from the first cut on to what the dense
    network computes, on a `probe` of training inputs (one tensor, or a tuple of the network's arguments), and corrects
    batch norms by what the cut changes on them. A layer that lost inputs and that this would make worse, measured on
    inputs held out of the probe, keeps its weights, and a ProbeWarning names it. A result that is not finite is
    refused.
    """
    if ticket.groups is None:
        raise InputError("a ticket of single weights makes no smaller network; apply it with sc.mask")
    if refit not in (None, "fold", "least_squares"):
        raise unknown("refit", str(refit), ("fold", "least_squares"), "or None")
    if refit == "least_squares" and probe is None:
        raise InputError("refit='least_squares' needs a probe; pass a few hundred training inputs as probe=")
    smaller = surgery.cut(model, ticket.groups, ticket.keep, optimizer)
    if refit == "fold":
        fold(unwrapped(model), smaller, ticket.groups, ticket.keep)
    elif refit == "least_squares":
        assert probe is not None
        least_squares(unwrapped(model), smaller, ticket.groups, ticket.keep, probe)
    # Last, after the refit: a network that was finite may overflow once weights are added up.
    check_made(smaller, unwrapped(model), f"refit={refit!r}")
    return smaller
