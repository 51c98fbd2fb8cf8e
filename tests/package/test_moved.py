"""Old module paths still import for one release, warn, and are the same modules."""

from __future__ import annotations

import importlib
import subprocess
import sys

import pytest

from splinecut.moved import MOVED, renamed_arguments


@pytest.mark.parametrize("old", MOVED)
def test_an_old_path_is_the_module_at_its_new_path_with_a_warning(old: str) -> None:
    sys.modules.pop(old, None)
    with pytest.warns(DeprecationWarning, match=f"{old} is now {MOVED[old]}"):
        module = importlib.import_module(old)
    assert module is importlib.import_module(MOVED[old])
    assert module.__name__ == MOVED[old]
    assert module.__spec__ is not None
    assert module.__spec__.name == MOVED[old]


def test_names_can_be_imported_from_an_old_path() -> None:
    sys.modules.pop("splinecut.pruning.catalogue", None)
    with pytest.warns(DeprecationWarning):
        from splinecut.pruning.catalogue import METHODS
    assert "spline" in METHODS


def test_old_names_of_networks_warn_and_are_what_they_were() -> None:
    from splinecut.networks import layers, surgery
    from splinecut.networks.groups.values import Groups

    groups = Groups((), {}, (), {}, {}, {})
    with pytest.warns(DeprecationWarning, match="full_keep"):
        assert groups.everything() == groups.full_keep()
    with pytest.warns(DeprecationWarning, match="Zero"):
        assert surgery.Nothing is layers.Zero


def test_public_names_give_no_warning() -> None:
    modules = "splinecut", "splinecut.pruning", "splinecut.testing"
    code = f"""
import importlib
for module in map(importlib.import_module, {modules}):
    for name in getattr(module, "__all__", ()):
        getattr(module, name)
"""
    subprocess.run([sys.executable, "-W", "error", "-c", code], check=True)


RENAMED = [
    ("splinecut.experiments.film.build", "film", "build_frames"),
    ("splinecut.experiments.film.build", "still", "single_frame"),
    ("splinecut.experiments.film.build", "narrowed", "shrink_to_limit"),
    ("splinecut.experiments.film.snapshots", "Takes", "WeightSnapshots"),
    ("splinecut.experiments.film.snapshots", "where_classes_meet", "center_on_boundary"),
    ("splinecut.pruning.engine.context", "Bench", "RunContext"),
    ("splinecut.pruning.engine.context", "Trained", "TrainingResult"),
    ("splinecut.pruning.engine.driver", "Outcome", "PruningResult"),
    ("splinecut.training.config", "Plan", "TrainingConfig"),
    ("splinecut.training.hooks", "Moment", "TrainState"),
    ("splinecut.training.initialization", "Start", "Initialization"),
    ("splinecut.training.progress", "Watch", "ConsoleProgress"),
]


@pytest.mark.parametrize(("module", "old", "new"), RENAMED, ids=[old for _, old, _ in RENAMED])
def test_an_old_name_is_what_has_the_new_name_with_a_warning(module: str, old: str, new: str) -> None:
    home = importlib.import_module(module)
    with pytest.warns(DeprecationWarning, match=f"{old} is now {new}"):
        assert getattr(home, old) is getattr(home, new)


def test_an_old_keyword_is_taken_with_a_warning() -> None:
    @renamed_arguments(see="on_pruned")
    def prune(name: str, on_pruned: int = 0) -> tuple[str, int]:
        return name, on_pruned

    with pytest.warns(DeprecationWarning, match="prune\\(see=\\) is now on_pruned=") as seen:
        assert prune("it", see=3) == ("it", 3)  # type: ignore[call-arg]
    assert seen[0].filename == __file__
    assert prune("it", 3) == prune("it", on_pruned=3) == ("it", 3)


def test_a_method_that_still_defines_holder_keeps_its_mask_hook() -> None:
    from splinecut.pruning.method import Method
    from splinecut.pruning.weight_mask import WeightMaskHook

    class Own(WeightMaskHook):
        """A mask hook of one's own."""

    with pytest.warns(DeprecationWarning, match="Old.holder is now mask_hook"):

        class Old(Method):
            def holder(self, keep: dict) -> WeightMaskHook:
                return Own(keep)

    assert isinstance(Old().mask_hook({}), Own)
