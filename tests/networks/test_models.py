"""Models: what they are made of, how they start, what they refuse."""

from __future__ import annotations

import math
import sys
import types

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import nn

from splinecut.errors import InputError
from splinecut.networks.cost import parameters
from splinecut.networks.models import MODELS, Select, build, check_input, describe

SMALL = {"mlp": {}, "convnet": {"preset": "digits"}, "alexnet": {}, "vgg16": {}, "preresnet11": {}, "cifar_resnet8": {}}
SMALL_IMAGENET = {"resnet18": {"image_size": 32}, "resnet50": {"image_size": 32}}
ACTIVATIONS = ["relu", "leaky_relu", "prelu", "abs", "silu", "gelu"]


def small(name: str, **changes: object) -> nn.Module:
    options = (SMALL | SMALL_IMAGENET)[name] | {"width": 0.1, "seed": 0} | changes
    return build(name, **options)


@pytest.mark.parametrize(
    ("name", "classes", "expected"),
    [
        ("vgg16", 10, 14_724_042),
        ("vgg16", 100, 14_770_212),
        ("preresnet101", 10, 1_054_106),
        ("preresnet101", 100, 1_082_180 - 4_944),
        ("resnet18", 1000, 11_689_512),
        ("resnet50", 1000, 25_557_032),
    ],
)
def test_published_models_have_their_published_parameter_counts(name: str, classes: int, expected: int) -> None:
    assert parameters(build(name, classes=classes)) == expected


def test_the_default_mlp_is_the_fcnet_of_the_paper() -> None:
    model = build("mlp")
    assert [tuple(weight.shape) for weight in model.parameters()] == [(20, 2), (20,), (2, 20), (2,)]


def test_the_default_convnet_is_the_one_of_the_paper() -> None:
    model = build("convnet")
    convolutions = [module for module in model.modules() if isinstance(module, nn.Conv2d)]
    assert [(c.out_channels, c.kernel_size[0], c.bias) for c in convolutions] == [(20, 21, None), (20, 5, None)]
    assert model.classifier.in_features == 20 * 4 * 4


def test_alexnet_has_the_layers_of_the_authors_code() -> None:
    convolutions = [module for module in build("alexnet").modules() if isinstance(module, nn.Conv2d)]
    assert [(c.in_channels, c.out_channels, c.groups) for c in convolutions] == [
        (3, 96, 1), (96, 256, 2), (256, 384, 1), (384, 384, 2), (384, 256, 2),
    ]  # fmt: skip


@pytest.mark.parametrize("name", [*SMALL, *SMALL_IMAGENET])
@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_every_model_runs_with_every_activation(name: str, activation: str) -> None:
    model = small(name, classes=7, activation=activation)
    assert model(torch.randn(2, *model.input_shape)).shape == (2, 7)


@pytest.mark.parametrize("name", [*SMALL, *SMALL_IMAGENET])
def test_every_model_is_exported_whole(name: str) -> None:
    model = small(name).eval()
    x = torch.randn(2, *model.input_shape)
    exported = torch.export.export(model, (x,))
    assert not any(str(node.target).endswith("_.default") for node in exported.graph.nodes), "an in-place operation"
    torch.testing.assert_close(exported.module()(x), model(x))


@pytest.mark.parametrize("name", ["vgg16", "preresnet11"])
def test_cifar_models_start_as_network_slimming_does(name: str) -> None:
    model = build(name, seed=0)
    for module in model.modules():
        if isinstance(module, nn.BatchNorm2d):
            assert (module.weight == 0.5).all()
            assert (module.bias == 0).all()
        if isinstance(module, nn.Conv2d) and module.weight.numel() > 10_000:
            spread = math.sqrt(2 / (module.kernel_size[0] ** 2 * module.out_channels))
            assert module.weight.std().item() == pytest.approx(spread, rel=0.05)


def test_imagenet_models_start_with_unit_batch_norm() -> None:
    norms = [module for module in small("resnet18").modules() if isinstance(module, nn.BatchNorm2d)]
    assert all((norm.weight == 1).all() for norm in norms)


def test_the_strided_convolution_of_a_resnet50_block_is_its_3x3() -> None:
    block = small("resnet50").layer2[0]
    assert (block.conv1.stride, block.conv2.stride) == ((1, 1), (2, 2))


def test_a_seed_alone_decides_the_weights_and_the_global_state_is_left_alone() -> None:
    before = torch.get_rng_state()
    first, second, other = (build("convnet", seed=seed).state_dict() for seed in (3, 3, 4))
    assert torch.equal(before, torch.get_rng_state())
    assert all(torch.equal(first[name], second[name]) for name in first)
    assert not torch.equal(first["features.0.weight"], other["features.0.weight"])


def test_width_multiplies_channels_and_leaves_at_least_one() -> None:
    assert build("vgg16", width=0.25).features[0].out_channels == 16
    assert build("vgg16", width=0.001).features[0].out_channels == 1
    assert build("alexnet", width=0.001)(torch.zeros(2, 3, 32, 32)).shape == (2, 10)


def test_a_selector_is_identity_until_shortened_and_then_survives_saving(tmp_path) -> None:
    select = Select(5)
    x = torch.randn(2, 5, 3, 3)
    assert torch.equal(select(x), x)
    assert parameters(select) == 0
    select.index = torch.tensor([4, 1])
    save_file(select.state_dict(), tmp_path / "select.safetensors")
    fresh = Select(2)
    fresh.load_state_dict(load_file(tmp_path / "select.safetensors"))
    assert torch.equal(fresh(x), x[:, [4, 1]])


