"""The report as a file: what is in it, what is escaped, what it costs; no browser needed."""

from __future__ import annotations

import base64
import hashlib
import re
import subprocess
import sys
import zlib
from dataclasses import replace
from pathlib import Path
from typing import get_args

import numpy as np
import pytest

import splinecut as sc
from splinecut.cli import app as cli
from splinecut.errors import InputError
from splinecut.experiments.spec import DetectorSpec
from splinecut.networks import models
from splinecut.pruning import detect
from splinecut.pruning.detection_rules import DETECTION_RULES
from splinecut.report import build as assembly
from splinecut.report import rows as facts
from splinecut.report.array_packing import pack
from splinecut.report.frame_selection import thinned
from splinecut.report.script_bundle import bundle
from support.report_data import HOSTILE, STEPS, many_records, record, small_film


def test_importing_the_report_does_not_import_torch() -> None:
    code = "import sys, splinecut.report.build, splinecut.experiments.film.frames; print('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout.strip() == "False"


def test_packed_arrays_are_found_where_their_entries_say() -> None:
    arrays = {"a": np.arange(3, dtype=np.uint8), "b": np.linspace(0, 1, 5), "c": np.arange(4, dtype=np.int16)[::2]}
    blob = pack(arrays)
    data = zlib.decompress(base64.b64decode(blob.text), wbits=-zlib.MAX_WBITS)
    for name, kind, start, n in blob.entries:
        assert start % 8 == 0
        np.testing.assert_array_equal(np.frombuffer(data, kind, n, start), arrays[name])


def test_the_subset_drawn_for_a_seed_does_not_part_the_seeds() -> None:
    records = [replace(record("a", seed), data_hash=f"{seed}" * 64) for seed in range(3)]
    (group,) = facts.grouped(records)
    assert group["test"]["last"][2] == 3


def test_runs_that_differ_in_seed_only_are_one_row() -> None:
    records = [
        record("a", 0, accuracy=0.8),
        record("b", 1, accuracy=0.9),
        record("c", 0, keep=0.25),
        record(method=None),
    ]
    groups = facts.grouped(records)
    assert [(g["series"], g["keep"], len(g["runs"])) for g in groups] == [
        ("dense", 1.0, 1),
        ("early bird, spline", 0.5, 2),
        ("early bird, spline", 0.25, 1),
    ]
    assert groups[1]["test"]["last"][0] == pytest.approx(0.85)
    assert groups[1]["full_flops"][0] == 3 * 10**10 + 5 * 10**9 and groups[1]["paper_flops"][0] == 3 * 10**10


def test_the_rules_are_those_of_the_detector() -> None:
    named = get_args(DetectorSpec.model_fields["rule"].annotation)
    assert set(named) == set(DETECTION_RULES) == set(detect.COMPARE)


def test_a_bird_is_told_with_its_own_rule_and_distances() -> None:
    bird = facts.detection(record())
    assert bird is not None
    assert (bird["threshold"], bird["window"], bird["drawn"]) == (0.15, 2, 5)
    assert bird["distances"] == list(STEPS.values())
    assert facts.detection(record(early=False)) is None and facts.detection(record(method=None)) is None


def test_hostile_text_stays_text() -> None:
    hostile = replace(record(HOSTILE), versions={HOSTILE: HOSTILE}, device=HOSTILE)
    film = replace(small_film(), name=HOSTILE, class_names=(HOSTILE, HOSTILE), about={"slice": HOSTILE})
    page = assembly.page([hostile], [film], HOSTILE, [HOSTILE])
    assert "<img" not in page and "<script>alert" not in page
    assert page.count('<script type="module" async>') == 1
    assert page.count("</script>") == page.count("<script") == page.count('<script type="')


def test_the_policy_allows_only_what_is_in_the_page() -> None:
    page = assembly.page([record()], [], "x")
    policy = re.search(r'Content-Security-Policy" content="([^"]+)"', page)
    assert policy is not None
    assert policy[1].startswith("default-src 'none'; ") and "unsafe" not in policy[1] and "http" not in policy[1]
    script = re.search(r'<script type="module" async>(.*?)</script>', page, re.DOTALL)
    assert script is not None
    assert base64.b64encode(hashlib.sha256(script[1].encode()).digest()).decode() in policy[1]
    assert not re.search(r"(src|href)=\"(?!#|data:,)", page)


