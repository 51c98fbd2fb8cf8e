"""Costs: against closed formulas, and without leaving a trace."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from splinecut.networks.cost import bytes_moved, cost, forward_flops, macs, parameters
from splinecut.networks.models import build


@pytest.mark.parametrize(
    ("name", "classes", "giga_macs"),
    [("vgg16", 10, 0.3132), ("preresnet101", 10, 0.1541), ("resnet18", 1000, 1.814), ("resnet50", 1000, 4.089)],
)
def test_multiply_adds_are_the_published_ones(name: str, classes: int, giga_macs: float) -> None:
    model = build(name, classes=classes)
    assert macs(model, model.input_shape) / 1e9 == pytest.approx(giga_macs, rel=0.005)


def test_a_grouped_convolution_costs_its_formula() -> None:
    # outputs x height x width x kernel area x inputs per group
    convolution = nn.Conv2d(6, 8, 3, padding=1, groups=2)
    assert macs(convolution, (6, 5, 7)) == 8 * 5 * 7 * 9 * 3
    assert parameters(convolution) == 8 * 9 * 3 + 8


def test_an_mlp_costs_its_formula_for_any_batch() -> None:
    model = build("mlp")
    assert forward_flops(model, (2,)) == 2 * (2 * 20 + 20 * 2)
    assert forward_flops(model, torch.zeros(13, 2)) == forward_flops(model, (2,))


def test_bytes_are_what_each_operation_reads_and_writes() -> None:
    # float32: linear reads 5x3 weights and 2x3 inputs and writes 2x5; relu reads and writes 2x5.
    model = nn.Sequential(nn.Linear(3, 5, bias=False), nn.ReLU())
    assert bytes_moved(model, (3,), batch=2) * 2 == 4 * (15 + 6 + 10 + 10 + 10)


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
    assert macs(model, (4,)) == 4 * 3 + 3 * 2
