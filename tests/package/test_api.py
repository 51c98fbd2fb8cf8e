"""The public verbs on a model: that they trace and hand over, and leave the network as found."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn

import splinecut as sc
from support import piecewise_networks


def test_codes_distance_and_local_affine_work_on_a_plain_model() -> None:
    net = piecewise_networks.build("pooled").float()
    x = piecewise_networks.inputs("pooled", 6).float()
    assert sc.distance(sc.codes(net, x), sc.codes(net, x)) == 0.0
    a, b = sc.local_affine(net, x[0])
    assert torch.allclose(a.flatten(1) @ x[0].double().flatten() + b, net(x[:1])[0].double(), rtol=0, atol=1e-5)


def test_pieces_along_interpolate_the_network() -> None:
    net = piecewise_networks.build("residual")
    a, b = piecewise_networks.inputs("residual", 2)
    pieces = sc.pieces_along(net, a, b)
    middle = net(((a + b) / 2)[None])[0].detach().numpy()
    assert np.allclose(pieces.at(np.array([0.5]))[0], middle, rtol=0, atol=1e-12)


def test_codes_read_smooth_networks() -> None:
    net = piecewise_networks.mlp(nn.GELU).eval()
    x = torch.randn(4, 3)
    assert np.array_equal(sc.codes(net, x).bits()[:, :12], (net[0](x) > 0).numpy())


def test_the_network_is_left_as_found() -> None:
    net = piecewise_networks.build("pooled").float()
    before = {key: value.clone() for key, value in net.state_dict().items()}
    x = piecewise_networks.inputs("pooled", 2).float()
    sc.codes(net, x)
    sc.local_affine(net, x[0])
    assert all(torch.equal(before[key], value) for key, value in net.state_dict().items())
    assert all(parameter.grad is None and parameter.requires_grad for parameter in net.parameters())
    assert not any(module._forward_hooks or module._forward_pre_hooks for module in net.modules())


def test_a_network_in_train_mode_is_refused() -> None:
    with pytest.raises(sc.InputError, match=r"train mode; call model\.eval\(\)"):
        sc.codes(piecewise_networks.build("relu").train(), torch.zeros(1, 3))
