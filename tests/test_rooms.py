"""The plan of the house: which room may import which, and what stays quick."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parent.parent / "src" / "splinecut"
ORDER = [
    "geometry",
    "networks",
    "training",
    "pruning",
    "experiments",
    "report",
    "integrations",
    "api",
    "cli",
]
MAY_NOT_SEE = {  # beyond the order: siblings that must not know each other
    "report": {"geometry", "networks", "training", "pruning", "integrations", "api"},
    "experiments": {"api"},
}
ANYWHERE = {"errors", "files"}  # they import no room


def _room(module: str) -> str:
    return module.split(".")[1] if "." in module else module


def _imports(file: Path) -> set[str]:
    """Every splinecut module that `file` imports, wherever in the file."""
    found = set()
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found |= {node.module} | {f"{node.module}.{alias.name}" for alias in node.names}
    return {name for name in found if name.startswith("splinecut.")}


@pytest.mark.parametrize("file", sorted(PACKAGE.rglob("*.py")), ids=lambda f: str(f.relative_to(PACKAGE)))
def test_imports_point_one_way(file: Path) -> None:
    room = file.relative_to(PACKAGE).parts[0].removesuffix(".py")
    seen = {_room(name) for name in _imports(file)} - {room}
    if room in ANYWHERE:
        assert not seen - ANYWHERE
    elif room in ORDER:
        above = set(ORDER[ORDER.index(room) + 1 :])
        assert not seen & above, f"{room} imports upwards: {sorted(seen & above)}"
        assert not seen & MAY_NOT_SEE.get(room, set())


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
