"""The benchmark as a picture: score against FLOPs, one panel a network, from the committed results.

python -m studies.oneshot.figure results/oneshot-*.json --out results/oneshot.svg
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from studies.charts import COLOURS, MARKERS
from studies.support.result_file import figure

MAIN = {  # row -> its name in the picture, in the order of the legend
    "ours balanced": "splinecut",
    "ours + calibration": "splinecut + calibration",
    "joint": "joint error (0.1.1)",
    "l2": "L2",
    "l2, layer": "L2, layer by layer",
    "fisher": "Fisher",
    "thinet": "ThiNet",
    "torch-pruning l2": "Torch-Pruning, L2",
    "torch-pruning taylor": "Torch-Pruning, Taylor",
    "random": "random",
}
STYLES = ("-", "--")  # the colours come round once


def draw(results: Sequence[Path], out: Path) -> Path:
    """Draws the results, one panel each, side by side in rows of three; the path of the picture."""
    found = [json.loads(path.read_text(encoding="utf-8")) for path in results]
    columns = min(3, len(found))
    rows = -(-len(found) // columns)
    shown = [name for name in MAIN if any(row["row"] == name for result in found for row in result["rows"])]
    with figure(out, (1.0 + 3.6 * columns, 0.8 + 3.1 * rows), columns, rows) as axes:
        panels = [axes] if len(found) == 1 else list(axes.ravel())
        for panel, result in zip(panels, found, strict=False):
            _panel(panel, result, shown)
        for panel in panels[len(found) :]:
            panel.set_visible(False)
        by_label: dict[str, Any] = {}
        for panel in panels[: len(found)]:
            by_label |= dict(zip(*reversed(panel.get_legend_handles_labels()), strict=True))
        panels[0].figure.legend(
            by_label.values(), by_label, loc="outside lower center", ncols=3, frameon=False, fontsize=8
        )
    return out


def _panel(axes: Any, result: Mapping[str, Any], shown: Sequence[str]) -> None:
    """One line a row through its shares of the FLOPs, with its intervals over probes, and the dense network."""
    for name in shown:
        place = list(MAIN).index(name)  # not among those shown: a row looks alike in every picture
        around = place // len(COLOURS)
        points = sorted((row for row in result["rows"] if row["row"] == name), key=lambda row: -row["keep"])
        if not points:
            continue
        axes.errorbar(
            [row["share"][0] for row in points],
            [100 * row["score"][0] for row in points],
            yerr=[100 * (row["score"][1] or 0) for row in points],
            fmt=f"{MARKERS[(place + around) % len(MARKERS)]}{STYLES[around % len(STYLES)]}",
            ms=4,
            lw=1,
            capsize=2,
            color=COLOURS[place % len(COLOURS)],
            label=MAIN[name],
        )
    axes.axhline(100 * result["dense"]["score"], color="#bbbbbb", lw=1, label="dense network")
    axes.set_xlim(1.0, 0.3)
    axes.set_title(result["network"], fontsize=10)
    axes.set_xlabel("FLOPs (dense network = 1)")
    is_classifier = "agreement" in result["dense"]
    axes.set_ylabel("accuracy, %" if is_classifier else "rank correlation of similarities, %")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("results", nargs="+", type=Path)
    parser.add_argument("--out", type=Path, default=Path("results/oneshot.svg"))
    asked = parser.parse_args()
    draw(asked.results, asked.out)


if __name__ == "__main__":
    main()
