"""What README and docs print is what results/ holds."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from splinecut.errors import InputError
from splinecut.pruning.methods.catalogue import METHODS
from tools import fill_tables as pages

ROOT = Path(__file__).parents[2]
FILLED = [
    page for page in (ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))) if pages.BLOCK.search(page.read_text())
]


@pytest.mark.parametrize("page", FILLED, ids=lambda page: page.name)
def test_tables_of_a_page_equal_the_committed_results(page: Path) -> None:
    assert pages.filled(page.read_text(), ROOT) == page.read_text(), "run `make pages`"


def test_the_command_of_every_table_stands_on_the_page_of_results() -> None:
    page = (ROOT / "docs" / "results.md").read_text()
    for _, name, _ in pages.BLOCK.findall(page):
        known = json.loads((ROOT / name).read_text())
        for command in [sweep["command"] for sweep in known["sweeps"]] if "sweeps" in known else [known["command"]]:
            assert f"    {command}" in page, name


def test_the_readme_has_such_tables() -> None:
    assert "README.md" in {page.name for page in FILLED}


@pytest.mark.parametrize("result", sorted((ROOT / "results").glob("*.json")), ids=lambda file: file.stem)
def test_every_result_says_its_command_date_and_versions(result: Path) -> None:
    known = json.loads(result.read_text())
    runs = known.get("runs", [{}])
    commands = [sweep["command"] for sweep in known["sweeps"]] if "sweeps" in known else [known["command"]]
    assert commands and all(command.startswith(("python ", "splinecut ")) for command in commands)
    assert known["date"] and (known.get("versions") or all(run["versions"] for run in runs))


def test_a_table_has_means_with_intervals(tmp_path: Path) -> None:
    places = [f"random | {keep} | {how}" for keep, how in pages.REFIT_COLUMNS]
    by_seed = [dict.fromkeys(places, accuracy) for accuracy in (0.5, 0.7)]
    (tmp_path / "one.json").write_text(json.dumps({"accuracy by seed": by_seed}))
    text = "before\n<!-- one.json -->\nold\n<!-- end -->\nafter\n"
    found = pages.filled(text, tmp_path)
    assert found.startswith("before\n<!-- one.json -->\n| criterion |") and found.endswith("|\n<!-- end -->\nafter\n")
    assert "60.0 ± 127.1" in found and "old" not in found  # 0.1 x t(1), the 97.5 % point of which is 12.706
    assert pages.filled(found, tmp_path) == found


def test_layer_distances_are_of_the_first_the_middle_and_the_last_layer(tmp_path: Path) -> None:
    layers = {f"l{layer}": [(layer + epoch / 10) / 10 for epoch in range(16)] for layer in range(5)}
    one = {"probes": {"train": {"between_epochs": [0.0] * 16, "between_epochs_by_layer": layers}}}
    (tmp_path / "m.json").write_text(json.dumps({"networks": {"net": one}}))
    head, _, *rows = pages.table(tmp_path / "m.json").splitlines()
    assert head == "| network | layer | epoch 1 | epoch 4 | epoch 8 | epoch 10 | epoch 12 | epoch 16 |"
    assert [row.split(" | ")[1] for row in rows] == ["first (1 of 5)", "middle (3 of 5)", "last (5 of 5)"]
    assert rows[1] == "| net | middle (3 of 5) | 0.200 | 0.230 | 0.270 | 0.290 | 0.310 | 0.350 |"


def test_one_seed_of_a_route_has_no_interval(tmp_path: Path) -> None:
    named = {"seeds": 1, "training flops": 0.9, "kept flops": 0.7, "drawn epochs": [4]}
    row = {"route": "r-early-bird-0.7", "accuracy": [70.0, None], "against dense": [1.0, None], **named}
    (tmp_path / "h.json").write_text(json.dumps({"recipe": "r", "runs": [], "rows": [row]}))
    line = pages.table(tmp_path / "h.json").splitlines()[-1]
    assert line == "| early bird, keep 0.7 | 70.0 | +1.0 | 0.90 | 0.70 | 4 |"


def test_a_rule_that_never_draws_is_said_so(tmp_path: Path) -> None:
    rows = [{"rule": "paper", "threshold": 0.2, "epoch": epoch, "of": 40} for epoch in (7, None)]
    trainings = [{"schedule": name, "rows": [row]} for name, row in zip(("step", "constant"), rows, strict=True)]
    (tmp_path / "d.json").write_text(json.dumps({"trainings": trainings}))
    assert pages.table(tmp_path / "d.json").splitlines()[-1] == "| paper | 0.20 | 7 of 40 | never |"


def committed_row(name: str, of: str, keep: float, accuracy: float, flops: float) -> dict[str, object]:
    numbers = {"0": {"last_top1": accuracy, "full_flops": flops}}
    named = {"asked": f"{name} {keep}", "task": "toy", "name": name, "keep": keep, "of": of}
    return {**named, "published": {}, "by_seed": numbers}


def lines_of_table(rows: list[dict[str, object]], folder: Path) -> list[str]:
    (folder / "t.json").write_text(json.dumps({"kind": "splinecut table", "schema": 1, "rows": rows}))
    return pages.table(folder / "t.json").splitlines()


def test_routes_of_a_sweep_are_set_against_the_dense_network(tmp_path: Path) -> None:
    rows = [
        committed_row("dense", "", 1.0, 0.9, 100.0),
        committed_row("l2", "channels", 0.5, 0.8, 150.0),
        committed_row("l2", "channels", 0.1, 0.3, 120.0),
        committed_row("gal (trials=3)", "channels", 0.1, 0.4, 300.0),
        committed_row("snip", "weights", 0.1, 0.5, 100.0),
    ]
    lines = lines_of_table(rows, tmp_path)
    assert lines[0] == "| method | keep 0.5 | keep 0.1 |"
    assert lines[2:] == [
        "| *toy, share of channels; dense: 90.0 %* |  |  |",
        "| l2 | 80.0 (1.50) | 30.0 (1.20) |",
        "| gal |  | 40.0 (3.00) |",  # its options are in the result
        "| *toy, share of weights; dense: 90.0 %* |  |  |",
        "| snip |  | 50.0 (1.00) |",
    ]


def test_each_variant_of_a_sweep_is_set_against_its_own_dense_network(tmp_path: Path) -> None:
    rows = [
        committed_row("dense [adam]", "", 1.0, 0.9, 100.0),
        committed_row("dense [sgd]", "", 1.0, 0.7, 200.0),
        committed_row("l2 [adam]", "channels", 0.5, 0.8, 150.0),
        committed_row("l2 [sgd]", "channels", 0.5, 0.6, 150.0),
    ]
    assert lines_of_table(rows, tmp_path)[2:] == [
        "| *toy, adam, share of channels; dense: 90.0 %* |  |",
        "| l2 | 80.0 (1.50) |",
        "| *toy, sgd, share of channels; dense: 70.0 %* |  |",
        "| l2 | 60.0 (0.75) |",
    ]


@pytest.mark.parametrize("text", ["", "{}", "[]"])
def test_a_result_without_a_table_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "r.json").write_text(text)
    with pytest.raises(InputError):
        pages.table(tmp_path / "r.json")


def test_the_digits_table_is_whole_and_shares_its_stages() -> None:
    """Every method at four budgets with five seeds, for no more than 40 % of what its cells cost alone."""
    known = json.loads((ROOT / "results" / "digits-table.json").read_text())
    (sweep,) = known["sweeps"]
    assert sweep["compute"]["share"] <= 0.40 and not sweep["failed"]
    assert all(len(row["by_seed"]) == 5 for row in known["rows"])
    keeps: dict[str, set[float]] = {}
    for row in known["rows"]:
        keeps.setdefault(row["name"], set()).add(row["keep"])
    assert keeps.pop("dense") == {1.0}
    assert len(keeps) >= len(METHODS) and all(found == {0.7, 0.5, 0.3, 0.1} for found in keeps.values())
