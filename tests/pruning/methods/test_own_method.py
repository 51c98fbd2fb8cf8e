"""Methods from elsewhere: as values, by path, by entry point; and the check that their authors run."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import splinecut as sc
from splinecut import pruning
from splinecut.networks import models
from splinecut.pruning import METHODS, Evidence, Method, Scores, resolve_method
from splinecut.pruning.budget import best
from splinecut.testing import BrokenPromise, check_method
from tools.stress_sweep import sweep

ROOT = Path(__file__).parents[3]
NO_SEARCH = [name for name, kind in METHODS.items() if not kind.has_search]


@dataclass(frozen=True)
class Mean(Method):
    """The mean size of a unit's own weights."""

    power: float = 1.0

    def score(self, evidence: Evidence, budget: sc.Budget) -> Scores:
        parameters = dict(evidence.model.named_parameters())
        found = {}
        for group in evidence.groups:
            rows = parameters[str(group.producers[0].weight)].detach().flatten(1).double().abs().mean(1).numpy()
            found[group.name] = rows**self.power
        return found


@dataclass(frozen=True)
class Forgetful(Mean):
    def score(self, evidence: Evidence, budget: sc.Budget) -> Scores:
        scores = super().score(evidence, budget)
        scores.popitem()
        return scores


@dataclass(frozen=True)
class Infinite(Mean):
    def score(self, evidence: Evidence, budget: sc.Budget) -> Scores:
        return {name: np.log(value * 0) for name, value in super().score(evidence, budget).items()}


@dataclass(frozen=True)
class Dice(Mean):
    def score(self, evidence: Evidence, budget: sc.Budget) -> Scores:
        random = np.random.default_rng()
        return {group.name: random.random(group.size) for group in evidence.groups}


@dataclass(frozen=True)
class Meddler(Mean):
    def score(self, evidence: Evidence, budget: sc.Budget) -> Scores:
        evidence.model.train()
        return super().score(evidence, budget)


@dataclass(frozen=True)
class Places(Mean):
    def score(self, evidence: Evidence, budget: sc.Budget) -> Scores:
        return {group.name: np.arange(group.size, dtype=float) for group in evidence.groups}


@dataclass(frozen=True)
class Generous(Mean):
    def select(self, scores: Scores, budget: sc.Budget, groups: Any, search_result: Any) -> dict[str, np.ndarray]:
        return {name: best(value, len(value) - 1) for name, value in scores.items()}


class Loose(Mean):
    extra: int = 3


BROKEN = [
    (Forgetful, "scores every group"),
    (Infinite, "finite"),
    (Dice, "alike"),
    (Meddler, "as found; mode"),
    (Places, "whatever its place"),
    (Generous, "exactly the share"),
    (Loose, "frozen dataclass"),
]


@pytest.mark.parametrize(("method", "promise"), BROKEN, ids=lambda value: getattr(value, "__name__", "promise"))
def test_a_broken_promise_is_named(method: type[Method], promise: str) -> None:
    with np.errstate(divide="ignore"), pytest.raises(BrokenPromise, match=promise):
        check_method(method)


@pytest.mark.parametrize("name", NO_SEARCH)
def test_methods_of_the_catalogue_keep_their_promises(name: str) -> None:
    check_method(METHODS[name])


def test_a_method_of_ones_own_keeps_its_promises_as_class_and_as_value() -> None:
    check_method(Mean)
    check_method(Mean(power=3.0))


def test_what_a_class_overrides_says_whether_it_searches() -> None:
    class Searching(Mean):
        def search(self, context: Any, model: nn.Module, turn: Any) -> None:
            return None

    class Inheriting(Searching):
        pass

    class Denying(Searching):
        has_search = False

    assert [kind.has_search for kind in (Mean, Searching, Inheriting, Denying)] == [False, True, True, False]


def test_former_names_still_work_with_a_warning() -> None:
    with pytest.warns(DeprecationWarning, match="holder is now mask_hook"):

        class Old(Mean):
            def holder(self, keep: Any) -> Any:
                return "moved"

    assert Old().mask_hook({}) == "moved"
    with pytest.warns(DeprecationWarning, match="search_result"):
        assert Evidence(nn.Identity(), None, torch.zeros(1), search_result=3).found == 3  # type: ignore[arg-type]
    with pytest.warns(DeprecationWarning, match="consumer_layers"):
        from splinecut.pruning.evidence import readers
    with pytest.warns(DeprecationWarning, match="consumer_layers"):
        assert pruning.readers is readers is pruning.consumer_layers


