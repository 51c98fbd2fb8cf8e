"""The report as a person meets it: driven in a real browser, by mouse and by keyboard."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from splinecut.report import build as assembly
from support.chromium import Browser
from support.report_actions import BOTH, IN_A_BROWSER, READY, act, button, text
from support.report_data import HOSTILE, record, small_film

pytestmark = IN_A_BROWSER


def test_every_control_is_reached_by_the_tab_key(page: Browser) -> None:
    page.run("document.body.focus(); window.visited = new Set()")
    wanted = """[...document.querySelectorAll("button, select, input, summary, a[href], [tabindex='0']")]
        .filter((each) => each.checkVisibility() && each.tabIndex >= 0)"""
    n = page.run(f"{wanted}.length")
    for _ in range(n + 5):
        page.press("Tab")
        page.run("visited.add(document.activeElement)")
    missed = page.run(f"{wanted}.filter((each) => !visited.has(each)).map((each) => each.outerHTML.slice(0, 120))")
    assert missed == []


def test_every_control_has_a_name(page: Browser) -> None:
    unnamed = page.run("""[...document.querySelectorAll("button, select, input, canvas.over, .cells")].filter((each) =>
        !(each.textContent.trim() || each.ariaLabel || each.labels?.length)).map((each) => each.outerHTML)""")
    assert unnamed == []


@BOTH
def test_the_cost_view_filters_and_scales(page: Browser, by: str) -> None:
    assert page.run("document.querySelectorAll('#cost .mark').length") == 4
    before = text(page, "#cost svg")
    act(page, by, button(page, "cost", "Log scale"))
    assert text(page, "#cost svg") != before
    act(page, by, button(page, "cost", "l2"))
    assert page.run("document.querySelectorAll('#cost .mark').length") == 3
    act(page, by, button(page, "cost", "l2"))
    assert page.run("document.querySelectorAll('#cost .mark').length") == 4


def test_a_mark_tells_its_numbers_and_opens_its_run(page: Browser) -> None:
    page.mouse("mouseMoved", *page.middle("#cost .mark"))
    page.until("!document.getElementById('tip').hidden")
    assert "96.00 % ± 2.48 (3 seeds)" in text(page, "#tip")  # 95, 96 and 97: t(2) = 4.303 times 0.01 / sqrt(3)
    page.focus("#cost .mark[tabindex='0']")
    page.press("ArrowRight")
    assert "early bird, spline" in text(page, "#cost .readout")
    page.press("Enter")
    assert page.run("document.activeElement.parentElement.open") is True


@BOTH
def test_selects_change_what_is_drawn(page: Browser, by: str) -> None:
    before = page.run("document.querySelector('#cost svg').outerHTML")
    control = button(page, "cost", "FLOPs")
    if by == "mouse":  # opens the list; its entries are the browser's own window, which keys move through
        page.click(control)
        page.press("ArrowDown")
        page.press("Enter")
    else:
        page.focus(control)
        page.press("ArrowDown")
    page.run(READY)
    assert page.run("document.querySelector('[data-test]').value") == "paper_flops"
    assert page.run("splinecut.facts.groups[0].paper_flops[0] < splinecut.facts.groups[0].full_flops[0]")
    assert page.run("document.querySelector('#cost svg').outerHTML") != before


def test_the_drawing_point_follows_the_threshold(page: Browser) -> None:
    """Mean distances are 0.3, 0.25, 0.12, 0.08; two in a row must be below the threshold."""
    assert "is drawn after epoch 5" in text(page, "#bird .readout")
    for threshold, expected in (
        (0.26, "after epoch 4"),
        (0.31, "after epoch 3"),
        (0.1, "not drawn within the 5 looks"),
    ):
        page.run(f"""(() => {{
            const slider = document.querySelector("#bird input[type=range]");
            slider.value = {threshold};
            slider.dispatchEvent(new Event("input"));
        }})()""")
        assert expected in text(page, "#bird .readout")
    page.click(button(page, "bird", "As run"))
    assert "is drawn after epoch 5" in text(page, "#bird .readout")


def test_the_threshold_is_dragged_by_mouse_and_moved_by_keys(page: Browser) -> None:
    x, y = page.middle("#bird .grip")
    page.drag((x, y), (x, y - 140))
    assert "is drawn after epoch 5" not in text(page, "#bird .readout")
    page.click(button(page, "bird", "As run"))
    page.focus("#bird input[type=range]")
    for _ in range(9):
        page.press("ArrowLeft")
    assert "At threshold 0.105" in text(page, "#bird .readout") and "not drawn" in text(page, "#bird .readout")


def test_layers_of_the_early_bird_are_judged_alone(page: Browser) -> None:
    page.focus(button(page, "bird", "Layer"))
    page.press("ArrowDown")
    assert "layer features.2 alone is drawn after epoch 5" in text(page, "#bird .readout")
    assert "not for each" in text(page, "#bird .pair")


@BOTH
def test_tables_sort_by_any_column(page: Browser, by: str) -> None:
    column = "[...document.querySelectorAll('#table-runs tbody tr')].map((row) => Number(row.cells[5].dataset.value))"
    head = "#table-runs th:nth-child(6) button"
    act(page, by, head)
    values = page.run(column)
    assert (
        values == sorted(values)
        and page.run("document.querySelector('#table-runs th:nth-child(6)').ariaSort") == "ascending"
    )
    act(page, by, head)
    assert page.run(column) == sorted(values, reverse=True)


@BOTH
def test_tables_are_copied(page: Browser, by: str) -> None:
    page.run("""(() => {
        window.taken = "";
        document.addEventListener("copy", () => (taken = document.activeElement.value));
        if (navigator.clipboard) navigator.clipboard.writeText = async (text) => { taken = text; };
    })()""")
    act(page, by, button(page, "tables", "Copy as Markdown"))
    page.until("taken !== ''")
    lines = page.run("taken").splitlines()
    assert lines[0].startswith("| task | method | keeps |") and set(lines[1]) <= set("|- ")
    assert len(lines) == 2 + 4


@BOTH
def test_the_theme_turns(page: Browser, by: str) -> None:
    ground = "getComputedStyle(document.body).backgroundColor"
    light = page.run(ground)
    act(page, by, "#theme")  # auto -> light
    act(page, by, "#theme")  # light -> dark
    assert text(page, "#theme") == "Theme: dark" and page.run(ground) != light
    act(page, by, "#theme")
    assert page.run(ground) == light


def test_dark_is_taken_from_the_system(browser: Browser, small_report: Path) -> None:
    browser.open(small_report, dark=True)
    assert browser.run("splinecut.internals.isDark()") is True
    browser.prefer(False)
    browser.until("!splinecut.internals.isDark()")


def test_runs_are_found_by_name_and_opened(page: Browser) -> None:
    page.click("#runs input")
    for key in "late":
        page.press(key)
    assert page.run("[...document.querySelectorAll('details.run')].filter((run) => !run.hidden).length") == 1
    page.click(button(page, "runs", "Open all"))
    assert 'name = "late"' in text(page, "details.run:not([hidden]) .recipe")


@pytest.mark.parametrize("width", [360, 800, 1280])
def test_no_width_scrolls_sideways(browser: Browser, small_report: Path, width: int) -> None:
    browser.open(small_report, width, 800)
    browser.run(READY)
    assert browser.run("document.documentElement.scrollWidth") <= width


def test_hostile_names_show_as_text(browser: Browser, tmp_path: Path) -> None:
    film = replace(small_film(), name=HOSTILE, class_names=(HOSTILE, HOSTILE), about={"slice": HOSTILE})
    hostile = [replace(record(HOSTILE), versions={HOSTILE: HOSTILE}), record("plain", method=None)]
    hostile[0].spec["method"]["name"] = hostile[0].spec["data"]["name"] = HOSTILE
    assert hostile[0].pruning is not None
    hostile[0].pruning["distances"] = {HOSTILE: [0.3, 0.2]}
    path = assembly.write(tmp_path / "hostile.html", hostile, [film, film], HOSTILE, [HOSTILE])
    browser.open(path)
    browser.run(READY)
    browser.mouse("mouseMoved", *browser.middle("#cost .mark"))
    browser.mouse("mouseMoved", *browser.middle("#partition .over"))
    browser.run(READY)
    assert browser.run("document.querySelectorAll('img, iframe, object').length") == 0
    assert text(browser, "h1") == HOSTILE and HOSTILE in text(browser, "#partition")
    assert not [event for event in browser.events if event["method"] == "Page.javascriptDialogOpening"]
    assert browser.complaints() == [] and browser.requests() == []


def test_the_policy_stops_foreign_scripts_and_requests(browser: Browser, small_report: Path) -> None:
    browser.open(small_report)
    browser.run("""(() => {
        const script = document.createElement("script");
        script.textContent = "window.intruder = true";
        document.body.append(script);
    })()""")
    assert browser.run("window.intruder") is None
    assert browser.run("fetch('https://example.org/').then(() => 'sent', () => 'stopped')") == "stopped"
    picture = """new Promise((done) => {
        const image = new Image();
        image.onerror = () => done("stopped");
        image.src = "https://example.org/a.png";
    })"""
    assert browser.run(picture) == "stopped"


def test_without_scripts_the_tables_are_there(browser: Browser, small_report: Path, tmp_path: Path) -> None:
    browser.open(small_report, scripts=False)
    browser.call("Emulation.setScriptExecutionDisabled", value=False)
    shown = browser.run("document.body.innerText")
    assert "Scripts are off" in shown and "Methods compared" in shown and "early bird, spline" in shown
    assert "96.00 ± 2.48 %" in shown and "Stored partitions" in shown
    assert browser.run("document.getElementById('partition').checkVisibility()") is False
    assert browser.run("document.getElementById('theme').checkVisibility()") is False


def test_print_leaves_the_controls_out(page: Browser) -> None:
    page.call("Emulation.setEmulatedMedia", media="print")
    assert (
        page.run("[...document.querySelectorAll('.controls, nav, .copy')].some((each) => each.checkVisibility())")
        is False
    )
    assert page.run("document.querySelector('#cost svg').checkVisibility()") is True
    page.call("Emulation.setEmulatedMedia", media="")


def test_the_viewer_of_one_model_has_no_empty_views(browser: Browser, tmp_path: Path) -> None:
    browser.open(assembly.viewer(small_film(), tmp_path / "viewer.html"))
    browser.run(READY)
    assert browser.run(
        "[...document.querySelectorAll('.view')].filter((v) => v.checkVisibility()).map((v) => v.id)"
    ) == [
        "partition",
        "redundancy",
        "tables",
    ]
    assert browser.complaints() == []
