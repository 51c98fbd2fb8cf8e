"""The promises of a pruning method, as a check that its author can run: `check_method(MyMethod)`.

As scikit-learn's `check_estimator`: it returns nothing where all promises hold, and raises `BrokenPromise` naming the
first one that does not. It takes a few seconds on a small network with random weights.
"""

from __future__ import annotations

import json
import pickle
from collections.abc import Callable
from dataclasses import asdict, is_dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from splinecut.errors import InputError
from splinecut.networks.groups.read import groups as read_groups
from splinecut.pruning.budget import Budget
from splinecut.pruning.draw_ticket import ticket_from_evidence
from splinecut.pruning.evidence import NO_GROUPS, Evidence
from splinecut.pruning.method import Method
from splinecut.pruning.methods.catalogue import method_name

KEEP = 0.6


class BrokenPromise(AssertionError):
    """A method does not do what every method promises; the message names the promise and what was seen."""


def check_method(method: type[Method] | Method) -> None:
    """Raises BrokenPromise for the first promise that `method`, a class with defaults or a value, does not keep.

    A value: a frozen dataclass that can be pickled, its options plain JSON. A score: one finite number for each unit,
    the same for the same evidence, and nothing of the network or the random state changed by it. Permuting the units
    permutes the scores, unless the method says that it is random. The selection keeps exactly what the budget says.
    """
    value = _value(method)
    if value.has_search:
        raise InputError(f"{type(value).__name__} scores after a search of its own; run it in a small recipe instead")
    evidence, budget = _evidence(value), Budget(KEEP, value.units)
    before = _state(evidence.model)
    scores = _scores(value, evidence, budget)
    _check_untouched(before, _state(evidence.model))
    _check_shapes(scores, _sizes(value, evidence))
    _check_repeats(scores, _scores(value, evidence, budget))
    if value.units == "channels" and not value.is_random:
        _check_permuted(value, evidence, budget, scores)
    _check_count(value, evidence, budget)


def _value(method: type[Method] | Method) -> Method:
    kind = method if isinstance(method, type) else type(method)
    _promise(issubclass(kind, Method), "derives from splinecut.pruning.Method", kind.__name__)
    is_frozen = is_dataclass(kind) and kind.__dataclass_params__.frozen  # type: ignore[attr-defined]
    own = [
        name
        for name in vars(kind).get("__annotations__", {})
        if "ClassVar" not in str(vars(kind)["__annotations__"][name])
    ]
    is_declared = "__dataclass_params__" in vars(kind) or not own
    _promise(is_frozen and is_declared, "is a frozen dataclass", f"{kind.__name__} is not decorated so")
    value = _tried(kind, "can be made without arguments") if isinstance(method, type) else method
    options = _tried(lambda: json.dumps(asdict(value)), "has options that are plain JSON")
    again = _tried(lambda: pickle.loads(pickle.dumps(value)), "can be pickled, for the workers of a sweep")
    _promise(json.dumps(asdict(again)) == options, "is the same after pickling", f"{again} instead of {value}")
    return value


def _evidence(method: Method) -> Evidence:
    """A small convolutional network with random statistics, and a probe with labels."""
    torch.manual_seed(0)
    model = _network()
    probe = torch.randn(48, 3, 8, 8)
    groups = NO_GROUPS if method.units == "weights" else read_groups(model, probe, method.residual)
    return Evidence(model, groups, probe, 0, torch.arange(48) % 4)


def _network() -> nn.Module:
    layers = [nn.Conv2d(3, 8, 3, padding=1, bias=False), nn.BatchNorm2d(8), nn.ReLU(), nn.Conv2d(8, 12, 3)]
    model = nn.Sequential(
        *layers, nn.BatchNorm2d(12), nn.ReLU(), nn.AdaptiveAvgPool2d(2), nn.Flatten(), nn.Linear(48, 4)
    )
    for module in model.modules():
        if isinstance(module, nn.BatchNorm2d):
            nn.init.uniform_(module.weight, 0.5, 1.5)
            nn.init.normal_(module.bias)
    return model.eval()