def network() -> tuple[nn.Module, torch.Tensor]:
    return models.build("convnet", preset="digits", seed=0).eval(), torch.randn(8, 1, 8, 8)


def test_a_value_a_class_and_a_name_draw_the_same_ticket() -> None:
    model, x = network()
    named = sc.draw(model, x, method="l2", keep=0.5)
    assert sc.draw(model, x, method=METHODS["l2"](), keep=0.5) == named
    assert sc.draw(model, x, method=METHODS["l2"], keep=0.5) == named
    assert named.method == "l2"


def test_a_method_at_a_path_is_the_one_that_stands_there() -> None:
    model, x = network()
    by_path = sc.draw(model, x, method=f"{__name__}:Mean", keep=0.5, power=2.0)
    by_value = sc.draw(model, x, method=Mean(power=2.0), keep=0.5)
    assert by_path == by_value
    assert by_value.method == f"{__name__}:Mean"
    assert by_value.options["power"] == 2.0


def test_what_is_no_method_is_refused_in_a_line() -> None:
    with pytest.raises(sc.InputError, match="did you mean 'spline'"):
        resolve_method("splin")
    with pytest.raises(sc.InputError, match="derived from"):
        resolve_method("pathlib:Path")
    with pytest.raises(sc.InputError, match="cannot import"):
        resolve_method("no.such.module:Mine")
    with pytest.raises(sc.InputError, match="a name, a Method or a class"):
        resolve_method(3)  # type: ignore[arg-type]
    with pytest.raises(sc.InputError, match="are its fields"):
        resolve_method(Mean(), {"power": 2.0})


def test_installed_packages_offer_methods_by_entry_points(tmp_path: Path) -> None:
    (tmp_path / "offered.py").write_text("from splinecut.pruning.methods.channels.baselines import L2 as Offered\n")
    metadata = tmp_path / "offered-1.0.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: offered\nVersion: 1.0\n")
    (metadata / "entry_points.txt").write_text("[splinecut.methods]\nmine = offered:Offered\n")
    code = "from splinecut.pruning import resolve_method; print(resolve_method('mine'))"
    done = subprocess.run(
        [sys.executable, "-c", f"import sys; sys.path.insert(0, {str(tmp_path)!r}); {code}"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.strip() == "('mine', L2())"


def test_the_example_runs_alone_in_a_recipe_and_in_a_sweep_with_two_workers() -> None:
    command = [sys.executable, str(ROOT / "examples" / "own_method.py")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr[-2000:]
    assert "ticket of own_method:Outgoing" in done.stdout
    assert "3 runs done, 0 were finished before, 0 failed" in done.stderr
    assert len((ROOT / "examples" / "own_method.py").read_text(encoding="utf-8").splitlines()) <= 60


def test_a_method_in_a_file_survives_the_kill_of_a_worker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(ROOT / "examples"), os.environ.get("PYTHONPATH", "")]))
    recipe, out = tmp_path / "own.toml", tmp_path / "runs"
    recipe.write_text(
        """
model = { name = "convnet", preset = "digits", width = 0.25 }
data = { name = "digits", train_size = 200 }
training = { epochs = 8, batch_size = 10 }
sweep = { seeds = 1, keeps = [0.5, 0.25], methods = [{ label = "outgoing", name = "own_method:Outgoing" }] }
"""
    )

    def is_retraining(seconds: float, runs: int, kills: int) -> bool:
        return kills == 0 and any(out.glob("outgoing-*/checkpoints/retrain/*.json"))

    process, kills, said = sweep(recipe, out, is_due=is_retraining)
    assert process.returncode == 0, said
    assert kills == 1
    assert json.loads((out / "sweep.json").read_text(encoding="utf-8"))["lost workers"] == 1
    assert len(list(out.glob("outgoing-*/record.json"))) == 2 and len(list(out.glob("dense-*/record.json"))) == 1
