"""The files that describe a run: recipe.toml, and spec.json with the versions and the commit."""

from __future__ import annotations

import subprocess
from importlib import metadata
from pathlib import Path

from splinecut.experiments.spec import SCHEMA, Experiment
from splinecut.files import write_json, write_text

PACKAGES = ("splinecut", "torch", "numpy", "scipy", "scikit-learn", "safetensors", "datasets")


def write_run_files(folder: Path, experiment: Experiment) -> None:
    """Writes what this run is: `recipe.toml` to read and run again, `spec.json` with schema, versions and commit."""
    write_text(folder / "recipe.toml", experiment.to_toml())
    facts = {
        "schema": SCHEMA,
        "digest": experiment.digest,
        "versions": versions(),
        "commit": commit(),
        "spec": experiment.model_dump(mode="json"),
    }
    write_json(folder / "spec.json", facts)


def versions() -> dict[str, str]:
    """Versions of the packages that decide a result, and of Python."""
    import platform

    installed = {"python": platform.python_version()}
    for package in PACKAGES:
        try:
            installed[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            continue
    return installed


def commit() -> str | None:
    """The commit of the source tree that splinecut runs from; None when it runs from an installed package."""
    here = Path(__file__).parent
    try:
        answer = subprocess.run(
            ["git", "-C", str(here), "rev-parse", "HEAD"], capture_output=True, text=True, timeout=5, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    # A wheel inside somebody else's repository would report theirs: only a source tree has this file.
    is_ours = (here.parents[2] / "constraints.txt").is_file()
    return answer.stdout.strip() or None if answer.returncode == 0 and is_ours else None
