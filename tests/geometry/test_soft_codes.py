"""Soft region assignment, against torch's own SiLU and GELU, simulated noise and the hard limit."""

from __future__ import annotations

import math

import pytest
import torch
from torch.nn import functional as F

from splinecut.errors import InputError
from splinecut.geometry.soft_codes import (
    beta_for,
    gaussian,
    logistic,
    soft_activation,
    soft_assignment,
    soft_code,
    soft_distance,
)

u = torch.linspace(-12, 12, 4801, dtype=torch.float64)


def test_beta_one_is_silu() -> None:
    assert torch.allclose(soft_activation(u), F.silu(u), rtol=0, atol=1e-12)


def test_gaussian_noise_is_gelu() -> None:
    assert torch.allclose(soft_activation(u, noise=gaussian), F.gelu(u), rtol=0, atol=1e-12)


def test_softmax_over_the_two_pieces_of_relu_is_the_soft_code() -> None:
    pieces = torch.stack([torch.zeros_like(u), u], dim=-1)
    for beta in (0.3, 1.0, 7.0):
        assignment = soft_assignment(pieces, beta)
        assert torch.allclose(assignment[:, 1], soft_code(u, beta), rtol=0, atol=1e-12)
        assert torch.allclose((assignment * pieces).sum(-1), soft_activation(u, beta), rtol=0, atol=1e-12)


@pytest.mark.parametrize("noise", [logistic, gaussian])
@pytest.mark.parametrize("margin", [1.0, 1e-3])
def test_codes_are_hard_to_one_in_a_million_at_the_stated_beta(noise, margin: float) -> None:
    away = u[u.abs() >= margin]
    beta = beta_for(margin, 1e-6)
    assert (soft_code(away, beta, noise) - (away > 0).double()).abs().max() <= 1e-6
    assert math.isclose(beta_for(1.0), 13.8155, abs_tol=1e-4)


@pytest.mark.parametrize(("noise", "constant"), [(logistic, 0.27847), (gaussian, 0.17)])
def test_activation_is_within_its_constant_over_beta_of_relu(noise, constant: float) -> None:
    for beta in (1.0, 10.0, 1000.0):
        fine = u / beta  # the gap is widest near |u| = 1 / beta
        assert (soft_activation(fine, beta, noise) - F.relu(fine)).abs().max() <= constant / beta + 1e-12
    assert (soft_activation(u, 278_465.0, noise) - F.relu(u)).abs().max() <= 1e-6


def test_infinite_beta_is_the_bit_with_zero_off() -> None:
    assert soft_code(torch.tensor([-1.0, 0.0, 1e-30]), math.inf).tolist() == [0, 0, 1]
    assert soft_assignment(torch.tensor([2.0, 5.0, 5.0]), math.inf).tolist() == [0, 1, 0]


@pytest.mark.parametrize(("slope", "hard"), [(0.1, lambda x: F.leaky_relu(x, 0.1)), (-1.0, torch.abs)])
def test_other_slopes_tend_to_leaky_relu_and_absolute_value(slope: float, hard) -> None:
    assert torch.allclose(soft_activation(u, 1e7, slope_off=slope), hard(u), rtol=0, atol=1e-6)
    assert torch.allclose(soft_activation(u, math.inf, slope_off=slope), hard(u), rtol=0, atol=1e-12)


@pytest.mark.parametrize("noise", [logistic, gaussian])
def test_soft_code_is_the_share_of_on_under_simulated_noise(noise) -> None:
    generator = torch.Generator().manual_seed(0)
    uniform = torch.rand(400_000, generator=generator, dtype=torch.float64)
    disturbance = torch.logit(uniform) if noise is logistic else torch.special.ndtri(uniform)
    for point in (-1.5, 0.0, 0.4, 2.0):
        share = float((point + disturbance / 2.0 > 0).double().mean())
        assert abs(share - float(soft_code(torch.tensor(point), 2.0, noise))) < 4e-3


def test_distance_of_hard_codes_is_the_share_of_differing_bits() -> None:
    a, b = torch.tensor([0.0, 1.0, 1.0, 0.0]), torch.tensor([0.0, 1.0, 0.0, 1.0])
    assert soft_distance(a, b) == 0.5
    assert soft_distance(a, a) == 0.0
    assert soft_distance(torch.full((3,), 0.5), torch.full((3,), 0.5)) == 0.0


def test_distance_is_the_share_that_differs_under_common_noise() -> None:
    disturbance = torch.logit(torch.rand(400_000, generator=torch.Generator().manual_seed(1), dtype=torch.float64))
    a, b = torch.tensor(-0.4), torch.tensor(1.1)
    share = float(((a + disturbance > 0) != (b + disturbance > 0)).double().mean())
    assert abs(share - soft_distance(soft_code(a), soft_code(b))) < 4e-3


@pytest.mark.parametrize("beta", [0.0, -1.0, math.nan])
def test_a_beta_that_is_not_positive_is_refused(beta: float) -> None:
    with pytest.raises(InputError, match=r"beta must be positive.*math\.inf"):
        soft_code(u, beta)
    with pytest.raises(InputError, match="margin must be positive"):
        beta_for(0.0)
