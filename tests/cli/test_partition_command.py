"""`splinecut partition`: from a name on the command line to a partition on disk and a picture beside it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import save_file
from typer.testing import CliRunner

from splinecut.cli.app import app
from splinecut.errors import InputError
from splinecut.geometry.partition import Partition, subdivide
from splinecut.geometry.slices import Slice
from splinecut.networks.models import build
from splinecut.networks.trace import trace


def call(*arguments: str | Path) -> str:
    result = CliRunner().invoke(app, ["partition", *map(str, arguments)], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.output


def test_a_model_by_name_gives_the_partition_and_its_picture(tmp_path: Path) -> None:
    said = call("mlp", "--slice", "square:2", "-o", tmp_path / "cut.npz", "--picture", "svg", "--fill", "class")
    expected = subdivide(trace(build("mlp", seed=0).eval(), torch.zeros(1, 2)), Slice.square(2.0))
    found = Partition.load(tmp_path / "cut.npz")
    assert len(found) == len(expected) > 10
    assert (tmp_path / "cut.svg").read_text().startswith("<?xml")
    assert f"{len(found)}" in said


def test_weights_and_points_are_read_from_files(tmp_path: Path) -> None:
    net = build("mlp", seed=5)
    save_file(net.state_dict(), tmp_path / "net.safetensors")
    points = np.random.default_rng(0).normal(size=(3, 2))
    np.save(tmp_path / "points.npy", points)
    options = ("--weights", tmp_path / "net.safetensors", "--points", tmp_path / "points.npy", "--picture", "none")
    call("mlp", "--slice", "through:0,1,2", "--margin", "0.5", "-o", tmp_path / "a.npz", *options)
    expected = subdivide(trace(net.eval(), torch.zeros(1, 2)), Slice.through(*points, margin=0.5))
    assert len(Partition.load(tmp_path / "a.npz")) == len(expected)
    assert sorted(file.name for file in tmp_path.iterdir()) == ["a.npz", "net.safetensors", "points.npy"]


def test_a_recipe_is_cut_on_the_plane_of_its_test_images(tmp_path: Path) -> None:
    call("demo-digits", "--untrained", "--slice", "span:0,1", "-o", tmp_path / "digits.npz", "--picture", "none")
    found = Partition.load(tmp_path / "digits.npz")
    assert found.slice.input_shape == (1, 8, 8)
    assert len(found) > 100


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["demo-digits", "--slice", "span:0,1", "--runs", "nowhere"], r"no trained weights at .*or pass --untrained"),
        (["mlp", "--slice", "sqare:1"], "unknown slice 'sqare'; did you mean 'square'"),
        (["mlp", "--slice", "square:one"], "expected --slice square:HALF_WIDTH"),
        (["mlp", "--slice", "span:0,1"], "span needs inputs to refer to"),
        (["convnet", "--slice", "square:1"], "square needs inputs that are vectors"),
        (["mpl"], "unknown model 'mpl'; did you mean 'mlp'"),
        (["mlp", "--fill", "pastle"], "did you mean 'pastel'"),
        (["mlp", "--picture", "gif"], "unknown picture 'gif'"),
        (["mlp", "--weights", "nowhere.safetensors"], r"there is no nowhere\.safetensors"),
        (["mlp", "--points", "nowhere.npy", "--slice", "span:0,1"], r"cannot read inputs from nowhere\.npy"),
    ],
)
def test_what_cannot_be_done_is_said_in_one_line(arguments: list[str], message: str) -> None:
    with pytest.raises(InputError, match=message) as error:
        call(*arguments)
    assert "\n" not in str(error.value)
