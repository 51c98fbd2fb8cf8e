"""The command line as a person meets it: what it prints, how it ends."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from splinecut.cli import app as cli
from splinecut.training import checkpoint

RECIPE = """
model = {name = "convnet", preset = "digits", width = 0.25}
data = "digits"
[training]
epochs = 2
batch_size = 128
"""


def splinecut(*arguments: object, **environment: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "splinecut", *map(str, arguments)]
    return subprocess.run(
        command, capture_output=True, text=True, env={**os.environ, "COLUMNS": "100", **environment}, timeout=300
    )


@pytest.fixture
def recipe(tmp_path: Path) -> Path:
    path = tmp_path / "small.toml"
    path.write_text(RECIPE)
    return path


def test_run_prints_plain_lines_and_a_table_and_leaves_a_record(recipe: Path, tmp_path: Path) -> None:
    done = splinecut("run", recipe, "--out", tmp_path / "runs", "--set", "training.epochs=3", "--device", "cpu")
    assert done.returncode == 0, done.stderr
    assert "train: epoch 1/3  loss" in done.stderr and "s left" in done.stderr
    assert "\x1b" not in done.stdout + done.stderr
    for fact in ("test accuracy", "parameters", "FLOPs of one forward pass", "seconds", "not measured"):
        assert fact in done.stdout
    (folder,) = (tmp_path / "runs").iterdir()
    record = json.loads((folder / "record.json").read_text())
    assert folder.name == f"small-{record['digest']}"
    assert len(record["history"]) == 3 and len(record["data_hash"]) == 64
    assert record["versions"]["torch"] and record["schema"] == 1
    assert {"recipe.toml", "spec.json", "model.safetensors", "best.safetensors"} <= {f.name for f in folder.iterdir()}


def test_the_stored_recipe_gives_the_same_run(recipe: Path, tmp_path: Path) -> None:
    assert splinecut("run", recipe, "--out", tmp_path / "runs").returncode == 0
    (folder,) = (tmp_path / "runs").iterdir()
    assert splinecut("run", folder / "recipe.toml", "--out", tmp_path / "runs").returncode == 0
    assert [f.name for f in (tmp_path / "runs").iterdir()] == [folder.name]


@pytest.mark.parametrize(
    ("kind", "expected"),
    [("models", "preresnet"), ("data", "x-shape"), ("methods", "spline"), ("recipes", "demo-digits")],
)
def test_list_prints_what_there_is(kind: str, expected: str) -> None:
    done = splinecut("list", kind)
    assert done.returncode == 0 and expected in done.stdout


def test_the_version_is_printed() -> None:
    import splinecut as sc

    assert splinecut("--version").stdout.strip() == f"splinecut {sc.__version__}"


def ends_with(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, *arguments: object) -> str:
    """What `splinecut ARGUMENTS`, run in this process, says on its last line before it ends with exit code 2."""
    monkeypatch.setattr(sys, "argv", ["splinecut", *map(str, arguments)])
    with pytest.raises(SystemExit) as end:
        cli.main()
    assert end.value.code == 2
    last = capsys.readouterr().err.strip().splitlines()[-1]
    assert last.startswith("splinecut: ")
    return last


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--set", "model.name=vgg61"], "unknown model 'vgg61'; did you mean 'vgg16'?"),
        (["--set", "model=preresnet30"], "got 30"),
        (["--set", "model.name=no.such.module:net"], "cannot import 'no.such.module'"),
        (["--set", "model.presett=x"], "unknown option of convnet 'presett'; did you mean 'preset'?"),
        (["--set", "model.activation=rellu"], "did you mean 'relu'?"),
        (["--set", "data.name=digitz"], "did you mean 'digits'?"),
        (["--set", "trainig.epochs=3"], "unknown key 'trainig'; did you mean 'training'?"),
        (["--set", "training.epohs=3"], "did you mean 'training.epochs'?"),
        (["--set", "model.width=-1"], "model.width should be greater than 0, got -1"),
        (["--set", "budget.keep=1.5"], "budget.keep should be less than or equal to 1, got 1.5"),
        (["--set", "method=splin"], "unknown method 'splin'; did you mean 'spline'?"),
        (
            ["--set", "method=spline", "--set", "method.fom=paper"],
            "unknown option of spline 'fom'; did you mean 'form'?",
        ),
        (["--set", "detector=early-bird"], "detector.name should be early-bird-spline"),
        (["--set", "model=alexnet"], "alexnet needs images of side 19 or more, got 8"),
        (["--set", "model=vgg16", "--set", "data=x-shape"], "got (2,)"),
        (["--set", "data=cifar10", "--data-dir", "/nowhere"], "/nowhere"),
        (["--device", "tpu"], "unknown device 'tpu'"),
        (["--device", "cuda"], "device 'cuda' is not available; found: cpu"),
        (["--out", "/proc/nowhere"], "cannot write in /proc/nowhere"),
        (["--set", "training.optimizer.lr=1e30"], "the loss of 'train' is"),
    ],
)
def test_bad_input_is_one_line_and_exit_code_2(
    recipe: Path,
    tmp_path: Path,
    arguments: list[str],
    message: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    if "cuda" in arguments and torch.cuda.is_available():
        pytest.skip("this machine has CUDA")
    assert message in ends_with(capsys, monkeypatch, "run", recipe, "--out", tmp_path / "runs", *arguments)


def test_a_real_process_says_one_line_without_traceback() -> None:
    done = splinecut("run", "demo-digit")
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1 and "did you mean 'demo-digits'?" in done.stderr
    assert not done.stdout


def test_an_unknown_listing_names_the_nearest(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert "unknown listing 'model'; did you mean 'models'?" in ends_with(capsys, monkeypatch, "list", "model")


def test_a_full_disk_is_one_line_and_leaves_the_previous_checkpoint_intact(recipe: Path, tmp_path: Path) -> None:
    disk = tmp_path / "disk"
    disk.mkdir()
    # Room for two checkpoints of this network (about 41 kB each) and the text files, not for a third while both stand.
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=120k", "tmpfs", str(disk)], capture_output=True)
    if mounted.returncode:
        pytest.skip("mounting a small disk needs root")
    try:
        done = splinecut("run", recipe, "--out", disk, "--set", "training.epochs=20", "--device", "cpu")
        assert done.returncode == 2
        last = done.stderr.strip().splitlines()[-1]
        assert "No space left on device; what stood there before is intact" in last
        (folder,) = disk.iterdir()
        state = checkpoint.load_newest(folder / "checkpoints" / "train")
        assert state is not None and state["epoch"] >= 1
    finally:
        subprocess.run(["umount", str(disk)], check=True)


def test_a_loss_that_diverges_keeps_the_last_good_checkpoint(recipe: Path, tmp_path: Path) -> None:
    overrides = ["--set", "training.epochs=30", "--set", "model.name=tests_nan:net", "--set", "model.preset=none"]
    module = _module_with_a_net_that_breaks(tmp_path)
    done = splinecut("run", recipe, "--out", tmp_path, *overrides, PYTHONPATH=str(module))
    assert done.returncode == 2
    assert "the loss of 'train' is nan at step" in done.stderr and "checkpoint" in done.stderr
    (folder,) = (f for f in tmp_path.iterdir() if f.name.startswith("small-"))
    state = checkpoint.load_newest(folder / "checkpoints" / "train")
    assert state is not None and state["epoch"] == 3
    assert all(tensor.isfinite().all() for tensor in state["weights"].values())


def _module_with_a_net_that_breaks(folder: Path) -> Path:
    """A network of a user's own whose output is NaN from its fourth epoch of digits on."""
    (folder / "tests_nan.py").write_text(
        """
import torch
from torch import nn

class Net(nn.Module):
    def __init__(self, classes):
        super().__init__()
        self.linear = nn.Linear(64, classes)
        self.register_buffer("calls", torch.zeros(()))
    def forward(self, x):
        if self.training:
            self.calls += 1
        return self.linear(x.flatten(1)) * torch.where(self.calls > 3 * 11, torch.nan, 1.0)

def net(classes, **options):
    return Net(classes)
"""
    )
    return folder


