"""The report on paper: light, whole and undistorted, whatever the screen showed."""

from __future__ import annotations

import base64
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from scipy import ndimage

from support.chromium import Browser
from support.report_actions import IN_A_BROWSER, READY, button

pytestmark = [
    IN_A_BROWSER,
    pytest.mark.skipif(
        not shutil.which("pdftoppm"), reason="no pdftoppm to look at printed pages; install poppler-utils"
    ),
]


def printed(page: Browser, folder: Path) -> list[np.ndarray]:
    """Each page as an A4 printer would get it, (height, width, 3) at 100 dots an inch."""
    data = page.call("Page.printToPDF", paperWidth=8.27, paperHeight=11.69, printBackground=False)["data"]
    (folder / "report.pdf").write_bytes(base64.b64decode(data))
    subprocess.run(["pdftoppm", "-r", "100", "-png", str(folder / "report.pdf"), str(folder / "page")], check=True)
    return [np.asarray(Image.open(path).convert("RGB")).astype(float) for path in sorted(folder.glob("page*.png"))]


def tinted(image: np.ndarray) -> tuple[slice, slice] | None:
    """Where the largest coloured patch lies: the partition, since all else on the page is grey or small."""
    spread = image.max(axis=2) - image.min(axis=2)
    found, n = ndimage.label(ndimage.binary_closing(spread > 12, iterations=2))
    if not n:
        return None
    largest = int(np.bincount(found.ravel())[1:].argmax()) + 1
    return ndimage.find_objects(found)[largest - 1]


def shape_and_luminance(image: np.ndarray) -> tuple[int, int, float]:
    """Width and height in pixels of the picture of a partition, and its mean luminance from 0 to 255."""
    place = tinted(image)
    assert place is not None
    rows, columns = place
    luminance = image[rows, columns] @ (0.2126, 0.7152, 0.0722)
    return columns.stop - columns.start, rows.stop - rows.start, float(luminance.mean())


def on_screen(page: Browser, folder: Path) -> tuple[int, int, float]:
    picture = Image.open(page.screenshot(folder / "screen.png", "#partition .pane:last-child .canvases"))
    return shape_and_luminance(np.asarray(picture.convert("RGB")).astype(float))


def on_paper(page: Browser, folder: Path) -> tuple[int, int, float]:
    """The same on paper, of the page on which the picture is the largest."""
    page.run("document.querySelectorAll('.view:not(#partition)').forEach((each) => (each.hidden = true))")
    found = [image for image in printed(page, folder) if tinted(image) is not None]
    assert found, "no page shows a partition"
    width, height, luminance = max(map(shape_and_luminance, found), key=lambda seen: seen[0] * seen[1])
    return width, height, luminance


@pytest.mark.parametrize("theme", ["light", "dark", "dark by button"])
@pytest.mark.parametrize("size", [(1280, 900), (390, 844)], ids=["desktop", "phone"])
def test_the_printed_picture_is_the_one_on_the_light_screen(
    browser: Browser, small_report: Path, tmp_path: Path, theme: str, size: tuple[int, int]
) -> None:
    browser.open(small_report, *size)
    browser.until("splinecut.mesh()")
    browser.run(READY)
    width, height, luminance = on_screen(browser, tmp_path)
    if theme == "dark":
        browser.prefer(dark=True)
        browser.until("splinecut.internals.isDark()")
    elif theme == "dark by button":
        browser.run("document.getElementById('theme').click(); document.getElementById('theme').click()")
    browser.run(READY)
    before = browser.run("splinecut.viewer.panes[1].under.toDataURL()")
    paper = on_paper(browser, tmp_path)
    assert paper[0] / paper[1] == pytest.approx(width / height, rel=0.02)
    assert paper[2] == pytest.approx(luminance, rel=0.1) and luminance > 150
    assert paper[0] > 0.9 * 160 / 25.4 * 100, "a picture should be about 160 mm wide"
    browser.run(READY)
    assert browser.run("splinecut.viewer.panes[1].under.toDataURL()") == before, "the screen is as it was"
    assert browser.run("document.querySelectorAll('#partition img').length") == 0
    assert browser.run("splinecut.internals.isDark()") is (theme != "light")
    assert browser.complaints() == []


def test_the_part_in_sight_is_printed(page: Browser, tmp_path: Path) -> None:
    """Zoomed in, the picture fills its pane on paper as on the screen, and shows the same colours."""
    page.run("splinecut.viewer.camera.zoom(3, 0.4, -0.3)")
    page.run(READY)
    screen = on_screen(page, tmp_path)
    paper = on_paper(page, tmp_path)
    assert paper[0] / paper[1] == pytest.approx(screen[0] / screen[1], rel=0.02)
    assert paper[2] == pytest.approx(screen[2], rel=0.1)


def test_before_and_after_are_printed_side_by_side(page: Browser, tmp_path: Path) -> None:
    page.click(button(page, "partition", "Before and after"))
    page.until("splinecut.viewer.panes[0].mesh")
    page.run(READY)
    screen = on_screen(page, tmp_path)
    paper = on_paper(page, tmp_path)
    assert paper[0] / paper[1] == pytest.approx(screen[0] / screen[1], rel=0.02)


def test_no_printed_page_is_mostly_empty_or_black(page: Browser, tmp_path: Path) -> None:
    pages = printed(page, tmp_path)
    for number, image in enumerate(pages, start=1):
        assert image.mean() > 150, f"page {number} is dark"
        rows = np.flatnonzero((image < 250).any(axis=(1, 2)))
        empty = 1 - (rows.max() - rows.min()) / image.shape[0]
        assert empty < 0.6 or number == len(pages), f"page {number} is {empty:.0%} empty"
