"""The networks of the benchmark by name, each with its probes and its test inputs.

Probes are different inputs of the training set. Those of CIFAR-10 are disjoint: 2,048 images each, of 16,000 (of the
8,000 that our own networks were trained on). Of photographs there are 256: probes 0, 1 and 2 are random
192 of them, which share 144 as a rule, and probe 3 is all of them. Probes of sentences are disjoint, 256 each.

Choices are made on cifar_resnet20 and EfficientNet-Lite0, with the first half of their test inputs; the second half is
reported. On the others no choice is made, and all test inputs are reported.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import torch
from torch import Tensor

from splinecut.errors import InputError
from splinecut.experiments import spec
from splinecut.networks.inputs import take
from studies.oneshot.sentences import minilm, sentences, tokens
from studies.oneshot.subject import Split, Subject, part
from studies.refit import trained as trained_by
from studies.refit import whole
from studies.support.pretrained_networks import cifar_images, cifar_network, lite0_network, photographs

PROBE = 2048  # images of CIFAR-10
PHOTOGRAPHS, PHOTOGRAPHS_A_PROBE, ALL_PHOTOGRAPHS = 256, 192, 3
SENTENCES = 256  # of a probe, and of the test
CIFAR_TRAIN, CIFAR_TEST, PHOTOGRAPHS_TEST = 16_000, 4_000, 344
CHOSEN_ON = ("cifar_resnet20", "efficientnet_lite0")
KEEPS = (0.9, 0.75, 0.6, 0.5, 0.35)
# What cannot leave costs 0.34 of MiniLM's FLOPs: at 0.35 hardly a unit is left, whatever the criterion.
KEEPS_OF = {"minilm": (0.9, 0.75, 0.6, 0.5)}
EPOCHS = 8  # of our own networks: a few minutes each


def cifar_resnet(depth: int, data_dir: Path, split: Split) -> Subject:
    """A ResNet that others trained on CIFAR-10."""
    images, labels = cifar_images(data_dir, "test", part(range(CIFAR_TEST), split))

    def probe(number: int) -> Tensor:
        return cifar_images(data_dir, "train", _disjoint(CIFAR_TRAIN, PROBE, number))[0]

    return Subject(f"cifar_resnet{depth}", cifar_network(data_dir, depth), probe, images, labels)


def efficientnet_lite0(data_dir: Path, split: Split) -> Subject:
    """EfficientNet-Lite0, trained by others on ImageNet."""
    images, labels = photographs(data_dir, "test", part(range(PHOTOGRAPHS_TEST), split))

    def probe(number: int) -> Tensor:
        order = torch.randperm(PHOTOGRAPHS, generator=torch.Generator().manual_seed(number)).tolist()
        return photographs(data_dir, "train", order if number == ALL_PHOTOGRAPHS else order[:PHOTOGRAPHS_A_PROBE])[0]

    return Subject("efficientnet_lite0", lite0_network(), probe, images, labels)


def trained(name: str, recipe: str, data_dir: Path, cache: Path, split: Split) -> Subject:
    """A network of ours, trained once by a recipe and kept in `cache`."""
    model, dataset = trained_by(whole(spec.load(recipe, [f"training.epochs={EPOCHS}"])), cache, data_dir)
    rows = part(range(len(dataset.test)), split)

    def probe(number: int) -> Tensor:
        return dataset.train.examples(_disjoint(len(dataset.train), PROBE, number))

    return Subject(name, model, probe, dataset.test.examples(list(rows)), dataset.test.targets[list(rows)])


def minilm_sentences(split: Split) -> Subject:
    """MiniLM, trained by others to embed sentences."""
    model, folder = minilm()
    everything = tokens(folder, sentences(5 * SENTENCES))
    order = torch.arange(SENTENCES)

    def probe(number: int) -> tuple[Tensor, ...]:
        rows = torch.tensor(_disjoint(4 * SENTENCES, SENTENCES, number)) + SENTENCES
        return take(everything, rows)

    return Subject("minilm", model, probe, take(everything, torch.tensor(part(order.tolist(), split))), None)


def _disjoint(n_rows: int, size: int, number: int) -> list[int]:
    """The rows of probe `number`: no other probe has any of them."""
    most = n_rows // size
    if not 0 <= number < most:
        raise InputError(f"there are {most} disjoint probes of {size} in {n_rows} rows, got number {number}")
    order = torch.randperm(n_rows, generator=torch.Generator().manual_seed(0))
    return order[number * size : (number + 1) * size].tolist()


Build = Callable[[Path, Path, Split], Subject]
"""(folder of data, folder of our trained networks, split) -> the subject."""

NETWORKS: dict[str, Build] = {
    "cifar_resnet20": lambda data_dir, cache, split: cifar_resnet(20, data_dir, split),
    "cifar_resnet56": lambda data_dir, cache, split: cifar_resnet(56, data_dir, split),
    "efficientnet_lite0": lambda data_dir, cache, split: efficientnet_lite0(data_dir, split),
    "vgg16": lambda data_dir, cache, split: trained("vgg16", "headline-vgg16", data_dir, cache, split),
    "preresnet29": lambda data_dir, cache, split: trained(
        "preresnet29", "headline-preresnet29", data_dir, cache, split
    ),
    "minilm": lambda data_dir, cache, split: minilm_sentences(split),
}


def build(name: str, data_dir: Path, cache: Path, split: Split) -> Subject:
    """The subject of that name; of networks that no choice is made on, all test inputs are reported."""
    if name not in CHOSEN_ON:
        if split == "choose":
            raise InputError(f"choices are made on {' and '.join(CHOSEN_ON)}, not on {name}; use --split report")
        split = "all"
    return NETWORKS[name](data_dir, cache, split)
