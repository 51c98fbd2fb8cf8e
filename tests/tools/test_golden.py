"""Facts that must not change by accident; see tools/golden.py for how to change them on purpose."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from tools import golden

STORED: dict[str, Any] = json.loads(golden.FILE.read_text(encoding="utf-8"))


@pytest.mark.parametrize(
    ("section", "collect"),
    [("runs", golden.run_facts), ("regions", golden.region_counts), ("tickets", golden.ticket_digests)],
)
def test_facts_are_as_stored(section: str, collect: Callable[[], Any]) -> None:
    assert golden.differences(STORED[section], json.loads(json.dumps(collect()))) == []


@pytest.mark.parametrize("name", STORED["methods"])
def test_options_of_a_method_are_as_stored(name: str) -> None:
    assert golden.differences(STORED["methods"][name], golden.method_facts(name)) == []


@pytest.mark.parametrize("recipe", STORED["recipes"])
def test_names_of_a_recipe_are_as_stored(recipe: str) -> None:
    assert golden.recipe_names(recipe) == STORED["recipes"][recipe]
