"""The package as a whole: packages of a size one can survey, and what stays quick."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGES = [ROOT / "src" / "splinecut", ROOT / "studies", ROOT / "tools"]
FOLDERS = sorted({file.parent for package in PACKAGES for file in package.rglob("*.py")})
MOST = 14  # modules in a package, `__init__` apart


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda folder: str(folder.relative_to(ROOT)))
def test_a_package_can_be_surveyed_and_says_what_is_in_it(folder: Path) -> None:
    modules = [file for file in folder.glob("*.py") if file.name != "__init__.py"]
    assert len(modules) <= MOST
    text = (folder / "__init__.py").read_text(encoding="utf-8")
    assert text.startswith('"""') and len(text.splitlines()[0]) > 20


def test_every_module_of_0_1_is_in_the_migration_table() -> None:
    """Modules that moved are named there with where they went, and stand there."""
    page = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8").partition("## Modules of 0.1")[2]
    rows = [line for line in page.splitlines() if line.startswith("| `")]
    moves = [move.split(" -> ") for row in rows for move in row.split(" | ")[1].rstrip(" |").split(" · ")]
    assert len(moves) == 173
    for move in moves:
        if len(move) == 2:
            path = move[1].strip("` |").replace(".", "/")
            places = [ROOT / "src" / "splinecut" / f"{path}.py", ROOT / f"{path}.py"]
            assert any(place.is_file() for place in places), move


def _run(code: str) -> str:
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout


def test_importing_splinecut_does_not_import_torch() -> None:
    assert _run("import sys, splinecut; print('torch' in sys.modules, 'numpy' in sys.modules)").split() == ["False"] * 2


def test_help_takes_under_half_a_second_of_cpu_and_does_not_import_torch() -> None:
    code = """
import resource, sys
sys.argv = ["splinecut", "--help"]
from splinecut.cli.app import main
try:
    main()
except SystemExit as end:
    assert not end.code
used = resource.getrusage(resource.RUSAGE_SELF)
print("FACTS", "torch" in sys.modules, used.ru_utime + used.ru_stime)
"""
    _run(code)  # the first run may have to compile the bytecode
    has_torch, seconds = _run(code).split("FACTS")[1].split()
    assert has_torch == "False"
    assert float(seconds) < 0.5


def test_every_public_name_is_there() -> None:
    import splinecut as sc

    for name in sc.__all__:
        assert getattr(sc, name) is not None


def test_an_unknown_public_name_is_an_attribute_error() -> None:
    import splinecut as sc

    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = sc.nothing
