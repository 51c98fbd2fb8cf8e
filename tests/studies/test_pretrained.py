"""Networks that others have trained: the default must not destroy them. Needs SPLINECUT_DATA."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from splinecut.errors import InputError
from studies import pretrained
from studies.support.pretrained_networks import cifar_resnet, data_folder, efficientnet_lite0

DATA = os.environ.get("SPLINECUT_DATA")


def data() -> Path:
    if not DATA or not (Path(DATA) / "weights").is_dir():
        pytest.skip("SPLINECUT_DATA names no folder with trained weights")
    return Path(DATA)


@pytest.mark.slow
def test_a_trained_resnet_keeps_its_accuracy_at_six_tenths_of_its_flops_without_training() -> None:
    task = cifar_resnet(data(), depth=20, n_probe=48, n_test=1000)
    found = pretrained.results(task, [0.6], ["ours", "random twin"])
    ours, by_chance = found["cuts"]
    assert found["dense"] > 0.91
    assert ours["flops"] == pytest.approx(0.6, abs=0.01) == by_chance["flops"]
    assert ours["accuracy"] > 0.80  # 0.783 in 0.1.0, with statistics of 48 images; 0.811 now
    assert ours["accuracy"] > by_chance["accuracy"]


def test_data_that_are_not_there_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SPLINECUT_DATA", raising=False)
    with pytest.raises(InputError, match="--data-dir"):
        data_folder(None)
    for build in (cifar_resnet, efficientnet_lite0):
        with pytest.raises(InputError, match=r"does not exist|not installed"):
            build(tmp_path)
