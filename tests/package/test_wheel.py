"""The package as it is shipped: a built wheel installs in a clean environment and runs."""

from __future__ import annotations

import subprocess
import sys
import venv
import zipfile
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_a_built_wheel_installs_and_runs_in_a_clean_environment(tmp_path: Path) -> None:
    build = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(tmp_path), str(ROOT)]
    subprocess.run(build, check=True, capture_output=True, timeout=120)
    (wheel,) = tmp_path.glob("*.whl")
    with zipfile.ZipFile(wheel) as inside:
        tops = {name.split("/")[0] for name in inside.namelist()}
    assert {top for top in tops if not top.endswith(".dist-info")} == {"splinecut"}  # no studies, tools, tests
    clean = tmp_path / "clean"
    venv.create(clean, with_pip=True)
    # Its own environment, with nothing of ours; only what the command line itself needs, to spare half a gigabyte.
    install = [str(clean / "bin" / "pip"), "install", "--quiet", "--no-deps", str(wheel)]
    subprocess.run(install, check=True, timeout=120)
    needs = ["typer", "rich", "pydantic"]
    subprocess.run([str(clean / "bin" / "pip"), "install", "--quiet", *needs], check=True, timeout=300)

    def splinecut(*arguments: str) -> str:
        command = [str(clean / "bin" / "splinecut"), *arguments]
        return subprocess.run(command, check=True, capture_output=True, text=True, cwd=tmp_path, timeout=60).stdout

    assert "Usage: splinecut" in splinecut("--help")
    assert "demo-digits" in splinecut("list", "recipes")
    assert (next(clean.glob("lib/python*/site-packages")) / "splinecut" / "py.typed").is_file()
