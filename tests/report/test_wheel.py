"""Reading past the picture: wheel and finger scroll the page, and zoom only where that is asked for."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from support.chromium import Browser
from support.report_actions import IN_A_BROWSER, READY, text

pytestmark = IN_A_BROWSER

CTRL, META = {"modifiers": 2}, {"modifiers": 4}  # as the debugging protocol counts them
SEEN = "document.querySelector('#partition .hint').checkVisibility({ opacityProperty: true })"


def wheel(page: Browser, **more: Any) -> tuple[float, float]:
    """How far the page scrolled, and by what the picture was zoomed, when the wheel turned over it."""
    x, y = page.middle("#partition .over")
    page.mouse("mouseMoved", x, y)
    before = page.run("[scrollY, splinecut.viewer.camera.scale]")
    page.mouse("mouseWheel", x, y, deltaX=0, **{"deltaY": -120, **more})
    page.run("new Promise((done) => setTimeout(done, 150))")  # a scroll comes with the next frames
    page.run(READY)
    after = page.run("[scrollY, splinecut.viewer.camera.scale]")
    return after[0] - before[0], after[1] / before[1]


@pytest.mark.parametrize("turn", [-120, 120])
def test_a_wheel_over_the_picture_scrolls_the_page(page: Browser, turn: int) -> None:
    scrolled, zoomed = wheel(page, deltaY=turn)
    assert scrolled == pytest.approx(turn) and zoomed == 1
    assert page.run(SEEN) and "to zoom" in text(page, "#partition .hint")
    page.until(f"!{SEEN}", 5)


def test_the_whole_page_is_scrolled_by_the_wheel_alone(page: Browser) -> None:
    """With the pointer in the middle of the window all the way; the picture once held it there for good."""
    page.run("scrollTo({ top: 0, behavior: 'instant' })")
    for _ in range(60):
        page.mouse("mouseWheel", 500, 450, deltaX=0, deltaY=300)
        page.run(READY)
    page.until("scrollY + innerHeight > document.documentElement.scrollHeight - 2")
    assert page.run("splinecut.viewer.camera.isWhole")


@pytest.mark.parametrize("held", [CTRL, META], ids=["ctrl", "cmd"])
def test_with_ctrl_or_cmd_the_wheel_zooms(page: Browser, held: dict[str, int]) -> None:
    scrolled, zoomed = wheel(page, **held)
    assert scrolled == 0 and zoomed > 1.15
    scrolled, zoomed = wheel(page, deltaY=120, **held)
    assert scrolled == 0 and zoomed < 1


def test_a_pinch_on_a_trackpad_zooms_as_far_as_the_fingers_go(page: Browser) -> None:
    """Browsers report it as a wheel with Ctrl in small steps, 100 of which stand for a factor of e."""
    zooms = [wheel(page, deltaY=-5, **CTRL)[1] for _ in range(4)]
    assert np.prod(zooms) == pytest.approx(np.exp(0.2), rel=0.01)


@pytest.mark.parametrize("leave", ["Escape", "pointer"])
def test_a_click_lets_the_wheel_zoom_until_the_picture_is_left(page: Browser, leave: str) -> None:
    page.click_at(*page.middle("#partition .over"))
    assert wheel(page) == (0, pytest.approx(np.exp(120 * 0.0016), rel=1e-3))
    assert not page.run(SEEN)
    if leave == "Escape":
        page.press("Escape")
    else:
        page.mouse("mouseMoved", 2, 2)
    scrolled, zoomed = wheel(page)
    assert scrolled == pytest.approx(-120) and zoomed == 1


def touch(page: Browser, *ways: list[tuple[float, float]]) -> None:
    """Fingers that go down together, each along its own way, and up again."""
    for i, places in enumerate(zip(*ways, strict=True)):
        points = [{"x": x, "y": y, "id": finger} for finger, (x, y) in enumerate(places)]
        page.call("Input.dispatchTouchEvent", type="touchMove" if i else "touchStart", touchPoints=points)
    page.call("Input.dispatchTouchEvent", type="touchEnd", touchPoints=[])


def test_one_finger_scrolls_the_page_and_two_zoom(browser: Browser, small_report: Path) -> None:
    browser.open(small_report, 390, 844)
    browser.until("splinecut.mesh()")
    browser.call("Emulation.setTouchEmulationEnabled", enabled=True, maxTouchPoints=2)
    try:
        x, y = browser.middle("#partition .over")
        scale, before = browser.run("[splinecut.viewer.camera.scale, scrollY]")
        touch(browser, [(x, y - 20 * step) for step in range(11)])
        browser.until(f"scrollY > {before} + 100")
        assert browser.run("splinecut.viewer.camera.scale") == scale
        x, y = browser.middle("#partition .over")
        apart = range(30, 91, 5)
        touch(browser, [(x - step, y) for step in apart], [(x + step, y) for step in apart])
        assert browser.run("splinecut.viewer.camera.scale") > 2 * scale
    finally:
        browser.call("Emulation.setTouchEmulationEnabled", enabled=False)
