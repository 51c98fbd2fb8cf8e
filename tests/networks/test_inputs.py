"""Inputs of a network: one tensor or a tuple of arguments, by rows."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from splinecut.errors import InputError
from splinecut.networks.inputs import as_arguments, batches, check_finite, count, held_out, split, take, to_model


def test_a_tensor_is_one_argument_and_a_tuple_is_all_of_them() -> None:
    x = torch.zeros(3, 2)
    assert as_arguments(x) == (x,)
    assert as_arguments((x, 1)) == (x, 1) and as_arguments([x, "mean"]) == (x, "mean")
    assert count(("mean", x)) == 3


@pytest.mark.parametrize("example", [{"x": 1}, None, 0.5, (), ("a", 2), torch.zeros(()), torch.zeros(0, 3)])
def test_what_has_no_rows_is_refused_in_one_line(example: object) -> None:
    with pytest.raises(InputError, match="got"):
        as_arguments(example)


def test_batches_put_together_again_are_the_whole_and_leave_alone_what_has_no_rows() -> None:
    ids, mask, table = torch.arange(10), torch.rand(10, 4), torch.zeros(3)
    parts = list(batches((ids, mask, table, None), 4))
    assert [count(part) for part in parts] == [4, 4, 2]
    assert torch.equal(torch.cat([part[0] for part in parts]), ids)
    assert torch.equal(torch.cat([part[1] for part in parts]), mask)
    assert all(part[2] is table and part[3] is None for part in parts)


def test_integers_keep_their_type_and_floats_take_the_networks() -> None:
    given = (torch.arange(3), torch.ones(3, dtype=torch.bool), torch.zeros(3))
    ids, mask, x = to_model(given, nn.Linear(1, 1).double())
    assert (ids.dtype, mask.dtype, x.dtype) == (torch.int64, torch.bool, torch.float64)


@pytest.mark.parametrize("n", [2, 3, 4, 7, 256])
def test_both_parts_of_a_split_are_there_and_make_up_the_whole(n: int) -> None:
    x = torch.arange(n)
    parts = split((x,))
    assert parts is not None
    fit, held = parts[0][0], parts[1][0]
    assert len(fit) and len(held) and sorted([*fit.tolist(), *held.tolist()]) == x.tolist()
    assert torch.equal(x[held_out(n)], held)


def test_one_row_cannot_be_split() -> None:
    assert split((torch.zeros(1, 3),)) is None and not held_out(1).any()


def test_rows_are_taken_by_index_too() -> None:
    assert take((torch.arange(4) * 10,), torch.tensor([3, 1]))[0].tolist() == [30, 10]


@pytest.mark.parametrize("value", [torch.nan, torch.inf, -torch.inf])
def test_numbers_that_are_none_are_counted_and_refused(value: float) -> None:
    x = torch.zeros(2, 3)
    x[1, 2] = value
    with pytest.raises(InputError, match=r"1 of 6 numbers .*argument 1"):
        check_finite((torch.arange(2), x))
    check_finite((torch.arange(2), torch.zeros(2)))
