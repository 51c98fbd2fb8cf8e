"""A ticket applied to a network: as a mask that can be taken off, or as a cut."""

from __future__ import annotations

import torch
from torch import nn

from splinecut.errors import InputError
from splinecut.networks import surgery
from splinecut.networks.surgery import Mask
from splinecut.pruning.ticket import Ticket


def mask(model: nn.Module, ticket: Ticket) -> Mask:
    """Makes `model` compute what its cut would, in place; undo it with `.remove()` or use it in a `with` block.

    Training goes on under the mask: what is removed gets no gradient and stays at zero.
    """
    if ticket.groups is None:
        return surgery.mask_weights(model, ticket.keep)
    return surgery.mask(model, ticket.groups, ticket.keep)


def cut(model: nn.Module, ticket: Ticket, optimizer: torch.optim.Optimizer | None = None) -> nn.Module:
    """A smaller copy of `model`, of the same class; `optimizer` goes on training it, its state sliced alike."""
    if ticket.groups is None:
        raise InputError("a ticket of single weights makes no smaller network; apply it with sc.mask")
    return surgery.cut(model, ticket.groups, ticket.keep, optimizer)
