"""The partition and the matrix of its units, driven in a real browser, by mouse and by keyboard."""

from __future__ import annotations

import numpy as np
import pytest

from support.chromium import Browser
from support.report_actions import BOTH, IN_A_BROWSER, READY, act, button, text
from support.report_data import small_film

pytestmark = IN_A_BROWSER


@BOTH
def test_playing_runs_to_the_last_frame(page: Browser, by: str) -> None:
    page.run("splinecut.viewer.show(0)")
    act(page, by, button(page, "partition", "Play training step"))
    page.until("splinecut.viewer.frame === splinecut.viewer.train.at(-1) && !splinecut.viewer.isPlaying", 10)
    act(page, by, button(page, "partition", "Play units kept"))
    page.until("splinecut.viewer.frame === splinecut.viewer.prune.at(-1) && !splinecut.viewer.isPlaying", 10)
    assert "25 % of the units kept" in text(page, "#partition figcaption")


def test_sliders_move_by_arrow_keys_and_by_mouse(page: Browser) -> None:
    slider = button(page, "partition", "Training step")
    page.focus(slider)
    page.press("ArrowLeft")
    page.until("splinecut.viewer.frame === splinecut.viewer.train.at(-2)")
    assert "training step 100" in text(page, "#partition figcaption")
    x, y = page.middle(slider)
    page.click_at(x, y)
    page.until("Math.abs(splinecut.viewer.frame - splinecut.viewer.train.length / 2) <= 1")
    keep = button(page, "partition", "Units kept")
    page.focus(keep)
    page.press("ArrowRight")
    page.until("splinecut.viewer.frame === splinecut.viewer.prune[1]")
    assert page.run("splinecut.mesh().n") == len(small_film().frames[-3])


def test_wheel_and_drag_move_the_partition(page: Browser) -> None:
    x, y = page.middle("#partition .over")
    scale, u = page.run("[splinecut.viewer.camera.scale, splinecut.viewer.camera.u]")
    page.mouse("mouseWheel", x, y, deltaX=0, deltaY=-300, modifiers=2)  # with Ctrl held
    page.until(f"splinecut.viewer.camera.scale > {scale} * 1.4")
    page.drag((x, y), (x - 80, y))
    assert page.run("splinecut.viewer.camera.u") > u
    page.click(button(page, "partition", "Show all"))
    assert page.run("splinecut.viewer.camera.scale") == pytest.approx(scale)


def test_keys_move_the_partition_and_choose_a_cut(page: Browser) -> None:
    page.focus("#partition .over")
    scale, u = page.run("[splinecut.viewer.camera.scale, splinecut.viewer.camera.u]")
    page.press("+")
    page.press("ArrowRight")
    assert page.run("splinecut.viewer.camera.scale") > scale and page.run("splinecut.viewer.camera.u") > u
    page.press("Enter")
    page.until("splinecut.unit.get() !== null")
    page.until("document.querySelector('#partition .side').textContent.includes('Nearest cuts')")
    page.press("Escape")
    page.until("splinecut.unit.get() === null")
    page.press("0")
    assert page.run("splinecut.viewer.camera.scale") == pytest.approx(scale)


def test_hovering_shows_region_unit_and_affine_map(page: Browser) -> None:
    page.mouse("mouseMoved", *page.middle("#partition .over"))
    page.run(READY)
    shown = text(page, "#partition .side")
    region = page.run("splinecut.mesh().locate(splinecut.viewer.camera.u, splinecut.viewer.camera.v)")
    assert f"Region {region} of {len(small_film().frames[11])}" in shown
    assert "Nearest cut: unit" in shown and "a u + b v + c" in shown


