"""The affine map around a point, against autograd inside regions and by hand on cuts."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from splinecut.errors import InputError
from splinecut.geometry.affine import local_affine
from splinecut.networks.trace import trace
from support import piecewise_networks


@pytest.mark.parametrize("name", list(piecewise_networks.BUILD))
def test_map_equals_the_network_and_its_jacobian(name: str) -> None:
    net = piecewise_networks.build(name)
    for x in piecewise_networks.inputs(name, 3, seed=1):
        a, b = local_affine(trace(net, x[None]), x)
        jacobian = torch.autograd.functional.jacobian(lambda z: net(z[None])[0], x)
        assert a.shape == (len(b), *x.shape)
        assert torch.allclose(a, jacobian, rtol=0, atol=1e-11)
        assert torch.allclose(a.flatten(1) @ x.flatten() + b, net(x[None])[0], rtol=0, atol=1e-10)


@pytest.mark.parametrize("name", ["relu", "pooled"])
def test_map_holds_in_the_neighbourhood(name: str) -> None:
    net = piecewise_networks.build(name)
    x = piecewise_networks.inputs(name, 1, seed=2)[0]
    a, b = local_affine(trace(net, x[None]), x)
    near = x + 1e-7 * piecewise_networks.inputs(name, 8, seed=3)
    assert torch.allclose(near.flatten(1) @ a.flatten(1).T + b, net(near), rtol=0, atol=1e-11)


@pytest.mark.parametrize(
    ("activation", "at_kink"), [(nn.ReLU(), 0.0), (nn.LeakyReLU(0.1), 0.1), (nn.Hardtanh(0.0, 2.0), 0.0)]
)
def test_a_point_on_a_cut_belongs_to_the_side_that_is_off(activation: nn.Module, at_kink: float) -> None:
    net = nn.Sequential(nn.Linear(1, 1, bias=False), activation).double().eval()
    with torch.no_grad():
        net[0].weight.fill_(1.0)
    a, _ = local_affine(trace(net, torch.zeros(1, 1)), torch.zeros(1, dtype=torch.float64))
    assert float(a) == pytest.approx(at_kink, abs=1e-15)


def test_float32_networks_are_promoted() -> None:
    net = piecewise_networks.build("relu").float()
    x = piecewise_networks.inputs("relu", 1)[0]
    a, b = local_affine(trace(net, x[None]), x.float())
    assert a.dtype == b.dtype == torch.float64
    assert torch.allclose(a @ x.float().double() + b, net.double()(x.float().double()), rtol=0, atol=1e-12)


def test_a_batch_is_refused() -> None:
    net = piecewise_networks.build("relu")
    with pytest.raises(InputError, match=r"one input of shape \(3,\), got \(1, 3\); leave out the batch axis"):
        local_affine(trace(net, torch.zeros(1, 3)), torch.zeros(1, 3))
