"""`splinecut prune` on a network of a user's own."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

import splinecut as sc
from splinecut.cli import app as cli
from splinecut.networks import models

MODULE = """
from torch import nn

def net(hidden=16):
    return nn.Sequential(nn.Linear(6, hidden), nn.ReLU(), nn.Linear(hidden, hidden), nn.ReLU(), nn.Linear(hidden, 3))
"""


def prune(monkeypatch: pytest.MonkeyPatch, *arguments: object) -> None:
    monkeypatch.setattr(sys, "argv", ["splinecut", "prune", *map(str, arguments)])
    with pytest.raises(SystemExit) as end:
        cli.main()
    assert not end.value.code


def test_a_users_own_network_is_cut_saved_and_loaded_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "own_prunable.py").write_text(MODULE)
    monkeypatch.syspath_prepend(str(tmp_path))
    import own_prunable  # type: ignore[import-not-found]

    torch.manual_seed(0)
    whole = own_prunable.net(hidden=12)
    save_file(whole.state_dict(), tmp_path / "whole.safetensors")
    np.save(tmp_path / "probe.npy", np.random.default_rng(0).normal(size=(200, 6)).astype(np.float32))
    options = ["--weights", tmp_path / "whole.safetensors", "--probe", tmp_path / "probe.npy", "--keep", 0.5]
    prune(monkeypatch, "own_prunable:net", *options, "--set", "model.hidden=12", "-o", tmp_path / "small.safetensors")
    said = " ".join(capsys.readouterr().out.split())
    assert "keep 0.5 of channels, global, floor 1" in said and "50.0%" in said
    small = sc.load(tmp_path / "small.safetensors", own_prunable.net(hidden=12))
    ticket = sc.Ticket.load(tmp_path / "small.ticket.json")
    assert ticket.achieved.kept == 12 and ticket.achieved.of == 24
    assert small[0].out_features + small[2].out_features == 12
    x = torch.randn(5, 6)
    expected = sc.cut(whole, ticket, refit="least_squares", probe=torch.from_numpy(np.load(tmp_path / "probe.npy")))
    assert torch.allclose(small(x), expected(x), atol=1e-5)


def test_a_model_by_name_is_cut_on_a_data_set_with_the_methods_options(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    model = models.build("convnet", preset="digits", seed=0)
    save_file(model.state_dict(), tmp_path / "w.safetensors")
    method = ["--set", "model.preset=digits", "--set", "method.form=paper", "--scope", "layer", "--of", "flops"]
    prune(monkeypatch, "convnet", "--weights", tmp_path / "w.safetensors", "--data", "digits", *method,
          "-o", tmp_path / "s.safetensors")  # fmt: skip
    ticket = sc.Ticket.load(tmp_path / "s.ticket.json")
    assert ticket.options["form"] == "paper" and ticket.options["scope"] == "layer"
    assert ticket.achieved.flops is not None and ticket.achieved.all_flops is not None
    assert ticket.achieved.flops <= 0.5 * ticket.achieved.all_flops


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["convnet", "--weights", "none.safetensors", "--data", "digits"], "there is no none.safetensors"),
        (["convnet", "--weights", "w.safetensors"], "give inputs the network is used on"),
        (["convnet", "--weights", "w.safetensors", "--data", "digits", "--keep", "0"], "keep must be in (0, 1], got 0"),
        (["convnet", "--weights", "w.safetensors", "--set", "x=1"], "expected model.KEY=VALUE or method.KEY=VALUE"),
    ],
)
def test_bad_input_is_one_line(
    arguments: list[str], message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    monkeypatch.chdir(tmp_path)
    save_file(models.build("convnet", preset="digits", seed=0).state_dict(), "w.safetensors")
    extra = [] if "x=1" in arguments else ["--set", "model.preset=digits"]
    monkeypatch.setattr(sys, "argv", ["splinecut", "prune", *arguments, *extra])
    with pytest.raises(SystemExit) as end:
        cli.main()
    assert end.value.code == 2
    assert message in capsys.readouterr().err.strip().splitlines()[-1]


NETS = """
import torch
from torch import nn

class Net(nn.Module):
    def __init__(self, width=16):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(6, width), nn.ReLU(), nn.Linear(width, 3))
    def forward(self, x):
        return self.body(x)

def scaled(width, activation="tanh"):
    assert activation == "tanh"
    return Net(round(16 * width))

def value():
    return nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 1))

def boom():
    raise KeyError("first line\\nsecond line")

