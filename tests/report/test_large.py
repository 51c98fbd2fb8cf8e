"""Large reports in a real browser: they open fast, move fast, and show what was computed."""

from __future__ import annotations

import json
import statistics
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from splinecut.experiments.film.build import frame_of
from splinecut.report import build as assembly
from support.chromium import Browser
from support.report_actions import IN_A_BROWSER
from support.report_data import big_partition, film_of, many_records

pytestmark = IN_A_BROWSER


@pytest.fixture(scope="module")
def big(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """54,131 regions and 500 records."""
    path = tmp_path_factory.mktemp("report") / "big.html"
    return assembly.write(path, many_records(500), [film_of(big_partition(4.0))])


def test_a_large_report_opens_in_under_three_seconds(browser: Browser, big: Path) -> None:
    assert big.stat().st_size < 15_000_000
    seconds = []
    for _ in range(3):
        seconds.append(browser.open(big))
        assert browser.complaints() == [] and browser.requests() == []
        browser.until("splinecut.mesh() && splinecut.viewer.panes[1].visible > 50000")
    assert min(seconds) < 3, seconds


def test_the_page_holds_the_partition_that_was_computed(browser: Browser, big: Path) -> None:
    partition = big_partition(4.0)
    browser.open(big)
    browser.until("splinecut.mesh()")
    assert browser.run("splinecut.mesh().n") == len(partition)
    points = np.random.default_rng(0).uniform(-4, 4, size=(100, 2))
    script = f"{json.dumps(points.tolist())}.map(([u, v]) => splinecut.mesh().locate(u, v))"
    regions = browser.run(script)
    assert regions == partition.locate(points).tolist()
    maps = browser.run(f"{json.dumps(regions)}.map((region) => splinecut.mesh().maps(region))")
    np.testing.assert_allclose(maps, partition.affine[regions], rtol=2e-7)
    assert browser.run("splinecut.mesh().locate(9, 9)") == -1


def test_every_edge_knows_its_unit(browser: Browser, big: Path) -> None:
    partition = big_partition(4.0)
    browser.open(big)
    browser.until("splinecut.mesh()")
    shared = partition.neighbours()
    inner = shared.layer >= 0
    assert browser.run("splinecut.mesh().edges.length") == int(inner.sum())
    for layer, unit in ((0, 3), (1, 50), (2, 127)):
        expected = int(((shared.layer == layer) & (shared.unit == unit)).sum())
        assert browser.run(f"splinecut.mesh().cutOf({{ layer: {layer}, unit: {unit} }}).length") == expected


def test_each_pixel_shows_the_region_below_it(browser: Browser, big: Path) -> None:
    """With cuts, boundary and data off, the colour of a pixel is the tint of the region under its middle."""
    browser.open(big)
    browser.until("splinecut.mesh()")
    mistakes = browser.run("""(async () => {
        const { viewer } = splinecut, pane = viewer.panes[1];
        const { isDark, pastel, rgb, variable } = splinecut.internals;
        Object.assign(viewer.display, { cuts: false, boundary: false, points: false, tint: "region" });
        let wrong = 0;
        for (const zoom of [1, 7, 300]) {
            pane.showAll();
            viewer.camera.zoom(zoom, 1.234, -0.777);
            await splinecut.painted();
            pane.paint();
            const { scale, left, top } = pane.transform(), { width, height } = pane.raster;
            const shown = pane.context.getImageData(0, 0, width, height).data;
            for (let i = 0; i < 100; i++) {
                const x = (i * 7919) % width, y = (i * 104729) % height;
                const region = pane.mesh.locate((x + 0.5 - left) / scale, (top - y - 0.5) / scale);
                const expected = region < 0 ? rgb(variable("card")) : pastel(pane.mesh.hue[region], isDark());
                const at = 4 * (y * width + x);
                if (expected.some((value, k) => value !== shown[at + k])) wrong++;
            }
        }
        return wrong;
    })()""")
    assert mistakes == 0


@pytest.fixture(scope="module")
def crowded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A little over 20,000 regions in sight."""
    return assembly.viewer(film_of(big_partition(1.05)), tmp_path_factory.mktemp("report") / "crowded.html")


MOVES = {
    "zooming": "camera.zoom(n % 60 < 30 ? 1.02 : 1 / 1.02)",
    "panning": "camera.pan(0.002 * Math.sin(n / 9), 0.002 * Math.cos(n / 9))",
}


@pytest.mark.parametrize("move", MOVES)
def test_moving_twenty_thousand_regions_keeps_thirty_frames_a_second(
    browser: Browser, crowded: Path, move: str
) -> None:
    browser.open(crowded, 1400, 900)
    browser.until("splinecut.mesh()")
    script = """(async () => {
        const { camera, panes } = splinecut.viewer, { holder } = panes[1];
        holder.style.width = "1002px"; // a border of one pixel on each side
        holder.style.height = "702px";
        await splinecut.painted();
        await splinecut.painted();
        const gaps = [];
        let last = 0, n = 0;
        await new Promise((done) => requestAnimationFrame(function step(now) {
            if (last) gaps.push(now - last);
            last = now;
            MOVE;
            if (n++ < 120) requestAnimationFrame(step); else done();
        }));
        await new Promise((done) => setTimeout(done, 300));
        const { u, v, scale } = panes[1].exact;
        return { gaps, visible: panes[1].visible, size: [panes[1].raster.width, panes[1].raster.height],
                 isExact: u === camera.u && v === camera.v && scale === camera.scale };
    })()"""
    medians = []
    for _ in range(3):  # the machine may be busy with something else for a while
        found = browser.run(script.replace("MOVE", MOVES[move]))
        assert found["visible"] >= 20_000 and found["size"] == [1000, 700]
        assert found["isExact"], "at rest the picture must be painted for the view it is shown in"
        medians.append(statistics.median(found["gaps"]))
        if medians[-1] <= 33:
            break
    assert min(medians) <= 33, medians


def per_frame(browser: Browser) -> float:
    """Seconds that the sliders take for one stored frame, from the last to the first and shown on the screen."""
    return browser.run("""(async () => {
        const { viewer } = splinecut;
        const frames = [...viewer.train, ...viewer.prune].reverse();
        const begun = performance.now();
        for (const frame of frames) {
            await viewer.show(frame);
            await splinecut.painted();
        }
        return (performance.now() - begun) / 1000 / frames.length;
    })()""")


def test_the_sliders_step_through_frames_at_ten_a_second(page: Browser) -> None:
    assert per_frame(page) <= 0.1


def test_the_sliders_keep_their_pace_with_twenty_thousand_regions_a_frame(browser: Browser, tmp_path: Path) -> None:
    partition = big_partition(1.05)
    film = replace(film_of(partition), frames=tuple(frame_of(partition, step=10 * i) for i in range(6)))
    path = assembly.viewer(film, tmp_path / "film.html")
    assert path.stat().st_size < 15_000_000
    browser.open(path, 1400, 900)
    browser.until("splinecut.mesh() && splinecut.viewer.panes[1].visible > 20000")
    browser.run("""(() => {
        const { holder } = splinecut.viewer.panes[1];
        holder.style.width = "1002px";
        holder.style.height = "702px";
    })()""")
    assert min(per_frame(browser) for _ in range(3)) <= 0.1
