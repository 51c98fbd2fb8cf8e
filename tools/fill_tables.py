"""Tables in README and docs, filled in from committed results: `python -m tools.fill_tables README.md`.

A page names the result where its table stands, and the table is written between the two marks:

    <!-- results/digits-table.json -->
    | method | ...
    <!-- end -->
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from splinecut.cli.text_tables import TextTable, markdown
from splinecut.errors import InputError
from splinecut.experiments import table_file as committed
from splinecut.experiments.spec import DENSE
from splinecut.experiments.summaries import Estimate, Row, short_names, variant_of
from splinecut.files import write_text

BLOCK = re.compile(r"(<!-- (\S+\.json) -->\n).*?(<!-- end -->)", re.DOTALL)
REFIT_COLUMNS = (("0.7", "none"), ("0.7", "least_squares"), ("0.5", "least_squares"), ("0.3", "least_squares"))
EPOCH_SHARES = (1 / 16, 1 / 4, 1 / 2, 5 / 8, 3 / 4, 1)  # of a training; the learning rate falls after 1/2 and 3/4


def filled(text: str, root: Path) -> str:
    """A page with every table rewritten from the result it names, a path relative to `root`."""
    return BLOCK.sub(lambda match: match[1] + table(root / match[2]) + match[3], text)


def table(path: Path) -> str:
    """The Markdown table of one result."""
    try:
        result = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise InputError(f"{path} cannot be read ({error}); run the command beside the table again") from error
    maker = next((make for key, make in MAKERS.items() if key in result), None)
    if maker is None:
        raise InputError(f"{path} has none of {', '.join(MAKERS)}; no table is known for such a result")
    headings, *rows = maker(result)
    return markdown(TextTable(headings, rows))


def _refit(result: dict[str, Any]) -> list[list[str]]:
    """Accuracy right after the cut, by criterion."""
    by_seed = result["accuracy by seed"]
    criteria = dict.fromkeys(place.split(" | ")[0] for place in by_seed[0] if " | " in place)
    refitted = {"none": "no refit", "least_squares": "refit"}
    rows = [["criterion", *(f"keep {keep}, {refitted[how]}" for keep, how in REFIT_COLUMNS)]]
    for name in criteria:
        places = [f"{name} | {keep} | {how}" for keep, how in REFIT_COLUMNS]
        rows.append([name, *(_percent(Estimate.of([seed[place] for seed in by_seed])) for place in places)])
    return rows


def _headline(result: dict[str, Any]) -> list[list[str]]:
    """The routes of the headline study, dense first."""
    rows = [["route", "accuracy %", "against dense", "training FLOPs (dense = 1)", "FLOPs kept", "drawn at epoch"]]
    for row in result["rows"]:
        (mean, half), (gap, wide), n = row["accuracy"], row["against dense"], row["seeds"]
        is_dense = row["route"].endswith(f"-{DENSE}")
        drawn = "" if None in row["drawn epochs"] else ", ".join(map(str, row["drawn epochs"]))
        rows.append(
            [
                _route(row["route"], result["recipe"]),
                Estimate(mean, half, n).text("{:.1f}".format),
                "" if is_dense else Estimate(gap, wide, n).signed("{:.1f}".format),
                f"{row['training flops']:.2f}",
                f"{row['kept flops']:.2f}",
                drawn,
            ]
        )
    return rows


def _detector(result: dict[str, Any]) -> list[list[str]]:
    """The epoch at which each rule draws, one column a schedule of the learning rate."""
    trainings = result["trainings"]
    rows = [["rule", "threshold", *(f"{training['schedule']} learning rate" for training in trainings)]]
    for alike in zip(*(training["rows"] for training in trainings), strict=True):
        epochs = [f"{row['epoch']} of {row['of']}" if row["epoch"] else "never" for row in alike]
        rows.append([alike[0]["rule"], f"{alike[0]['threshold']:.2f}", *epochs])
    return rows


def _layer_distances(result: dict[str, Any]) -> list[list[str]]:
    """How much of an early, a middle and a late layer's code changes from one epoch to the next."""
    networks = result["networks"]
    last = min(len(one["probes"]["train"]["between_epochs"]) for one in networks.values())
    epochs = sorted({max(1, round(share * last)) for share in EPOCH_SHARES})
    rows = [["network", "layer", *(f"epoch {epoch}" for epoch in epochs)]]
    for name, one in networks.items():
        layers = list(one["probes"]["train"]["between_epochs_by_layer"].values())
        for word, place in {"first": 0, "middle": len(layers) // 2, "last": len(layers) - 1}.items():
            numbered = f"{word} ({place + 1} of {len(layers)})"
            rows.append([name, numbered, *(f"{layers[place][epoch - 1]:.3f}" for epoch in epochs)])
    return rows


def _route(name: str, recipe: str) -> str:
    route, _, keep = name.removeprefix(f"{recipe}-").rpartition("-")
    return f"{route.replace('-', ' ')}, keep {keep}" if route else keep


def _sweep(result: dict[str, Any]) -> list[list[str]]:
    """Accuracy by method and budget, with the training FLOPs of the whole pipeline relative to the dense training."""
    rows = committed.rows_of(result)
    keeps = sorted({row.keep for row in rows if row.of}, reverse=True)
    lines = [["method", *(f"keep {keep:g}" for keep in keeps)]]
    for task, of, variant in dict.fromkeys((row.task, row.of, variant_of(row.name)) for row in rows if row.of):
        alike = [row for row in rows if row.task == task and variant_of(row.name) == variant]
        dense = next((row for row in alike if not row.of), None)
        dense_text = "" if dense is None else f"; dense: {_percent(dense.estimate('last_top1'))} %"
        lines.append([f"*{task}{variant and f', {variant}'}, share of {of}{dense_text}*", *[""] * len(keeps)])
        here = [row for row in alike if row.of == of]
        for name, shown in short_names(dict.fromkeys(row.name for row in here)).items():
            cells = {row.keep: _cell(row, dense) for row in here if row.name == name}
            lines.append([shown.removesuffix(f" [{variant}]"), *(cells.get(keep, "") for keep in keeps)])
    return lines


def _cell(row: Row, dense: Row | None) -> str:
    spent = row.estimate("full_flops")
    base = dense.estimate("full_flops") if dense else None
    cost = f" ({spent.mean / base.mean:.2f})" if spent and base else ""
    return _percent(row.estimate("last_top1")) + cost


def _percent(estimate: Estimate | None) -> str:
    return "" if estimate is None else estimate.text(lambda share: f"{100 * share:.1f}")


MAKERS: dict[str, Callable[[dict[str, Any]], list[list[str]]]] = {  # a key that tells a result -> its table
    "accuracy by seed": _refit,
    "runs": _headline,
    "trainings": _detector,
    "networks": _layer_distances,
    "kind": _sweep,
}


def main() -> None:
    for page in map(Path, sys.argv[1:]):
        write_text(page, filled(page.read_text(encoding="utf-8"), Path()))
        print(f"filled {page}")


if __name__ == "__main__":
    main()