def _scores(method: Method, evidence: Evidence, budget: Budget) -> dict[str, np.ndarray]:
    scores = _tried(lambda: method.score(evidence, budget), "scores a small convolutional network")
    _promise(isinstance(scores, dict), "gives scores as a dict, name -> numbers", type(scores).__name__)
    return {name: np.asarray(value) for name, value in scores.items()}


def _sizes(method: Method, evidence: Evidence) -> dict[str, tuple[int, ...]]:
    if method.units == "channels":
        return {group.name: (group.size,) for group in evidence.groups}
    return {}  # which weights are prunable is the method's own choice


def _check_shapes(scores: dict[str, np.ndarray], sizes: dict[str, tuple[int, ...]]) -> None:
    for name, shape in sizes.items():
        _promise(name in scores, "scores every group", f"{name} is missing")
        _promise(scores[name].shape == shape, "gives one number for each unit", f"{name}: {scores[name].shape}")
    for name, value in scores.items():
        _promise(bool(np.isfinite(value).all()), "gives finite scores", f"{name}: {value[~np.isfinite(value)][:3]}")


def _check_repeats(first: dict[str, np.ndarray], second: dict[str, np.ndarray]) -> None:
    is_same = first.keys() == second.keys() and all(np.array_equal(first[name], second[name]) for name in first)
    _promise(is_same, "scores the same evidence alike; randomness comes from evidence.seed", "two calls differ")


def _check_untouched(before: dict[str, Any], after: dict[str, Any]) -> None:
    for name, value in before.items():
        is_same = torch.equal(value, after[name]) if isinstance(value, Tensor) else value == after[name]
        _promise(is_same, "leaves the network and the random state as found", f"{name} changed")


def _check_permuted(method: Method, evidence: Evidence, budget: Budget, scores: dict[str, np.ndarray]) -> None:
    """Reverses the channels of the first convolution, and of all that goes with them."""
    model = _network()
    model.load_state_dict(evidence.model.state_dict())
    group = evidence.groups[0]
    with torch.no_grad():
        for member in group.members:
            tensor = dict(model.named_parameters()).get(member.key, dict(model.named_buffers()).get(member.key))
            assert tensor is not None
            tensor.copy_(tensor.flip(member.axis))
    other = Evidence(model, evidence.groups, evidence.probe, evidence.seed, evidence.labels)
    permuted = _scores(method, other, budget)[group.name]
    scale = max(float(np.abs(scores[group.name]).max()), np.finfo(float).tiny)
    is_close = np.allclose(permuted[::-1], scores[group.name], rtol=1e-3, atol=1e-3 * scale)
    _promise(is_close, "scores a unit whatever its place; set is_random otherwise", f"{group.name} scored otherwise")


def _check_count(method: Method, evidence: Evidence, budget: Budget) -> None:
    name = method_name(type(method))
    ticket = _tried(lambda: ticket_from_evidence(evidence, name, method, budget), "selects within a budget")
    kept, total = ticket.achieved.kept, ticket.achieved.of
    wanted = round(KEEP * total)
    _promise(kept == wanted, "keeps exactly the share it is asked for", f"{kept} of {total}, expected {wanted}")


def _state(model: nn.Module) -> dict[str, Any]:
    state: dict[str, Any] = {f"weights {name}": tensor.clone() for name, tensor in model.state_dict().items()}
    state |= {f"gradient {name}": p.grad is None for name, p in model.named_parameters()}
    state |= {f"mode {name}": module.training for name, module in model.named_modules()}
    return {**state, "random state of torch": torch.get_rng_state()}


def _tried(act: Callable[[], Any], promise: str) -> Any:
    try:
        return act()
    except Exception as error:  # the author's code: whatever it raises breaks the promise
        raise BrokenPromise(f"a method {promise}; it raised {type(error).__name__}: {error}") from error


def _promise(holds: bool, promise: str, seen: str) -> None:
    if not holds:
        raise BrokenPromise(f"a method {promise}; {seen}")
