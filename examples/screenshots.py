"""Photographs every view of a report, light and dark, wide and narrow: python examples/screenshots.py REPORT FOLDER"""

from __future__ import annotations

import sys
from pathlib import Path

from PIL import Image
from torch import nn

import splinecut as sc
from splinecut.experiments.film.build import single_frame
from splinecut.report import build as assembly

sys.path.append(str(Path(__file__).parent.parent / "tests"))
from support.chromium import Browser, executable

TALL = 2600  # what was never on the screen was never painted, so that every view has to fit


def shoot(page: Browser, path: Path, selector: str) -> None:
    """A picture of one element in 128 colours: the page is flat, and so the files are small."""
    page.middle(selector)
    page.run("splinecut.painted()")
    picture = Image.open(page.screenshot(path, selector)).convert("RGB")
    picture.quantize(128, dither=Image.Dither.NONE).save(path, optimize=True)


def views(page: Browser, report: Path, folder: Path) -> None:
    for size, width in {"desktop": 1200, "phone": 390}.items():
        for theme in ("light", "dark"):
            page.open(report, width, TALL, dark=theme == "dark")
            page.run("document.querySelector('header').style.position = 'static'")  # not over what is below it
            page.run("document.querySelector('#runs details')?.setAttribute('open', '')")
            for view in page.run("[...document.querySelectorAll('.view:not([hidden])')].map((view) => view.id)"):
                shoot(page, folder / f"{view}-{size}-{theme}.png", f"#{view}")


def films(page: Browser, report: Path, folder: Path) -> None:
    """Of every network: halfway through training, trained, and cut to about half beside the whole."""
    page.open(report, 1200, 900)
    keeps = page.run("splinecut.facts.films.map((film) => film.frames.map((each) => each.keep))")
    for number, film in enumerate(keeps):
        page.run(f"splinecut.film.set({number}); splinecut.painted()")
        n_trained, half = film.count(1.0), min(range(len(film)), key=lambda frame: abs(film[frame] - 0.5))
        for name, frame in {"begun": 0, "halfway": n_trained // 2, "trained": n_trained - 1, "cut": half}.items():
            page.run(f"splinecut.viewer.pair({str(name == 'cut').lower()}); splinecut.viewer.show({frame})")
            shoot(page, folder / f"film-{number}-{name}.png", "#partition .panes")


report, folder = map(Path, sys.argv[1:3] if len(sys.argv) > 2 else ("report.html", "screenshots"))
folder.mkdir(parents=True, exist_ok=True)
if not report.exists():
    net = nn.Sequential(nn.Linear(2, 12), nn.ReLU(), nn.Linear(12, 2)).eval()  # something to photograph
    assembly.viewer(single_frame("an untrained network", net, sc.subdivide(net, sc.Slice.square(3.0))), report)
if executable():
    with Browser() as page:
        views(page, report, folder)
        films(page, report, folder)
print(f"{len(list(folder.iterdir()))} pictures in {folder}" if executable() else "no Chromium here; install chromium")