def helps() -> list[tuple[str, str]]:
    """Every help text there is, as it is written, by the command it belongs to."""
    import typer

    group = typer.main.get_command(cli.app)
    found = []
    for name, command in group.commands.items():
        found.append((name, command.help or ""))
        found += [(name, parameter.help or "") for parameter in command.params if hasattr(parameter, "help")]
    assert len(found) > 40
    return found


def test_no_help_text_is_eaten_as_markup() -> None:
    """What stands in square brackets is markup to the library that prints help, unless it is escaped."""
    from rich.text import Text

    for name, text in helps():
        assert Text.from_markup(text).plain == text.replace("\\[", "["), name


def test_the_help_of_a_sweep_names_its_table() -> None:
    assert "A TOML file with a [sweep] table" in " ".join(splinecut("sweep", "--help").stdout.replace("│", " ").split())


def test_a_table_of_nothing_is_an_error(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    assert ends_with(capsys, monkeypatch, "table", "nowhere").startswith("splinecut: no finished run in nowhere")


def test_a_recipe_leaves_the_width_of_a_users_class_alone(recipe: Path, tmp_path: Path) -> None:
    (tmp_path / "own_width.py").write_text(
        """
from torch import nn

class Net(nn.Sequential):
    def __init__(self, width=16):
        super().__init__(nn.Flatten(), nn.Linear(64, width), nn.ReLU(), nn.Linear(width, 10))
"""
    )
    recipe.write_text('model = "own_width:Net"\ndata = "digits"\n[training]\nepochs = 1\n')
    done = splinecut(
        "run", recipe, "--out", tmp_path / "runs", PYTHONPATH=f"{tmp_path}:{os.environ.get('PYTHONPATH', '')}"
    )
    assert done.returncode == 0, done.stderr
    (folder,) = (tmp_path / "runs").iterdir()
    assert json.loads((folder / "record.json").read_text())["parameters"] == 64 * 16 + 16 + 160 + 10