def test_clicking_a_cut_shows_its_unit_its_nearest_cuts_and_its_fate(page: Browser) -> None:
    film = small_film()
    place = page.run("""(() => {
        const { viewer } = splinecut, mesh = splinecut.mesh(), pane = viewer.panes[1], edge = mesh.edges.length - 1;
        pane.over.scrollIntoView({ block: "center", behavior: "instant" });
        const box = pane.over.getBoundingClientRect(), { layer, unit } = mesh.owner(edge);
        const middle = (axis) => {
            const [a, b] = [mesh.ends[2 * edge], mesh.ends[2 * edge + 1]];
            return (mesh.vertices[2 * a + axis] + mesh.vertices[2 * b + axis]) / 2;
        };
        return [box.left + box.width / 2 + (middle(0) - viewer.camera.u) * viewer.camera.scale,
                box.top + box.height / 2 - (middle(1) - viewer.camera.v) * viewer.camera.scale, layer, unit];
    })()""")
    page.click_at(*place[:2])
    layer, unit = place[2:]
    page.until("splinecut.unit.get() !== null")
    assert page.run("splinecut.unit.get()") == {"layer": layer, "unit": unit}
    page.until("document.querySelector('#partition .side').textContent.includes('Nearest cuts')")
    shown = text(page, "#partition .side .card")
    distances = film.redundancy[layer].distances["corrected"][unit].copy()
    distances[unit] = np.inf
    assert f"unit {distances.argmin()}" in shown
    gone = [frame.keep for frame in film if frame.stage == "prune" and unit not in frame.origin[layer]]
    assert (f"{max(gone):.0%}".replace("%", " %") in shown and "removed it" in shown) if gone else "kept it" in shown


def test_units_are_chosen_from_lists_too(page: Browser) -> None:
    page.focus(button(page, "partition", "Unit "))
    page.press("ArrowDown")
    page.until("splinecut.unit.get()?.unit === 0")
    page.until("document.querySelector('#redundancy .readout').textContent.includes('unit 0 of layer 1 is chosen')")
    assert page.run("splinecut.unit.get()") == {"layer": 0, "unit": 0}
    page.click(button(page, "partition", "Clear"))
    page.until("splinecut.unit.get() === null")
    assert "is chosen" not in text(page, "#redundancy .readout")


@BOTH
def test_before_and_after_stand_side_by_side_in_one_view(page: Browser, by: str) -> None:
    page.run("splinecut.viewer.show(splinecut.viewer.prune.at(-1))")
    act(page, by, button(page, "partition", "Before and after"))
    page.until("document.querySelectorAll('#partition figure').length === 2 && splinecut.viewer.panes[0].mesh")
    assert page.run("splinecut.viewer.panes.map((pane) => pane.mesh.n)") == [
        len(small_film().frames[11]),
        len(small_film().frames[-1]),
    ]
    assert text(page, "#partition figcaption").startswith("Before: training step 110")


@BOTH
def test_layers_and_overlays_are_switched(page: Browser, by: str) -> None:
    picture = "splinecut.viewer.panes[1].raster.pixels.reduce((sum, each) => (sum * 31 + each) | 0, 7)"
    seen = {page.run(picture)}
    for label in ("cuts", "decision boundary"):
        act(page, by, button(page, "partition", label))
        seen.add(page.run(picture))
    act(page, by, button(page, "partition", "cuts"))
    act(page, by, button(page, "partition", "layer 2"))
    seen.add(page.run(picture))
    assert len(seen) == 4


def test_the_matrix_chooses_units_by_mouse_and_by_keyboard(page: Browser) -> None:
    order = small_film().redundancy[0].order
    x, y = page.middle("#redundancy .cells canvas")
    page.click_at(x + 5, y + 5)  # the middle itself is a corner of four cells
    page.until("splinecut.unit.get() !== null")
    assert page.run("splinecut.unit.get()") == {"layer": 0, "unit": int(order[8])}
    page.focus("#redundancy .cells")
    page.press("ArrowUp")
    page.press("Enter")
    page.until(f"splinecut.unit.get().unit === {order[7]}")
    assert "N_ρ" in text(page, "#tip")
    page.click(button(page, "redundancy", "unit"))  # the nearest pair in the list
    page.until("document.querySelector('#partition .side').textContent.includes('Nearest cuts')")


def test_the_matrix_marks_what_pruning_removed(page: Browser) -> None:
    page.run("splinecut.viewer.show(splinecut.viewer.prune.at(-1))")
    removed = 16 - len(small_film().frames[-1].origin[0])
    page.until(f"document.querySelectorAll('#redundancy .gone').length === {removed}")
    assert f"{removed} of 16 units are removed" in text(page, "#redundancy .readout")
