"""What we show works: the Python in README and docs runs, commands in them exist, links lead somewhere."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = sorted([ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").glob("*.md")])
EXAMPLES = sorted((ROOT / "examples").glob("*.py"))
DATA = Path(os.environ.get("SPLINECUT_DATA") or "/nowhere")
RESNET20 = DATA / "weights" / "cifar10-resnet20.safetensors"
ARGUMENTS = {  # of examples that need any; small here
    "prune_pretrained.py": ["cifar_resnet20", DATA / "cifar10", "--weights", RESNET20, "--probe", 48]
}


def blocks(page: Path, language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", page.read_text(encoding="utf-8"), flags=re.DOTALL)


@pytest.mark.parametrize("page", [page for page in PAGES if blocks(page, "python")], ids=lambda page: page.name)
def test_the_python_on_a_page_runs(page: Path, tmp_path: Path) -> None:
    code = "\n".join(blocks(page, "python"))
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_between_our_files_lead_somewhere(page: Path) -> None:
    targets = re.findall(r"\]\((?!https?:|#)([^)#]+)", page.read_text(encoding="utf-8"))
    missing = [target for target in targets if not (page.parent / target).exists()]
    assert not missing


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_commands_on_a_page_exist(page: Path) -> None:
    from splinecut.cli.app import app

    known = {command.name or getattr(command.callback, "__name__", "") for command in app.registered_commands}
    named = set(re.findall(r"^    (?:\$ )?splinecut ([a-z]+)", page.read_text(encoding="utf-8"), flags=re.MULTILINE))
    assert named <= known


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda example: example.name)
def test_an_example_runs_and_fits_one_screen(example: Path, tmp_path: Path) -> None:
    assert len(example.read_text().splitlines()) <= 60
    arguments = [str(each) for each in ARGUMENTS.get(example.name, [])]
    if arguments and not RESNET20.is_file():
        pytest.skip("SPLINECUT_DATA names no folder with trained weights")
    command = [sys.executable, str(example), *arguments]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip()
