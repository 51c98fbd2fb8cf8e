"""Old module paths still import for one release, warn, and are the same modules."""

from __future__ import annotations

import importlib
import subprocess
import sys

import pytest

from splinecut.moved import MOVED


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
    code = "import splinecut as sc; [getattr(sc, name) for name in sc.__all__]"
    subprocess.run([sys.executable, "-W", "error::DeprecationWarning:splinecut", "-c", code], check=True)
