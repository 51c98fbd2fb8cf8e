"""Programs and inputs found by an adversary: each was cut wrongly, counted wrongly or ended in a raw exception."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

import splinecut as sc
from splinecut.networks.cost import cost
from splinecut.networks.groups.values import Groups
from splinecut.networks.surgery import cut, mask


class Fn(nn.Module):
    """A network whose forward pass is `f(self, *inputs)`; tensors that are no parameters become buffers."""

    def __init__(self, f: Callable[..., Any], **parts: Any) -> None:
        super().__init__()
        self.f = f
        for name, part in parts.items():
            is_buffer = isinstance(part, Tensor) and not isinstance(part, nn.Parameter)
            self.register_buffer(name, part) if is_buffer else setattr(self, name, part)

    def forward(self, *inputs: Any) -> Any:
        return self.f(self, *inputs)


@pytest.fixture
def x() -> Tensor:
    torch.manual_seed(0)
    return torch.randn(4, 8, dtype=torch.float64)


def net(f: Callable[..., Any], **parts: Any) -> nn.Module:
    return Fn(f, **parts).double().eval()


def apart(model: nn.Module, x: Tensor, groups: Groups, keep: dict[str, np.ndarray]) -> float:
    with torch.no_grad():
        small = cut(model, groups, keep)(x)
        with mask(model, groups, keep):
            masked = model(x)
    return float((small - masked).abs().max() / masked.abs().max())


def names(groups: Groups) -> list[str]:
    return [group.name for group in groups]


# Silently wrong ----------------------------------------------------------------------------------------------------


def test_groups_of_one_module_have_names_of_their_own(x: Tensor) -> None:
    class Two(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.w1, self.w2 = nn.Parameter(torch.randn(8, 32)), nn.Parameter(torch.randn(32, 16))

        def forward(self, x: Tensor) -> Tensor:
            return ((x @ self.w1).relu() @ self.w2).relu()

    model = nn.Sequential(Two(), nn.Linear(16, 3)).double()
    groups = sc.groups(model, x)
    assert names(groups) == ["0.w1", "0.w2"]
    ticket = sc.draw(model, x, method="l2", keep=0.5)
    assert (ticket.achieved.kept, ticket.achieved.of) == (24, 48)
    assert apart(model, x, groups, dict(ticket.keep)) < 1e-12


def test_a_ticket_is_refused_where_a_list_of_channels_differs(x: Tensor) -> None:
    def build(seed: int) -> nn.Module:
        torch.manual_seed(seed)
        order = torch.randperm(16)
        return net(
            lambda s, x: s.c(s.a(x).relu().index_select(1, s.order)),
            a=nn.Linear(8, 16),
            c=nn.Linear(16, 3),
            order=order,
        )

    ticket = sc.draw(build(0), x, method="l2", keep=0.5)
    with pytest.raises(sc.InputError, match="order lists other channels"):
        sc.cut(build(1), ticket)
    assert sc.cut(build(0), ticket)(x).shape == (4, 3)


def test_parameters_over_one_memory_stay_whole(x: Tensor) -> None:
    model = net(lambda s, x: s.o(s.c(s.b(x).relu()).relu()), b=nn.Linear(8, 8), c=nn.Linear(8, 8), o=nn.Linear(8, 3))
    model.c.weight.data = model.b.weight.data
    groups = sc.groups(model, x)
    assert names(groups) == []
    assert "shares its memory" in groups.left_whole["b"]


def test_large_constants_in_the_output_hide_nothing(x: Tensor) -> None:
    def masked(s: Any, x: Tensor) -> Tensor:
        h = s.a(x).relu()
        y = s.c(h) / h.shape[1] ** 0.5
        return y.masked_fill(torch.tensor([True, False, False]), torch.finfo(y.dtype).min)

    assert names(sc.groups(net(masked, a=nn.Linear(8, 32), c=nn.Linear(32, 3)), x)) == []


def test_counting_in_train_mode_alone_is_noticed(x: Tensor) -> None:
    def f(s: Any, x: Tensor) -> Tensor:
        h = s.a(x).relu()
        return s.c(h * h.shape[1] if s.training else h)

    groups = sc.groups(net(f, a=nn.Linear(8, 32), c=nn.Linear(32, 3)), x)
    assert "train mode" in groups.left_whole["a"]


def test_a_layer_that_stops_at_one_unit_hides_no_other(x: Tensor) -> None:
    def f(s: Any, x: Tensor) -> Tensor:
        h = s.a(x).relu()
        return s.c(s.b(h * min(h.shape[1], 8)).relu().unsqueeze(1).squeeze())

    model = net(f, a=nn.Linear(8, 128), b=nn.Linear(128, 16), c=nn.Linear(16, 3))
    assert names(sc.groups(model, x)) == ["b"]


# FLOPs -------------------------------------------------------------------------------------------------------------


def test_buffers_used_as_weights_are_counted() -> None:
    blur = torch.ones(8, 1, 3, 3) / 9
    model = Fn(
        lambda s, x: s.c(functional.conv2d(s.a(x), s.blur, groups=s.blur.shape[0]).mean((2, 3))),
        a=nn.Conv2d(3, 8, 3),
        blur=blur,
        c=nn.Linear(8, 2),
    )
    image = torch.randn(2, 3, 8, 8)
    groups = sc.groups(model, image)
    assert groups.flops() == cost(model, image).flops == 2 * (36 * 8 * 27 + 16 * 8 * 9 + 8 * 2)
    ticket = sc.draw(model, image, method="l2", keep=0.5)
    assert ticket.achieved.flops == cost(sc.cut(model, ticket), image).flops


def test_one_row_for_all_inputs_and_nested_arguments_are_counted_for_one_input(x: Tensor) -> None:
    model = net(
        lambda s, x, t: s.c((s.a(x) + s.t(t[:, None])).relu()),
        a=nn.Linear(8, 32),
        t=nn.Linear(1, 32),
        c=nn.Linear(32, 3),
    )
    assert sc.groups(model, (x, torch.ones(1).double())).flops() == 2 * (8 * 32 + 32 + 32 * 3)
    model = net(lambda s, x, d: s.c(s.a(x).relu() * d["k"]), a=nn.Linear(8, 32), c=nn.Linear(32, 3))
    assert sc.groups(model, (x, {"k": x[:, :1]})).flops() == 2 * (8 * 32 + 32 * 3)


# Raw exceptions, and refusals without need -------------------------------------------------------------------------


@pytest.mark.parametrize(
    "norm", [nn.InstanceNorm2d(8), nn.BatchNorm2d(8, affine=False), nn.GroupNorm(4, 8, affine=False)]
)
def test_norms_without_weights_are_saved_and_loaded(norm: nn.Module, tmp_path: Path) -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv2d(3, 8, 3), norm, nn.Conv2d(8, 6, 1), nn.ReLU(), nn.Conv2d(6, 2, 1)).eval()
    image = torch.randn(2, 3, 6, 6)
    small = sc.cut(model, sc.draw(model, image, method="l2", keep=0.6))
    again = sc.load(sc.save(small, tmp_path / "small.safetensors"), model)
    assert torch.equal(again(image), small(image))


def _autocast(s: Any, x: Tensor) -> Tensor:
    with torch.autocast("cpu", enabled=False):
        h = s.a(x)
    return s.c(s.b(h).relu())


READ = {
    "autocast": _autocast,
    "vmap": lambda s, x: s.c(s.b(torch.vmap(s.a)(x)).relu()),
    "cropping pad": lambda s, x: s.c(s.b(functional.pad(functional.pad(s.a(x), (0, -4)), (0, 4))).relu()),
    "comparison": lambda s, x: s.c(s.b(s.a(x) * (s.a(x) > 0))),
    "masked fill": lambda s, x: s.c(s.b(s.a(x).masked_fill(s.a(x) < 0, 0.0))),
}


@pytest.mark.parametrize("how", READ)
def test_programs_of_others_are_read_and_cut_rightly(how: str, x: Tensor) -> None:
    torch.manual_seed(0)
    model = net(READ[how], a=nn.Linear(8, 16), b=nn.Linear(16, 12), c=nn.Linear(12, 3))
    groups = sc.groups(model, x)
    assert "b" in names(groups)
    assert ("a" in names(groups)) == (how in ("comparison", "masked fill"))
    keep = {group.name: np.random.default_rng(0).random(group.size) < 0.6 for group in groups}
    assert apart(model, x, groups, keep) < 1e-12


def test_one_dimensional_token_ids_are_a_batch() -> None:
    model = Fn(
        lambda s, u, i: s.c((s.u(u) * s.i(i)).relu()), u=nn.Embedding(9, 8), i=nn.Embedding(9, 8), c=nn.Linear(8, 1)
    )
    assert len(sc.groups(model, (torch.tensor([1, 2, 3]), torch.tensor([4, 5, 6])))) == 1


@pytest.mark.parametrize("norm", [nn.LayerNorm(20), nn.RMSNorm(20)])
def test_a_norm_over_two_groups_side_by_side_is_masked_as_it_is_cut(norm: nn.Module, x: Tensor) -> None:
    torch.manual_seed(0)
    model = net(
        lambda s, x: s.c(s.n(torch.cat([s.a(x), s.b(x)], 1)).relu()),
        a=nn.Linear(8, 12),
        b=nn.Linear(8, 8),
        n=norm,
        c=nn.Linear(20, 3),
    )
    groups = sc.groups(model, x)
    assert names(groups) == ["a", "b"]
    assert apart(model, x, groups, {"a": np.arange(12) % 3 > 0, "b": np.arange(8) % 2 > 0}) < 1e-12


def test_an_example_that_requires_gradients_is_read_all_the_same(x: Tensor) -> None:
    model = net(lambda s, x: s.c(s.a(x).relu()), a=nn.Linear(8, 16), c=nn.Linear(16, 3))
    assert names(sc.groups(model, x.clone().requires_grad_())) == ["a"]


def test_what_cannot_be_read_is_refused_in_a_line(x: Tensor) -> None:
    with pytest.raises(sc.InputError, match="has no shape yet"):
        sc.draw(nn.Sequential(nn.LazyLinear(8), nn.Linear(8, 2)), x.float(), method="l2", keep=0.5)
    with torch.inference_mode():
        model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 3))
    with pytest.raises(sc.InputError, match="inference mode"):
        sc.groups(model, x.float())
    with pytest.raises(sc.InputError, match=r"must be an nn\.Module"):
        sc.groups(torch.relu, x)
    with pytest.raises(sc.InputError, match="depends on the data"):
        sc.groups(net(lambda s, x: s.c(s.a(x)[x[:, 0] > 0]), a=nn.Linear(8, 16), c=nn.Linear(16, 3)), x)
