"""The API reference is what the docstrings say, and every public name is in it."""

from __future__ import annotations

from pathlib import Path

import pytest

import splinecut as sc
from tools.api_reference import reference

PAGE = Path(__file__).parents[2] / "docs" / "api.md"


def test_the_reference_is_up_to_date() -> None:
    assert PAGE.read_text(encoding="utf-8") == reference(), "run: python -m tools.api_reference > docs/api.md"


@pytest.mark.parametrize("name", [name for name in sc.__all__ if not name.startswith("_")])
def test_every_public_name_is_documented(name: str) -> None:
    _, found, rest = reference().partition(f"### `sc.{name}`\n")
    entry = rest.partition("\n### ")[0]
    prose = [block for block in entry.split("\n\n") if block.strip() and not block.strip().startswith("```")]
    assert found and prose


def test_the_reference_does_not_change_from_process_to_process() -> None:
    assert " at 0x" not in reference()
