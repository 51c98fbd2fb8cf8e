"""Costs: against closed formulas, and without leaving a trace."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

import splinecut as sc
from splinecut.networks.cost import cost, forward_flops, parameters
from splinecut.networks.models import build


@pytest.mark.parametrize(
    ("name", "classes", "giga_macs"),
    [("vgg16", 10, 0.3132), ("preresnet101", 10, 0.1541), ("resnet18", 1000, 1.814), ("resnet50", 1000, 4.089)],
)
def test_multiply_adds_are_the_published_ones(name: str, classes: int, giga_macs: float) -> None:
    model = build(name, classes=classes)
    assert cost(model, model.input_shape).macs / 1e9 == pytest.approx(giga_macs, rel=0.005)


def test_a_grouped_convolution_costs_its_formula() -> None:
    # outputs x height x width x kernel area x inputs per group
    convolution = nn.Conv2d(6, 8, 3, padding=1, groups=2)
    assert cost(convolution, (6, 5, 7)).macs == 8 * 5 * 7 * 9 * 3
    assert parameters(convolution) == 8 * 9 * 3 + 8


def test_an_mlp_costs_its_formula_for_any_batch() -> None:
    model = build("mlp")
    assert forward_flops(model, (2,)) == 2 * (2 * 20 + 20 * 2)
    assert forward_flops(model, torch.zeros(13, 2)) == forward_flops(model, (2,))


def test_bytes_are_what_each_operation_reads_and_writes() -> None:
    # float32: linear reads 5x3 weights and 2x3 inputs and writes 2x5; relu reads and writes 2x5.
    model = nn.Sequential(nn.Linear(3, 5, bias=False), nn.ReLU())
    assert cost(model, (3,), batch=2).bytes * 2 == 4 * (15 + 6 + 10 + 10 + 10)


def test_bytes_do_not_depend_on_how_the_weights_lie_in_memory() -> None:
    model = build("preresnet20", classes=10, width=0.5)
    before = cost(model, (3, 32, 32), batch=256)
    assert cost(model.to(memory_format=torch.channels_last), (3, 32, 32), batch=256) == before


def test_counting_leaves_the_network_as_found() -> None:
    model = build("preresnet11", width=0.5, seed=0).train()
    model.bn.eval()
    modes = [module.training for module in model.modules()]
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    random = torch.get_rng_state()
    cost(model, (3, 32, 32))
    assert modes == [module.training for module in model.modules()]
    assert all(torch.equal(before[name], tensor) for name, tensor in model.state_dict().items())
    assert torch.equal(random, torch.get_rng_state())
    assert all(parameter.grad is None for parameter in model.parameters())
    assert type(model.stem.weight.data) is torch.Tensor


def test_networks_in_double_precision_and_with_dropout_are_counted() -> None:
    model = nn.Sequential(nn.Linear(4, 3), nn.Dropout(), nn.Linear(3, 2)).double()
    assert cost(model, (4,)).macs == 4 * 3 + 3 * 2


# Fused kernels -----------------------------------------------------------------------------------------------------

T, D, F = 10, 16, 32  # tokens, width, hidden width


class Recurrent(nn.Module):
    def __init__(self, kind: type[nn.LSTM] | type[nn.GRU]) -> None:
        super().__init__()
        self.r, self.o = kind(D, 24, 2, batch_first=True), nn.Linear(24, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.o(self.r(x)[0][:, -1])


class Attention(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.a, self.o = nn.MultiheadAttention(D, 4, batch_first=True), nn.Linear(D, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.o(self.a(x, x, x)[0])


class ScaledProduct(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.a, self.o = nn.Linear(D, 3 * D), nn.Linear(D, 3)

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = self.a(x).view(len(x), T, 3, 4, D // 4).permute(2, 0, 3, 1, 4).unbind(0)
        return self.o(functional.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2))


def encoder() -> nn.Module:
    layer = nn.TransformerEncoderLayer(D, 4, F, batch_first=True)
    return nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)


BLOCK = T * D * 4 * D + 2 * T * T * D + 2 * T * D * F  # projections, scores and their use, two layers of an MLP
FUSED: list[tuple[Callable[[], nn.Module], int]] = [
    (lambda: Recurrent(nn.LSTM), T * 4 * 24 * (D + 24) + T * 4 * 24 * (24 + 24) + 24 * 3),
    (lambda: Recurrent(nn.GRU), T * 3 * 24 * (D + 24) + T * 3 * 24 * (24 + 24) + 24 * 3),
    (Attention, T * D * 4 * D + 2 * T * T * D + T * D * 3),
    (ScaledProduct, T * D * 3 * D + 2 * T * T * D + T * D * 3),
    (encoder, 2 * BLOCK),
]


@pytest.mark.parametrize(("build_model", "multiply_adds"), FUSED)
def test_attention_and_recurrent_layers_cost_what_a_hand_count_gives(
    build_model: Callable[[], nn.Module], multiply_adds: int
) -> None:
    model, x = build_model(), torch.randn(3, T, D)
    assert cost(model, x).macs == multiply_adds
    assert sc.groups(model, x).flops() == 2 * multiply_adds


def test_a_cut_transformer_costs_what_its_groups_say() -> None:
    torch.manual_seed(0)
    model, x = encoder(), torch.randn(3, T, D)
    ticket = sc.draw(model, x, method="l2", budget=sc.Budget(0.8, "flops"))
    assert ticket.achieved.flops == cost(sc.cut(model, ticket), x).flops
    assert 0.75 * 4 * BLOCK < ticket.achieved.flops <= 0.8 * 4 * BLOCK


def test_counting_switches_kernels_back_on() -> None:
    before = torch.backends.mha.get_fastpath_enabled(), torch.backends.mkldnn.enabled
    cost(encoder(), torch.randn(1, T, D))
    assert (torch.backends.mha.get_fastpath_enabled(), torch.backends.mkldnn.enabled) == before


def test_token_ids_stay_whole_numbers_and_several_arguments_can_be_given() -> None:
    class Tokens(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.table, self.o = nn.Embedding(50, D), nn.Linear(D, 2)

        def forward(self, ids: Tensor, scale: Tensor | None = None) -> Tensor:
            x = self.table(ids)
            return self.o(x if scale is None else x * scale[:, None, None])

    ids = torch.randint(0, 50, (4, T))
    assert cost(Tokens(), ids).macs == T * D * 2
    assert cost(Tokens(), (ids, torch.rand(4))).macs == T * D * 2