def test_the_bundle_has_every_script_once_after_those_it_imports() -> None:
    text = bundle(assembly.PAGE)
    names = re.findall(r"^// ----- (.*)$", text, re.MULTILINE)
    assert sorted(names) == sorted(path.name for path in assembly.PAGE.glob("*.js")) and names[-1] == "main.js"
    for place, name in enumerate(names):
        source = (assembly.PAGE / name).read_text()
        assert source.startswith("// @ts-check\n// ")
        assert set(re.findall(r'^import .* from "\./(.*)";$', source, re.MULTILINE)) <= set(names[:place])
    declared = re.findall(r"^(?:async )?(?:function|class|const|let) (\w+)", text, re.MULTILINE)
    assert len(declared) == len(set(declared)), "scripts share one scope in the page"


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ('import { a } from "./b.js";\n', "main.js -> b.js -> main.js"),
        ('import { a as c } from "./b.js";\n', "got import { a as c }"),
        ('import a from "./b.js";\n', 'got import a from "./b.js";'),
        ("export default 1;\n", "got export default 1;"),
        ('const b = await import("./b.js");\n', "got import("),
    ],
)
def test_what_the_bundle_cannot_join_is_refused(tmp_path: Path, line: str, message: str) -> None:
    (tmp_path / "main.js").write_text(f"// A comment.\n{line}")
    (tmp_path / "b.js").write_text('import { main } from "./main.js";\nexport const a = 1;\n')
    with pytest.raises(ValueError, match=re.escape(message)):
        bundle(tmp_path)


def test_every_number_stands_in_the_page_without_scripts() -> None:
    page = assembly.page(many_records(20), [small_film()], "x")
    text = re.sub(r"<script.*?</script>", "", page, flags=re.DOTALL)
    assert text.count('class="run"') == 20 and "splinecut run" in text
    assert 'id="table-comparison"' in text and 'id="table-runs"' in text
    assert "0.300 0.250 0.120 0.080" in text  # the mean distances of the early bird
    for frame in small_film():
        assert f'data-value="{len(frame)}">{len(frame):,}</td>' in text


def test_each_view_has_one_sentence_that_says_what_to_look_for() -> None:
    page = (assembly.PAGE / "index.html").read_text()
    assert page.count('<p class="look">Look ') == page.count("<section") == 6


def test_a_recipe_in_the_page_runs_again_as_the_same_experiment(tmp_path: Path) -> None:
    import html

    from splinecut.experiments import spec

    one = record("a & b", 3)
    recipe = re.search(r'<pre class="recipe">(.*?)</pre>', assembly.page([one], [], "x"), re.DOTALL)
    assert recipe is not None
    (tmp_path / "again.toml").write_text(html.unescape(recipe[1]))
    assert spec.load(tmp_path / "again.toml").digest == one.digest


def test_a_page_that_would_be_too_large_shows_fewer_partitions_and_says_so() -> None:
    film = small_film()
    sizes = dict.fromkeys(film, 10)
    assert thinned([film], sizes, 1000) == ([film], [])
    (fewer,), notes = thinned([film], sizes, 100)
    assert [f.step for f in fewer if f.stage == "train"] == [0, 20, 40, 60, 80, 100, 110]
    assert [f.keep for f in fewer if f.stage == "prune"] == [film.frames[-3].keep, film.frames[-1].keep]
    assert notes == ["9 of 15 stored partitions are shown, so that the page stays small enough to open."]


def test_a_page_that_is_still_too_large_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(assembly, "LIMIT", 1000)
    with pytest.raises(InputError, match="at most 0 open well"):
        assembly.viewer(small_film(), tmp_path / "r.html")
    assert not (tmp_path / "r.html").exists()


def test_the_partition_command_writes_the_viewer(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    arguments = ["partition", "mlp", "--slice", "square:2", "-o", str(tmp_path / "x.html")]
    monkeypatch.setattr(sys, "argv", ["splinecut", *arguments])
    with pytest.raises(SystemExit) as end:
        cli.main()
    assert end.value.code == 0 and "x.html" in capsys.readouterr().out
    n_regions = len(sc.subdivide(models.build("mlp", seed=0).eval(), sc.Slice.square(2.0)))
    assert f'data-value="{n_regions}"' in (tmp_path / "x.html").read_text()
    assert [file.name for file in tmp_path.iterdir()] == ["x.html"]


def test_the_command_writes_the_page_and_names_what_it_skipped(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    record("good").save(tmp_path / "runs" / "good")
    (tmp_path / "runs" / "bad").mkdir()
    (tmp_path / "runs" / "bad" / "record.json").write_text("{")
    small_film().save(tmp_path / "runs" / "good" / "frames.npz")
    monkeypatch.setattr(sys, "argv", ["splinecut", "report", str(tmp_path / "runs"), "-o", str(tmp_path / "r.html")])
    with pytest.raises(SystemExit) as end:
        cli.main()
    said = " ".join(capsys.readouterr().out.split())
    assert end.value.code == 0 and "1 runs, 15 stored partitions" in said and "not a readable record" in said
    assert "not a readable record" in (tmp_path / "r.html").read_text()


@pytest.mark.parametrize(
    ("place", "message"), [("nowhere", "not found; expected a folder of runs"), (".", "no run and no stored partition")]
)
def test_nothing_to_report_is_one_line(
    tmp_path: Path, place: str, message: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "argv", ["splinecut", "report", str(tmp_path / place), "-o", str(tmp_path / "r.html")])
    with pytest.raises(SystemExit) as end:
        cli.main()
    assert end.value.code == 2 and message in capsys.readouterr().err
    assert not (tmp_path / "r.html").exists()
