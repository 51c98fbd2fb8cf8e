"""ResNets of CIFAR with shortcuts that have no weights: published sizes and names, and the weights of others."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import nn

import splinecut as sc
from splinecut.cli.inputs import with_weights
from splinecut.errors import InputError
from splinecut.networks.cost import forward_flops, parameters
from splinecut.networks.models import build

DATA = os.environ.get("SPLINECUT_DATA")
needs_weights = pytest.mark.skipif(
    not DATA or not (Path(DATA) / "weights").is_dir(), reason="SPLINECUT_DATA names no folder with trained weights"
)


@pytest.mark.parametrize(
    ("depth", "millions", "exact"),
    [(20, 0.27, 269_722), (32, 0.46, 464_154), (44, 0.66, 658_586), (56, 0.85, 853_018), (110, 1.7, 1_727_962)],
)
def test_sizes_are_those_of_the_paper(depth: int, millions: float, exact: int) -> None:
    """Millions: He et al. 2016, Table 6; exact: the table of akamaster/pytorch_resnet_cifar10."""
    model = build(f"cifar_resnet{depth}")
    assert parameters(model) == exact == pytest.approx(1e6 * millions, rel=0.02)
    layers = [m for m in model.modules() if isinstance(m, nn.Conv2d | nn.Linear)]
    assert len(layers) == depth


@pytest.mark.parametrize(("depth", "blocks"), [(20, 3), (56, 9)])
def test_multiply_adds_are_those_of_the_sum_by_hand(depth: int, blocks: int) -> None:
    """A 3x3 convolution of c channels on s x s pixels takes 9 c^2 s^2, the same in all three stages: 16 x 32 = 512.

    Of 2n convolutions a stage, the first of stages 2 and 3 reads half of the channels; then the stem and the head.
    """
    inner = 9 * 512**2 * (3 * 2 * blocks - 2 * 0.5)
    by_hand = inner + 9 * 3 * 16 * 32**2 + 64 * 10
    assert forward_flops(build(f"cifar_resnet{depth}"), (3, 32, 32)) == 2 * by_hand


def test_a_shortcut_subsamples_and_puts_the_channels_between_zeros() -> None:
    block = build("cifar_resnet20", activation="abs").layer2[0].eval()
    with torch.no_grad():
        block.bn2.weight.zero_()  # the branch adds nothing
        x = torch.randn(2, 16, 6, 6)
        out = block(x)
    assert torch.equal(out[:, 8:24], x[:, :, ::2, ::2].abs())
    assert not out[:, :8].any() and not out[:, 24:].any()


@pytest.mark.parametrize("width", [0.01, 0.2, 0.5, 2.0])
def test_any_width_can_be_built_and_cut_inside_its_blocks(width: float) -> None:
    model = build("cifar_resnet8", width=width, seed=0).eval()
    x = torch.randn(4, 3, 16, 16)
    assert model(x).shape == (4, 10)
    groups = sc.groups(model, x, residual="inner")
    assert {group.name for group in groups} == {f"layer{stage}.0.conv1" for stage in (1, 2, 3)}


def test_weights_without_counts_of_batches_load_and_others_are_refused(tmp_path: Path) -> None:
    state = build("cifar_resnet20", seed=1).state_dict()
    bare = {name: value for name, value in state.items() if not name.endswith("num_batches_tracked")}
    save_file(bare, tmp_path / "bare.safetensors")
    torch.save(bare, tmp_path / "bare.pt")
    for file in ("bare.safetensors", "bare.pt"):
        loaded = with_weights(build("cifar_resnet20", seed=2), tmp_path / file).state_dict()
        assert all(torch.equal(loaded[name], value) for name, value in state.items())
    bare.pop("bn1.running_mean")
    save_file(bare, tmp_path / "less.safetensors")
    with pytest.raises(InputError, match="give the state of this very model"):
        with_weights(build("cifar_resnet20"), tmp_path / "less.safetensors")


@needs_weights
@pytest.mark.parametrize(("depth", "accuracy"), [(20, 0.923), (56, 0.937)])
def test_published_weights_have_their_names_and_their_accuracy(depth: int, accuracy: float) -> None:
    from studies.pretrained import accuracy as share_right
    from studies.support.pretrained_networks import cifar_resnet

    file = Path(str(DATA)) / "weights" / f"cifar10-resnet{depth}.safetensors"
    model = build(f"cifar_resnet{depth}")
    assert set(load_file(file)) == {name for name in model.state_dict() if not name.endswith("num_batches_tracked")}
    task = cifar_resnet(Path(str(DATA)), depth, n_probe=1, n_test=400)
    assert share_right(task.model, task) == pytest.approx(accuracy, abs=0.025)  # 400 images: 1.3 points a deviation
