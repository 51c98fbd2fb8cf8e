"""The table of models, and `build`, which makes one of them or a user's own from a name."""

from __future__ import annotations

import contextlib
import inspect
import re
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import torch
from torch import nn

from splinecut.errors import InputError, SplinecutError, unknown
from splinecut.networks.models.activations import activation_named
from splinecut.networks.models.alexnet import alexnet
from splinecut.networks.models.cifar_resnet import cifar_resnet
from splinecut.networks.models.convnet import convnet
from splinecut.networks.models.mlp import mlp
from splinecut.networks.models.preresnet import preresnet
from splinecut.networks.models.resnet import resnet18, resnet50
from splinecut.networks.models.vgg import vgg16
from splinecut.object_loading import load_object, one_line

Factory = Callable[..., nn.Module]

MODELS: dict[str, Factory] = {
    "mlp": mlp,
    "convnet": convnet,
    "alexnet": alexnet,
    "vgg16": vgg16,
    "preresnet101": preresnet,
    "cifar_resnet20": partial(cifar_resnet, depth=20),
    "cifar_resnet32": partial(cifar_resnet, depth=32),
    "cifar_resnet44": partial(cifar_resnet, depth=44),
    "cifar_resnet56": partial(cifar_resnet, depth=56),
    "cifar_resnet110": partial(cifar_resnet, depth=110),
    "resnet18": resnet18,
    "resnet50": resnet50,
}


def build(
    name: str,
    classes: int | None = None,
    in_channels: int | None = None,
    width: float | None = None,
    activation: str | None = None,
    *,
    slope: float | None = None,
    image_size: int | None = None,
    input_shape: tuple[int, ...] | None = None,
    seed: int | None = None,
    **options: Any,
) -> nn.Module:
    """The model called `name`: one of MODELS, or a user's own `package.module:factory`.

    `preresnet<9n+2>` and `cifar_resnet<6n+2>` have any such depth.

    Left out, `classes` and `in_channels` are the model's own (10 and 3; mlp 2 and 2; convnet 10 and 1), and so is
    `image_size`, the side of the images it takes; `input_shape`, (channels, height, width) or (features,), says both.
    `width` (1.0) multiplies every channel count; `activation` is relu if left out, `slope` (0.01) is leaky_relu's.
    With a `seed` the weights depend on nothing else and the global random state is left alone; without one they
    are drawn from it. The other `options` are the model's own: `hidden` (mlp), `preset`, `filters`, `kernels`,
    `strides`, `paddings` (convnet). The model's `input_shape` says what it takes.

    A user's factory gets those of the arguments above that were given and that it names (`activation` as a string),
    and all options. What was left out it decides itself: its `width` may well count channels.
    """
    if input_shape is not None:
        in_channels, image_size = _channels_and_side(input_shape)
    sizes = {"classes": classes, "in_channels": in_channels, "image_size": image_size}
    given: dict[str, Any] = {key: value for key, value in sizes.items() if value is not None}
    for key, value in given.items():
        if value < 1:
            raise InputError(f"{key} must be at least 1, got {value}")
    usual: dict[str, Any] = {"width": 1.0, "activation": "relu", "slope": 0.01}
    chosen: dict[str, Any] = {"width": width, "activation": activation, "slope": slope}
    set_ = {key: value for key, value in chosen.items() if value is not None}
    if ":" in name:
        factory = load_object(name, "model")
        shape = {"input_shape": input_shape} if input_shape else {}
        arguments = _accepted(factory, {**given, **shape, **set_})
        arguments = {**{key: usual[key] for key in usual if _is_required(factory, key)}, **arguments}
    else:
        factory = _factory(name)
        arguments = {**given, **_for_our_models(**{**usual, **set_})}
    for option in options.keys() - _accepted(factory, options).keys():
        raise unknown(f"option of {name}", option, inspect.signature(factory).parameters)
    with _random_state(seed):
        model = _called(name, factory, {**arguments, **options})
    if not isinstance(model, nn.Module):
        raise InputError(f"{name} must return a torch.nn.Module, got {type(model).__name__}; return the model itself")
    return model


def _for_our_models(width: float, activation: str, slope: float) -> dict[str, Any]:
    if not 0 < width <= 64:
        raise InputError(f"width must be in (0, 64], got {width}; 1.0 is the model as published")
    return {"width": width, "activation": activation_named(activation, slope)}


def _called(name: str, factory: Factory, arguments: dict[str, Any]) -> nn.Module:
    """What the factory makes; whatever a user's own raises is said in one line, with the call that raised it."""
    try:
        return factory(**arguments)
    except SplinecutError:
        raise
    except Exception as error:
        if ":" not in name:
            raise  # a mistake of ours, which its traceback explains best
        call = f"{name}({', '.join(f'{key}={value!r}' for key, value in arguments.items())})"
        raise InputError(f"{call} failed: {one_line(error)}; give its arguments with --set model.KEY=VALUE") from error


def describe(name: str) -> str:
    """One line on the model of that name in MODELS."""
    factory = MODELS[name]
    plain = factory.func if isinstance(factory, partial) else factory  # a partial's own docstring is Python's
    return (inspect.getdoc(plain) or "").splitlines()[0]


def check_input(model: nn.Module, shape: tuple[int, ...]) -> None:
    """Raises InputError where `model` does not take inputs of `shape`, (channels, height, width) or (features,).

    A model without an `input_shape` of its own is tried on a tensor that has a shape but no data.
    """
    takes = getattr(model, "input_shape", None)
    if takes is None:
        from splinecut.networks.cost import cost

        cost(model, shape)
    elif tuple(takes) != tuple(shape):
        remedy = f"build it with in_channels={shape[0]}" + (f", image_size={shape[-1]}" if len(shape) > 1 else "")
        raise InputError(f"{type(model).__name__} takes inputs of shape {tuple(takes)}, got {tuple(shape)}; {remedy}")


def _channels_and_side(input_shape: tuple[int, ...]) -> tuple[int, int | None]:
    channels, *sides = input_shape
    if len(sides) not in (0, 2) or len(set(sides)) > 1:
        raise InputError(
            f"input_shape must be (features,) or (channels, side, side), got {input_shape}; crop to squares"
        )
    return channels, sides[0] if sides else None


def _factory(name: str) -> Factory:
    if name in MODELS:
        return MODELS[name]
    for family, factory in (("preresnet", preresnet), ("cifar_resnet", cifar_resnet)):
        if depth := re.fullmatch(rf"{family}(\d+)", name):
            return partial(factory, depth=int(depth[1]))
    raise unknown(
        "model", name, MODELS, remedy="or preresnet<9n+2>, cifar_resnet<6n+2>, or your own package.module:factory"
    )


def _accepted(factory: Factory, arguments: dict[str, Any]) -> dict[str, Any]:
    """Those of `arguments` that `factory` has a parameter for; all of them where it takes `**keywords`."""
    taken = inspect.signature(factory).parameters
    takes_all = any(parameter.kind is parameter.VAR_KEYWORD for parameter in taken.values())
    return {name: value for name, value in arguments.items() if takes_all or name in taken}


def _is_required(factory: Factory, name: str) -> bool:
    """Whether the factory has such a parameter and no value of its own for it."""
    parameter = inspect.signature(factory).parameters.get(name)
    return parameter is not None and parameter.default is parameter.empty


@contextlib.contextmanager
def _random_state(seed: int | None) -> Iterator[None]:
    if seed is None:
        yield
        return
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        yield