def needs(hidden):
    return Net(hidden)
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a user's module in it, weights and inputs; the one that commands are called in."""
    (tmp_path / "mine_here.py").write_text(NETS)
    (tmp_path / "broken_here.py").write_text("import torch\nthis is no Python\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [each for each in sys.path if each not in ("", str(tmp_path))])
    for name in ("mine_here", "broken_here"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    monkeypatch.setenv("COLUMNS", "80")
    np.save("x.npy", np.random.default_rng(0).normal(size=(200, 6)).astype(np.float32))
    return tmp_path


def weights(name: str, width: int = 16, outputs: int = 3) -> dict[str, torch.Tensor]:
    """Weights of the user's network, saved under this name as well."""
    torch.manual_seed(0)
    layers = torch.nn.Linear(6, width), torch.nn.Linear(width, outputs)
    state = {
        f"body.{2 * i}.{key}": value for i, layer in enumerate(layers) for key, value in layer.state_dict().items()
    }
    if name.endswith(".safetensors"):
        save_file(state, name)
    else:
        torch.save(state, name)
    return state


def error(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], *arguments: object) -> str:
    """The one line that a command ends with."""
    monkeypatch.setattr(sys, "argv", ["splinecut", *map(str, arguments)])
    with pytest.raises(SystemExit) as end:
        cli.main()
    said = capsys.readouterr()
    assert end.value.code == 2 and said.out == ""
    (line,) = said.err.splitlines()
    return line


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize(("options", "width"), [((), 16), (("--set", "model.width=24"), 24)])
@pytest.mark.parametrize("file", ["w.safetensors", "w.pt", "w.pth", "w.weights"])
def test_a_class_with_a_width_of_its_own_is_found_in_this_folder_and_cut(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], options: tuple[str], width: int, file: str
) -> None:
    weights(file, width)
    prune(monkeypatch, "mine_here:Net", "--weights", file, "--probe", "x.npy", *options)
    said = capsys.readouterr().out
    assert re.search(rf"channels +│ +{width} +│ +{width // 2} ", said)
    found = re.search(r"^agrees with the dense network on ([0-9.]+) % of 200 inputs", said, flags=re.MULTILINE)
    assert found is not None
    import mine_here  # type: ignore[import-not-found]

    whole = mine_here.Net(width)
    whole.load_state_dict(weights("again.pt", width))
    x = torch.from_numpy(np.load("x.npy"))
    small = sc.load("pruned.safetensors", mine_here.Net(width))
    agreement = (small(x).argmax(1) == whole(x).argmax(1)).double().mean().item()
    assert float(found[1]) == pytest.approx(100 * agreement, abs=0.05)


@pytest.mark.usefixtures("folder")
def test_the_damage_to_a_single_output_is_its_relative_error(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    torch.save({key.removeprefix("body."): value for key, value in weights("w.pt", 8, 1).items()}, "w.pt")
    prune(monkeypatch, "mine_here:value", "--weights", "w.pt", "--probe", "x.npy", "--keep", 1)
    assert "differs from the dense network by 0.0 % of its output on 200 inputs" in capsys.readouterr().out


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize(
    ("model", "message"),
    [
        ("mine_here:boom", "mine_here:boom() failed: KeyError: 'first line"),
        (
            "mine_here:needs",
            "missing 1 required positional argument: 'hidden'; give its arguments with --set model.KEY",
        ),
        ("broken_here:net", "cannot import 'broken_here' of model 'broken_here:net': SyntaxError: invalid syntax"),
        ("nowhere_here:net", "No module named 'nowhere_here'; run this in its folder, or put that on PYTHONPATH"),
    ],
)
@pytest.mark.parametrize("command", ["prune", "partition"])
def test_whatever_a_factory_raises_is_one_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], command: str, model: str, message: str
) -> None:
    options = ["--weights", "w.pt", "--probe", "x.npy"] if command == "prune" else []
    weights("w.pt")
    assert message in error(monkeypatch, capsys, command, model, *options)


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, "there is no w.pt"),
        (torch.nn.Linear(6, 3), "w.pt holds more than tensors, such as a whole model, and is not read; write it with"),
        ({"epoch": 3, "state_dict": {"a": torch.zeros(2)}}, "w.pt holds a dict of epoch, state_dict, not a state dict"),
        (torch.zeros(3), "w.pt holds Tensor, not a state dict"),
        (b"no pickle at all", "w.pt"),
        ({"body.0.weight": torch.zeros(2)}, "cannot load weights from w.pt: Error(s) in loading state_dict for Net"),
    ],
)
def test_a_file_without_a_state_dict_is_one_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], content: object, message: str
) -> None:
    if isinstance(content, bytes):
        Path("w.pt").write_bytes(content)
    elif content is not None:
        torch.save(content, "w.pt")
    assert message in error(monkeypatch, capsys, "prune", "mine_here:Net", "--weights", "w.pt", "--probe", "x.npy")


@pytest.mark.usefixtures("folder")
def test_names_in_brackets_are_shown_as_they_are(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    weights("w.pt")
    Path("[red]").mkdir()
    prune(monkeypatch, "mine_here:Net", "--weights", "w.pt", "--probe", "x.npy", "-o", "[red]/a[b].safetensors")
    assert "wrote [red]/a[b].safetensors\n" in capsys.readouterr().out


def test_an_installed_command_finds_modules_in_the_folder_it_is_called_in(folder: Path) -> None:
    """A script's own folder is on the path, where an installed command lies, but not the one that it is called in."""
    script = "import sys; sys.path[0] = '/nowhere'; sys.argv[0] = 'splinecut'; from splinecut.cli import main; main()"
    weights("w.pt")
    options = ["prune", "mine_here:Net", "--weights", "w.pt", "--probe", "x.npy"]
    done = subprocess.run([sys.executable, "-c", script, *options], cwd=folder, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
