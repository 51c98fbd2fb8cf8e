"""Names of stored results stay: a run folder or shared training made by an older version is found again.

`tests/data/stored-names.json` was written by 0.1.0. After a deliberate change of a recipe, write it again with
`python tests/test_stored_names.py`; a name that changes for any other reason orphans the results people have.
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import pytest

from splinecut.experiments import grid, spec
from splinecut.experiments.sweep import shared_stages
from splinecut.pruning.budget import Budget
from splinecut.pruning.catalogue import METHODS

FILE = Path(__file__).parent / "data" / "stored-names.json"
STORED: dict[str, dict[str, Any]] = json.loads(FILE.read_text(encoding="utf-8")) if FILE.is_file() else {}


def digest(names: list[str]) -> str:
    return hashlib.sha256("\n".join(names).encode()).hexdigest()[:16]


def names_of(recipe: str) -> dict[str, Any]:
    tables = spec.read(recipe)
    runs = grid.expand(grid.from_dict(tables)) if "sweep" in tables else [spec.Experiment.from_dict(tables)]
    stages = [stage for run in runs for stage in sorted(shared_stages(run))]
    return {"runs": len(runs), "folders": digest([run.folder for run in runs]), "stages": digest(stages)}


def first_training_of(method: str) -> Any:
    """What names a method's first training among the shared ones, as JSON stores it."""
    kind = METHODS[method]
    return json.loads(json.dumps(kind().first_training(Budget(0.5, kind.units))))


@pytest.mark.parametrize("recipe", spec.recipes())
def test_run_folders_of_a_recipe_keep_their_names(recipe: str) -> None:
    assert names_of(recipe) == STORED["recipes"][recipe]


@pytest.mark.parametrize("method", METHODS)
def test_the_shared_training_of_a_method_keeps_its_name(method: str) -> None:
    assert first_training_of(method) == STORED["first training"][method]


if __name__ == "__main__":
    found = {
        "recipes": {recipe: names_of(recipe) for recipe in spec.recipes()},
        "first training": {method: first_training_of(method) for method in METHODS},
    }
    FILE.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
