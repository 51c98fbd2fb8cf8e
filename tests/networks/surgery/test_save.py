"""Cut networks written and read again, and exported to ONNX."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

import splinecut as sc
from splinecut.networks.groups.values import BLOCKS
from splinecut.networks.surgery import cut
from support.coupled_networks import draw, make, read


@pytest.mark.parametrize("residual", ["tied", "select"])
@pytest.mark.parametrize("name", ["alexnet", "mobilenetv2", "recurring", "group-norm", "convnext", "preresnet11"])
def test_a_fresh_network_is_cut_to_fit_on_loading(name: str, residual: str, tmp_path: Path) -> None:
    model, x = make(name)
    smaller = cut(model, read(name, residual), draw(read(name, residual)))
    sc.save(smaller, tmp_path / "small.safetensors")
    again = sc.load(tmp_path / "small.safetensors", make(name, seed=7)[0])
    assert torch.equal(again(x), smaller(x))
    assert str(again) == str(smaller)
    assert [p.shape for p in again.parameters()] == [p.shape for p in smaller.parameters()]


def test_dropped_branches_stay_dropped(tmp_path: Path) -> None:
    model, x = make("resnet18")
    smaller = cut(model, read("resnet18"), draw(read("resnet18")) | {BLOCKS: np.arange(8) % 3 > 0})
    sc.save(smaller, tmp_path / "small.safetensors")
    assert torch.equal(sc.load(tmp_path / "small.safetensors", make("resnet18", seed=7)[0])(x), smaller(x))


def test_tied_parameters_are_tied_after_loading(tmp_path: Path) -> None:
    smaller = cut(make("recurring")[0], read("recurring"), draw(read("recurring")))
    sc.save(smaller, tmp_path / "small.safetensors")
    again = sc.load(tmp_path / "small.safetensors", make("recurring", seed=7)[0])
    assert again.twin_a.weight is again.twin_b.weight


def test_loading_takes_precision_and_mode_from_the_network_given(tmp_path: Path) -> None:
    model, _ = make("mlp")
    sc.save(model, tmp_path / "mlp.safetensors")
    given = make("mlp", torch.float64, seed=7)[0].train()
    given[0].weight.requires_grad_(False)
    again = sc.load(tmp_path / "mlp.safetensors", given)
    assert again.training
    assert again[0].weight.dtype is torch.float64
    assert not again[0].weight.requires_grad
    assert torch.equal(again[0].weight, model[0].weight.double())
    assert not torch.equal(given[0].weight, again[0].weight)


def test_files_that_do_not_fit_are_refused_with_a_remedy(tmp_path: Path) -> None:
    sc.save(make("vgg16")[0], tmp_path / "full.safetensors")
    smaller = cut(make("vgg16")[0], read("vgg16"), draw(read("vgg16")))
    with pytest.raises(sc.InputError, match="before any cut"):
        sc.load(tmp_path / "full.safetensors", smaller)
    with pytest.raises(sc.InputError, match="another architecture"):
        sc.load(tmp_path / "full.safetensors", make("mlp")[0])
    (tmp_path / "broken.safetensors").write_bytes(b"nonsense")
    with pytest.raises(sc.InputError, match=r"write it with sc\.save"):
        sc.load(tmp_path / "broken.safetensors", make("mlp")[0])
    with pytest.raises(sc.InputError, match="cannot be read"):
        sc.load(tmp_path / "absent.safetensors", make("mlp")[0])


@pytest.mark.parametrize("name", ["convnet", "preresnet11"])
def test_onnxruntime_computes_what_the_cut_network_does(name: str, tmp_path: Path) -> None:
    onnxruntime = pytest.importorskip("onnxruntime", reason="the extra splinecut[onnx] is not installed")
    pytest.importorskip("onnxscript", reason="the extra splinecut[onnx] is not installed")
    from splinecut.integrations.onnx import export

    residual = "select" if name == "preresnet11" else "tied"
    model, x = make(name)
    smaller = cut(model, read(name, residual), draw(read(name, residual)))
    smaller.train()
    export(smaller, x[:1], tmp_path / "small.onnx")
    assert smaller.training
    session = onnxruntime.InferenceSession(tmp_path / "small.onnx", providers=["CPUExecutionProvider"])
    (got,) = session.run(None, {session.get_inputs()[0].name: x.numpy()})
    assert np.allclose(got, smaller.eval()(x).detach().numpy(), atol=1e-5)


def test_an_onnx_file_must_be_named_so(tmp_path: Path) -> None:
    from splinecut.integrations.onnx import export

    with pytest.raises(sc.InputError, match=r"use small\.onnx"):
        export(*make("mlp"), tmp_path / "small.pt")
