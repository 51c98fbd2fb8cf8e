"""Programs that hide what they do with their units: each must be cut rightly or left whole, never cut wrongly."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

import splinecut as sc
from splinecut.networks.groups.randomized import Slack, change, close, randomized_copy, run
from splinecut.networks.groups.values import Groups
from splinecut.networks.surgery import cut, mask


def worst(model: nn.Module, groups: Groups, inputs: tuple[Any, ...], draws: int = 4) -> float:
    """How far cut and masked network differ, relative to the largest output, over random keep maps.

    Weights and inputs are random too, and differ from those on which groups are proved.
    """
    model = copy.deepcopy(model).double()
    random = np.random.default_rng(7)
    torch.manual_seed(7)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(torch.randn_like(parameter) / max(1, parameter[0].numel() if parameter.ndim else 1) ** 0.5)
    inputs = tuple(torch.randn(v.shape, dtype=torch.float64) if v.is_floating_point() else v for v in inputs)
    found = 0.0
    for _ in range(draws):
        keep = {group.name: random.random(group.size) < random.uniform(0.2, 0.9) for group in groups}
        keep = {name: kept if kept.any() else np.arange(len(kept)) == 0 for name, kept in keep.items()}
        with mask(model, groups, keep):
            expected = run(model, inputs)
        got = run(cut(model, groups, keep), inputs)
        for a, b in zip(expected, got, strict=True):
            assert a.shape == b.shape
            found = max(found, float((a - b).abs().max() / a.abs().max().clamp_min(1e-300)))
    return found


class Program(nn.Module):
    """Two layers of the same width, what a program makes of them, and a head for it."""

    def __init__(self, how: str, width: int = 36) -> None:
        super().__init__()
        self.how = how
        self.a, self.b = nn.Linear(8, width), nn.Linear(8, width)
        size = {"stack last": 2 * width, "stack first": 2 * width, "cat rows": 2 * width, "cat": 2 * width}
        self.gain = nn.Parameter(torch.zeros(()))
        self.scale = nn.Parameter(torch.full((width,), 1e-6))
        self.o = nn.Linear(size.get(how, width), 3)
        self.aux = nn.Linear(width, 3)
        if how == "zero head":
            nn.init.zeros_(self.o.weight)
            nn.init.zeros_(self.o.bias)

    def forward(self, x: Tensor) -> Any:
        a, b = self.a(x).relu(), self.b(x).relu()
        how = self.how
        if how == "stack last":
            return self.o(torch.stack([a, b], 2).flatten(1))
        if how == "stack first":
            return self.o(torch.stack([a, b], 1).flatten(1))
        if how == "cat rows":
            return self.o(torch.cat([a[:, :, None], b[:, :, None]], 2).flatten(1))
        if how == "cat":
            return self.o(torch.cat([a, b], 1))
        if how == "whole eighths":
            return self.o(a * (a.shape[1] // 8))
        if how in ("root", "zeros", "zero head"):
            return self.o(a * a.shape[-1] ** -0.5)
        if how == "no gain":
            return self.o(b) + self.gain * self.o(a * a.shape[1])
        if how == "small gain":
            return self.o(b * 1.0 + self.scale * (a * a.shape[1]))
        if how == "classes":
            return self.o(a * a.shape[1]).argmax(1)
        if how == "training head":
            return self.o(b) + (self.aux(functional.pad(a, (0, 0))) if self.training else 0.0)
        raise AssertionError(how)


HIDDEN = [
    *("stack last", "stack first", "cat rows", "cat", "whole eighths", "root", "zeros", "zero head"),
    *("no gain", "small gain", "classes"),
]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16, torch.float64])
@pytest.mark.parametrize("how", HIDDEN)
def test_what_a_program_hides_is_cut_rightly_or_left_whole(how: str, dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    model = Program(how).to(dtype)
    x = torch.zeros(4, 8, dtype=dtype) if how == "zeros" else torch.randn(4, 8, dtype=dtype)
    groups = sc.groups(model, x)
    if how.startswith(("stack", "cat")):
        assert groups.n_units == (72 if how == "cat" else 36)
    else:
        assert "a" not in [group.name for group in groups]
        assert "counts" in groups.left_whole["a"]
    assert worst(model, groups, (x,)) < 1e-9 or how == "classes"


def test_whatever_the_width_a_count_of_eighths_is_noticed() -> None:
    for width in range(24, 49):
        torch.manual_seed(0)
        assert "a" not in [group.name for group in sc.groups(Program("whole eighths", width), torch.randn(2, 8))], width


def test_a_layer_that_runs_only_in_training_keeps_what_it_reads() -> None:
    torch.manual_seed(0)
    model = Program("training head")
    ticket = sc.draw(model, torch.randn(4, 8), method="l2", keep=0.5)
    smaller = sc.cut(model, ticket).train()
    assert smaller(torch.randn(4, 8)).shape == (4, 3)


class _Counts(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return x.clone()

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        return gradient.reshape(-1, 32)


def test_a_backward_pass_that_counts_units_is_noticed() -> None:
    class Own(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a, self.b, self.o = nn.Linear(8, 32), nn.Linear(32, 16), nn.Linear(16, 3)

        def forward(self, x: Tensor) -> Tensor:
            return self.o(self.b(_Counts.apply(self.a(x))).relu())

    groups = sc.groups(Own(), torch.randn(2, 8))
    assert [group.name for group in groups] == ["b"]
    assert "train" in groups.left_whole["a"]


def test_outputs_that_cannot_react_are_said_to_prove_nothing() -> None:
    class Deaf(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a, self.o = nn.Linear(4, 8), nn.Parameter(torch.randn(3, 8))

        def forward(self, x: Tensor) -> Tensor:
            return functional.linear(self.a(x).relu(), self.o).argmax(1) * 0

    groups = sc.groups(Deaf(), torch.randn(2, 4))
    assert "do not react" in groups.unproved
    assert "not proved" in str(groups)
    with pytest.warns(sc.UnprovedWarning, match="do not react"):
        ticket = sc.draw(Deaf(), torch.randn(2, 4), method="l2", keep=0.5)
    assert ticket.groups is not None
    assert ticket.groups.unproved


def test_a_network_that_draws_random_numbers_is_left_whole_for_that_reason() -> None:
    class Noisy(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a, self.o = nn.Linear(4, 8), nn.Linear(8, 3)

        def forward(self, x: Tensor) -> Tensor:
            h = self.a(x)
            return self.o(h + torch.randn_like(h))

    groups = sc.groups(Noisy(), torch.randn(2, 4))
    assert len(groups) == 0
    assert "draws random numbers" in groups.left_whole["a"]


def test_two_groups_that_only_together_are_wrong_do_not_cost_the_others() -> None:
    class Pair(nn.Module):
        """The product of two widths is counted: each group alone may be tied to none."""

        def __init__(self) -> None:
            super().__init__()
            self.layers = nn.ModuleList(nn.Linear(8, 8) for _ in range(6))
            self.o = nn.Linear(8, 2)

        def forward(self, x: Tensor) -> Tensor:
            for layer in self.layers:
                x = layer(x).relu()
                if layer is self.layers[2]:
                    x = x * x.shape[1]
            return self.o(x)

    groups = sc.groups(Pair(), torch.randn(2, 8))
    assert [group.name for group in groups] == [f"layers.{i}" for i in (0, 1, 3, 4, 5)]


# Random programs ---------------------------------------------------------------------------------------------------


def _halved(a: Tensor) -> bool:
    return a.shape[-1] % 2 == 0


STEPS: dict[str, tuple[Callable[[Tensor, Tensor], bool], Callable[[Tensor, Tensor], Tensor]]] = {
    "scale": (lambda a, b: True, lambda a, b: a * 1.5),
    "count": (lambda a, b: True, lambda a, b: a * (a.shape[-1] // 4)),
    "root": (lambda a, b: True, lambda a, b: a / a.shape[-1] ** 0.5),
    "pad": (lambda a, b: True, lambda a, b: functional.pad(a, (0, 2))),
    "add": (lambda a, b: a.shape == b.shape, lambda a, b: a + b),
    "stack rows": (lambda a, b: a.shape == b.shape, lambda a, b: torch.stack([a, b], 1).flatten(1, 2)),
    "stack units": (lambda a, b: a.shape == b.shape, lambda a, b: torch.stack([a, b], 2).flatten(2)),
    "stack last": (lambda a, b: a.shape == b.shape, lambda a, b: torch.stack([a, b], -1).flatten(-2)),
    "stack and sum": (lambda a, b: a.shape == b.shape, lambda a, b: torch.stack([a, b], 0).sum(0)),
    "cat batch": (lambda a, b: a.shape == b.shape, lambda a, b: torch.cat([a, b], 0).unflatten(0, (2, -1)).amax(0)),
    "cat rows": (lambda a, b: a.shape[2] == b.shape[2], lambda a, b: torch.cat([a, b], 1)),
    "cat units": (lambda a, b: a.shape[1] == b.shape[1], lambda a, b: torch.cat([a, b], 2)),
    "unbind": (lambda a, b: _halved(a), lambda a, b: torch.mul(*a.unflatten(-1, (2, -1)).unbind(-2))),
    "unbind pairs": (lambda a, b: _halved(a), lambda a, b: torch.mul(*a.unflatten(-1, (-1, 2)).unbind(-1))),
    "unbind rows": (lambda a, b: True, lambda a, b: torch.stack(a.unbind(1)[::-1], 1)),
    "chunk": (lambda a, b: _halved(a), lambda a, b: torch.mul(*a.chunk(2, -1))),
    "interleave": (lambda a, b: _halved(a), lambda a, b: a.unflatten(-1, (2, -1)).transpose(-1, -2).flatten(-2)),
    "merge": (lambda a, b: True, lambda a, b: a.flatten(1).unflatten(-1, (a.shape[1], -1))),
    "mix rows": (lambda a, b: True, lambda a, b: a.transpose(1, 2).flatten(1).unflatten(-1, (a.shape[1], -1))),
    "transpose": (lambda a, b: a.shape[1] == a.shape[2], lambda a, b: a.transpose(1, 2)),
}
"""name -> (whether it can be applied, at full size; what becomes of the first stream)"""


class RandomProgram(nn.Module):
    """Two layers, a random sequence of steps on what they give, a head. The sequence is settled at full size."""

    def __init__(self, seed: int) -> None:
        super().__init__()
        random = np.random.default_rng(seed)
        width, rows = int(random.choice([4, 6, 8, 12])), int(random.choice([2, 3, 4]))
        self.x = torch.randn(4, rows, 5)
        self.a, self.b = nn.Linear(5, width), nn.Linear(5, width)
        self.layers, self.steps = nn.ModuleList(), []
        a, b = self.a(self.x), self.b(self.x)
        for name in random.choice([*STEPS, "layer", "layer", "layer", "swap", "swap"], size=random.integers(2, 8)):
            if name == "layer":
                self.layers.append(nn.Linear(a.shape[-1], width))
            if name in ("layer", "swap") or STEPS[name][0](a, b):
                self.steps.append(str(name))
                a, b = self._step(str(name), len(self.layers) - 1, a, b)
        self.o, self.p = nn.Linear(a.flatten(1).shape[1], 3), nn.Linear(b.flatten(1).shape[1], 3)

    def _step(self, name: str, layer: int, a: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
        if name == "swap":
            return b, a
        return self.layers[layer](a).relu() if name == "layer" else STEPS[name][1](a, b), b

    def forward(self, x: Tensor) -> Tensor:
        a, b, layer = self.a(x).relu(), self.b(x).tanh(), -1
        for name in self.steps:
            layer += name == "layer"
            a, b = self._step(name, layer, a, b)
        return self.o(a.flatten(1)) + self.p(b.flatten(1))


@pytest.mark.parametrize("first", range(0, 200, 20))
def test_random_programs_are_cut_as_they_are_masked_or_left_whole(first: int) -> None:
    n_groups = 0
    for seed in range(first, first + 20):
        torch.manual_seed(seed)
        model = RandomProgram(seed)
        groups = sc.groups(model, model.x)
        n_groups += len(groups)
        assert worst(model, groups, (model.x,)) < 1e-9, (seed, model.steps)
    assert n_groups >= 10


# Copies with random numbers ----------------------------------------------------------------------------------------


def test_a_randomized_copy_has_other_numbers_in_float64_and_leaves_the_network_as_found() -> None:
    model = nn.Sequential(nn.Linear(4, 6), nn.BatchNorm1d(6), nn.ReLU(), nn.Linear(6, 2)).bfloat16()
    nn.init.zeros_(model[3].weight)
    before = copy.deepcopy(model.state_dict())
    spare = randomized_copy(model, (torch.zeros(3, 4, dtype=torch.bfloat16),))
    assert all(torch.equal(value, before[key]) for key, value in model.state_dict().items())
    assert all(p.dtype == torch.float64 and p.abs().min() > 0 for p in spare.model.parameters())
    assert spare.slack.of_value == 1e-12
    assert float(spare.inputs[0].std()) > 0.1


def test_a_network_that_computes_in_single_precision_is_compared_so() -> None:
    class Single(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a, self.o = nn.Linear(4, 32), nn.Linear(32, 3)

        def forward(self, x: Tensor) -> Tensor:
            return self.o(self.a(x).float().exp().to(x.dtype))

    assert randomized_copy(Single(), (torch.randn(2, 4),)).slack.of_value == 1e-5
    assert len(sc.groups(Single(), torch.randn(2, 4))) == 1


def test_flags_and_token_ids_stay_what_they_are() -> None:
    class Tokens(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.table, self.o = nn.Embedding(10, 4), nn.Linear(4, 2)

        def forward(self, ids: Tensor, mask: Tensor) -> Tensor:
            return self.o((self.table(ids) * mask[..., None]).mean(1))

    ids, keep = torch.tensor([[3, 7, 9], [3, 4, 5]]), torch.tensor([[1, 1, 0], [1, 0, 0]])
    spare = randomized_copy(Tokens(), (ids, keep))
    assert spare.inputs[0].dtype == torch.int64
    assert int(spare.inputs[0].min()) >= 3
    assert int(spare.inputs[0].max()) <= 9
    assert torch.equal(spare.inputs[1], keep)


def test_values_are_compared_relative_to_what_the_removal_changes() -> None:
    slack = Slack(1e-3, 1e-9)
    a = torch.tensor([1.0, 1e6], dtype=torch.float64)
    assert close(a, a + 0.0005, slack, change=1.0)
    assert not close(a, a + 0.002, slack, change=1.0)
    assert close(torch.tensor([torch.nan]), torch.tensor([torch.nan]), slack, 1.0)
    assert not close(torch.tensor([1, 2]), torch.tensor([1, 3]), slack, 1.0)
    assert change(a, a + torch.tensor([0.5, torch.inf])) == 0.5


def test_reading_without_proof_says_so() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert "prove=False" in sc.groups(Program("cat"), torch.randn(2, 8), prove=False).unproved
