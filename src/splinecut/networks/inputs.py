"""Arguments of a network, one tensor or a tuple: splitting into rows, moving to the network's device, checking.

An example or a probe is one tensor, (samples, *input), or a tuple of the network's arguments, such as token ids and
an attention mask. Tensors with as many rows as the first one are split together; all else is passed on whole.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from typing import Any

import torch
from jaxtyping import Int64
from torch import Tensor, nn

from splinecut.errors import InputError

Arguments = tuple[Any, ...]


def as_arguments(example: Any) -> Arguments:
    """The arguments of a call, positional: a tensor is the only one, a tuple or list has all of them.

    Raises InputError for anything else, and where the first tensor has no rows.
    """
    arguments = tuple(example) if isinstance(example, tuple | list) else (example,)
    first = next((value for value in arguments if isinstance(value, Tensor)), None)
    if first is None:
        raise InputError(
            f"inputs must be a tensor (samples, *input) or a tuple of the network's arguments, got "
            f"{_kind(example)}; give the tensors themselves, such as next(iter(loader))[0]"
        )
    if first.ndim == 0 or len(first) == 0:
        raise InputError(f"inputs must have at least one row, got shape {tuple(first.shape)}; give (samples, *input)")
    return arguments


def _kind(example: Any) -> str:
    inside = f" of {', '.join(type(value).__name__ for value in example[:4])}" if isinstance(example, tuple) else ""
    return f"a {type(example).__name__}{inside}"


def count(arguments: Arguments) -> int:
    """How many rows (samples) there are: the length of the first tensor."""
    return next(len(value) for value in arguments if isinstance(value, Tensor))


def take(arguments: Arguments, rows: slice | Int64[Tensor, " some"]) -> Arguments:
    """The same call with only these rows of every tensor that has one for each sample.

    >>> take((torch.arange(4), torch.zeros(4, 2), "mean"), slice(0, 1))
    (tensor([0]), tensor([[0., 0.]]), 'mean')
    """
    n_rows = count(arguments)
    return tuple(_rows(value, rows) if _has_rows(value, n_rows) else value for value in arguments)


def _has_rows(value: Any, n_rows: int) -> bool:
    return isinstance(value, Tensor) and value.ndim > 0 and len(value) == n_rows


def _rows(value: Tensor, rows: slice | Tensor) -> Tensor:
    return value[rows if isinstance(rows, slice) else rows.to(value.device)]


def without_duplicates(arguments: Arguments) -> Arguments:
    """The call without rows that repeat an earlier one in every tensor.

    A copy of an input that weights are fitted on says nothing about others; held out, it would make errors look small.
    """
    n_rows = count(arguments)
    split = [value for value in arguments if _has_rows(value, n_rows)]
    seen: dict[bytes, int] = {}
    for row in range(n_rows):
        parts = (value[row].detach().cpu().contiguous().flatten() for value in split)
        bits = b"".join((part.double() if part.dtype == torch.bfloat16 else part).numpy().tobytes() for part in parts)
        seen.setdefault(hashlib.blake2b(bits, digest_size=16).digest(), row)
    if len(seen) == n_rows:
        return arguments
    return take(arguments, torch.tensor(sorted(seen.values())))


def batches(arguments: Arguments, size: int) -> Iterator[Arguments]:
    """The call in parts of at most `size` rows, in order."""
    for start in range(0, count(arguments), max(1, size)):
        yield take(arguments, slice(start, start + max(1, size)))


def to_model(arguments: Arguments, model: nn.Module) -> Arguments:
    """The arguments on the network's device, floating-point ones in its precision; token ids and masks stay integers.

    The precision is that of the first floating-point parameter: quantised and embedded integers do not set it.
    """
    tensors = [*model.parameters(), *model.buffers()]
    like = next((tensor for tensor in tensors if tensor.is_floating_point()), None)
    if like is None:
        return arguments
    return tuple(_moved(value, like) if isinstance(value, Tensor) else value for value in arguments)


def _moved(value: Tensor, like: Tensor) -> Tensor:
    return value.to(like.device, like.dtype) if value.is_floating_point() else value.to(like.device)


def check_finite(arguments: Arguments, what: str = "the probe") -> None:
    """Raises InputError where an argument holds NaN or an infinity: no statistic of it would mean anything."""
    for place, value in enumerate(arguments):
        if isinstance(value, Tensor) and value.is_floating_point() and not torch.isfinite(value).all():
            bad = (~torch.isfinite(value)).sum().item()
            which = f" (argument {place})" if len(arguments) > 1 else ""
            raise InputError(
                f"{what} must be finite, got {bad} of {value.numel()} numbers that are NaN or infinite{which}; "
                "take them out, or look for what made them (a division by zero in the normalisation?)"
            )


def split(arguments: Arguments, every: int = 4) -> tuple[Arguments, Arguments] | None:
    """(to fit on, to measure on): every `every`-th row is held out; None where there is only one row.

    The split is fixed, so that the same probe gives the same answer. Held-out rows are whole samples: positions of
    one image resemble each other, and an error measured on them would be too good.
    """
    n_rows = count(arguments)
    if n_rows < 2:
        return None
    is_held = held_out(n_rows, every)
    return take(arguments, torch.nonzero(~is_held)[:, 0]), take(arguments, torch.nonzero(is_held)[:, 0])


def held_out(n_rows: int, every: int = 4) -> Tensor:
    """Which rows are held out: the last of every `every`, and at least one of them if there are two or more."""
    is_held = torch.arange(n_rows) % every == every - 1
    if n_rows > 1 and not is_held.any():
        is_held[-1] = True
    return is_held
