"""`splinecut prune` on a network of a user's own."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

import splinecut as sc
from splinecut import cli
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
        (["convnet", "--weights", "none.safetensors", "--data", "digits"], "cannot load weights from none.safetensors"),
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
