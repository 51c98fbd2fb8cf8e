"""A browser, and a small report opened in it, for the tests of the report."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from splinecut.report import build as assembly
from support.chromium import Browser
from support.report_actions import READY
from support.report_data import record, small_film


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with Browser() as one:
        yield one


@pytest.fixture(scope="module")
def small_report(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A report with every view in it."""
    records = [record("dense", seed, None, 1.0, 0.95 + 0.01 * seed) for seed in range(3)]
    records += [record("bird", seed, "spline", keep, 0.9 + 0.01 * seed) for seed in range(3) for keep in (0.5, 0.25)]
    records += [record("late", 0, "l2", 0.5, 0.88, early=False)]
    return assembly.write(tmp_path_factory.mktemp("report") / "small.html", records, [small_film()])


@pytest.fixture
def page(browser: Browser, small_report: Path) -> Iterator[Browser]:
    """The small report, freshly opened; whatever the test does, nothing may complain."""
    browser.open(small_report)
    browser.until("splinecut.mesh()")  # regions are unpacked beside the page, on a busy machine after its first frames
    browser.run(READY)
    yield browser
    assert browser.complaints() == [] and browser.requests() == []