@pytest.mark.parametrize("kept", [[0, 1, 2, 3, 4], [1, 4]])
def test_a_selector_keeps_the_layout_of_what_passes_and_of_its_gradient(kept: list[int]) -> None:
    select = Select(5)
    select.index = torch.tensor(kept)
    for layout in (torch.contiguous_format, torch.channels_last):
        x = torch.randn(2, 5, 3, 3).contiguous(memory_format=layout).requires_grad_()
        out = select(x)
        (gradient,) = torch.autograd.grad(out, x, torch.ones_like(out))
        assert torch.equal(out, x[:, kept]) and gradient.sum((0, 2, 3)).tolist() == [18 * (i in kept) for i in range(5)]
        assert out.is_contiguous(memory_format=layout) and gradient.is_contiguous(memory_format=layout)


def test_leaky_slope_is_one_hundredth_unless_asked() -> None:
    slope = lambda model: model[1].negative_slope  # noqa: E731
    assert slope(build("mlp", activation="leaky_relu")) == 0.01
    assert slope(build("mlp", activation="leaky_relu", slope=0.2)) == 0.2


def test_models_fit_other_image_sizes_when_built_for_them() -> None:
    for name, size in [("vgg16", 64), ("convnet", 32), ("preresnet11", 28), ("cifar_resnet8", 28), ("mlp", 8)]:
        model = build(name, in_channels=1, classes=4, width=0.1, image_size=size)
        assert model.input_shape == (1, size, size)
        assert model(torch.zeros(2, 1, size, size)).shape == (2, 4)


def test_an_input_shape_stands_for_channels_and_image_size() -> None:
    assert build("vgg16", width=0.1, input_shape=(1, 64, 64)).input_shape == (1, 64, 64)
    assert build("mlp", input_shape=(5,)).input_shape == (5,)
    with pytest.raises(InputError, match="got \\(3, 32, 30\\)"):
        build("vgg16", input_shape=(3, 32, 30))


@pytest.mark.parametrize(
    ("name", "options", "says"),
    [
        ("vgg61", {}, "did you mean 'vgg16'"),
        ("preresnet100", {}, "use preresnet101"),
        ("cifar_resnet57", {}, "use cifar_resnet56"),
        ("vgg16", {"width": 0}, "width must be in"),
        ("vgg16", {"width": -1.0}, "width must be in"),
        ("vgg16", {"classes": 0}, "classes must be at least 1"),
        ("vgg16", {"image_size": 28}, "vgg16 needs images of side 32"),
        ("alexnet", {"image_size": 18}, "alexnet needs images of side 19"),
        ("convnet", {"image_size": 8}, "kernel 21 does not fit"),
        ("convnet", {"preset": "digit"}, "did you mean 'digits'"),
        ("convnet", {"filters": [8]}, "equally long"),
        ("mlp", {"hidden": [0]}, "at least one unit"),
        ("mlp", {"hiden": [4]}, "did you mean 'hidden'"),
        ("mlp", {"activation": "rellu"}, "did you mean 'relu'"),
        ("mlp", {"activation": "leaky_relu", "slope": 2.0}, "slope must be in"),
        ("no.such.module:make", {}, "cannot import 'no.such.module'"),
        ("math:sqrtt", {}, "did you mean 'sqrt'"),
    ],
)
def test_a_bad_request_is_answered_in_one_line(name: str, options: dict, says: str) -> None:
    with pytest.raises(InputError) as caught:
        build(name, **options)
    assert says in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_users_factory_gets_the_arguments_it_names(monkeypatch) -> None:
    own = types.ModuleType("own_models")
    own.line = lambda classes, depth=1: nn.Sequential(nn.Linear(depth, classes))
    own.text = lambda: "not a module"
    monkeypatch.setitem(sys.modules, "own_models", own)
    assert build("own_models:line", classes=3, width=2.0, depth=5)[0].weight.shape == (3, 5)
    with pytest.raises(InputError, match="did you mean 'depth'"):
        build("own_models:line", classes=3, deph=5)
    with pytest.raises(InputError, match=r"must return a torch\.nn\.Module"):
        build("own_models:text")


def test_a_users_factory_decides_itself_what_nobody_set(monkeypatch) -> None:
    own = types.ModuleType("own_models")
    own.got = lambda width=16, activation="gelu", slope=None: nn.ParameterDict({f"{width} {activation} {slope}": None})
    own.asks = lambda width, activation: nn.ParameterDict({f"{width} {activation}": None})
    monkeypatch.setitem(sys.modules, "own_models", own)
    assert list(build("own_models:got")) == ["16 gelu None"]
    assert list(build("own_models:got", width=128)) == ["128 gelu None"]  # our bound on a factor is not theirs
    assert list(build("own_models:got", width=1.0, activation="relu", slope=0.01)) == ["1.0 relu 0.01"]
    assert list(build("own_models:asks")) == ["1.0 relu"]  # as it was when everything was passed


def test_inputs_of_the_wrong_shape_are_refused_before_the_first_batch() -> None:
    check_input(build("vgg16", width=0.1), (3, 32, 32))
    with pytest.raises(InputError, match="build it with in_channels=1, image_size=28"):
        check_input(build("vgg16", width=0.1), (1, 28, 28))
    with pytest.raises(InputError, match="does not take inputs of shape"):
        check_input(nn.Sequential(nn.Linear(4, 2)), (5,))


def test_every_model_of_the_table_describes_itself() -> None:
    assert all(describe(name).endswith(".") for name in MODELS)
