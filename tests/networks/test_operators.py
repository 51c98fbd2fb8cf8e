"""The operator table: rows that make sense, and every operator of known networks with what serves it."""

from __future__ import annotations

from collections import Counter

import pytest
import torch

from splinecut.networks.operators.table import OPERATORS, Operator
from tools import operator_list

ROWS = pytest.mark.parametrize("row", OPERATORS, ids=lambda row: row.names.split()[0])


@ROWS
def test_a_row_serves_geometry_or_groups_and_is_not_smooth_and_piecewise_affine_at_once(row: Operator) -> None:
    assert row.read or row.couple or row.smooth is not None
    assert not (row.read and row.smooth is not None)


@ROWS
def test_the_names_of_a_row_are_aten_operators(row: Operator) -> None:
    for name in row.each_name():
        assert hasattr(torch.ops.aten, name)


def test_an_operator_has_one_row() -> None:
    counts = Counter(name for row in OPERATORS for name in row.each_name())
    assert max(counts.values()) == 1


def test_only_what_geometry_reads_or_calls_smooth_keeps_zeros_or_makes_units() -> None:
    for row in OPERATORS:
        assert row.read or row.smooth is not None or not (row.keeps_zero or row.keeps_units or row.makes_units)


def test_our_models_have_the_operators_that_are_listed() -> None:
    found, listed = operator_list.ours(), operator_list.stored()
    assert found == {network: names for network, names in listed.items() if network.startswith("splinecut")}


def test_classifiers_of_torchvision_have_the_operators_that_are_listed() -> None:
    found = operator_list.torchvisions(["mobilenet_v3_small", "squeezenet1_1", "swin_t", "vit_b_32"])
    if not found:
        pytest.skip("torchvision is not installed")
    assert found.items() <= operator_list.stored().items()


def test_all_families_of_torchvision_are_listed() -> None:
    listed = operator_list.stored()
    assert all(f"torchvision {name}" in listed for name in operator_list.TORCHVISION)


def test_the_page_of_operators_says_what_the_table_says() -> None:
    written = operator_list.PAGE.read_text(encoding="utf-8")
    assert written == operator_list.page(operator_list.stored()), "run python -m tools.operator_list --write"
