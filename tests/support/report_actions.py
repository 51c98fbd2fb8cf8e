"""Ways to use the report in a browser as a person would, by mouse or by keyboard alone."""

from __future__ import annotations

import json

import pytest

from support.chromium import Browser, executable

IN_A_BROWSER = pytest.mark.skipif(
    executable() is None, reason="no Chromium on this machine; install chromium to test the report in a browser"
)
BOTH = pytest.mark.parametrize("by", ["mouse", "keyboard"])
READY = "splinecut.painted()"


def text(page: Browser, selector: str) -> str:
    return page.run(f"document.querySelector({json.dumps(selector)}).textContent")


def button(page: Browser, view: str, label: str) -> str:
    """A selector of the control of a view that bears this label."""
    page.run(f"""(() => {{
        const all = [...document.querySelectorAll("#{view} button, #{view} label, #{view} summary")];
        const label = {json.dumps(label)};
        const found = all.find((each) => each.textContent.startsWith(label) || each.ariaLabel === label);
        const control = found.tagName === "LABEL" ? found.querySelector("input, select") : found;
        document.querySelectorAll("[data-test]").forEach((each) => delete each.dataset.test);
        control.dataset.test = "1";
    }})()""")
    return "[data-test]"


def act(page: Browser, by: str, selector: str) -> None:
    """Uses a button or tick box by mouse, or by keyboard alone."""
    if by == "mouse":
        page.click(selector)
    else:
        page.focus(selector)
        page.press(" ")
    page.run(READY)
