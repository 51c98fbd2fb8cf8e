"""Activation codes, against hooks on the running network, and their distances as a metric."""

from __future__ import annotations

import time

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from splinecut.errors import InputError
from splinecut.geometry.codes import (
    Codes,
    codes,
    distance,
    distance_matrix,
    over_bits,
    sample_units,
    standard_error,
)
from splinecut.geometry.line import pieces_along
from splinecut.geometry.soft_codes import gaussian, soft_codes
from splinecut.networks.trace import trace
from support import piecewise_networks
from support.exact_geometry import pack

FOLDING = (nn.ReLU, nn.LeakyReLU, nn.PReLU)


def bits_by_hooks(net: nn.Module, x: torch.Tensor) -> np.ndarray:
    """The naive way: a hook on every activation module that looks at its input."""
    seen: list[torch.Tensor] = []
    hooks = [
        module.register_forward_pre_hook(lambda _, args: seen.append(args[0].flatten(1) > 0))
        for module in net.modules()
        if isinstance(module, FOLDING)
    ]
    net(x)
    for hook in hooks:
        hook.remove()
    return torch.cat(seen, dim=1).numpy()


@pytest.mark.parametrize("name", ["relu", "no-bias", "leaky", "prelu", "pooled"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_codes_equal_what_hooks_see(name: str, dtype: torch.dtype) -> None:
    net = piecewise_networks.build(name).to(dtype)
    x = piecewise_networks.inputs(name, 37).to(dtype)
    graph = trace(net, x, dtype)
    assert np.array_equal(codes(graph, x, batch_size=10).bits(), bits_by_hooks(net, x))


def test_a_clamp_has_a_bit_for_each_of_its_kinks() -> None:
    net = nn.Sequential(nn.Linear(1, 1), nn.ReLU6()).double().eval()
    with torch.no_grad():
        net[0].weight.fill_(1)
        net[0].bias.zero_()
    x = torch.tensor([[-1.0], [0.0], [3.0], [6.0], [7.0]], dtype=torch.float64)
    on = codes(trace(net, x), x).bits()
    assert on.tolist() == [[False, False], [False, False], [True, False], [True, False], [True, True]]


def test_winners_of_max_pooling_are_coded_on_request() -> None:
    net = nn.Sequential(nn.MaxPool1d(2), nn.ReLU()).eval()
    x = torch.tensor([[[1.0, 2.0, 5.0, 5.0]], [[-4.0, -6.0, 0.0, 3.0]]])
    graph = trace(net, x)
    assert codes(graph, x).layers == ("1",)
    coded = codes(graph, x, winners=True)
    assert coded.bits("0").tolist() == [[False, True, True, False], [True, False, False, True]]
    assert np.array_equal(coded.bits("1"), codes(graph, x).bits())


def test_codes_of_float32_networks_move_with_their_weights() -> None:
    net = piecewise_networks.build("relu")
    x = piecewise_networks.inputs("relu", 20)
    graph = trace(net, x)
    with torch.no_grad():
        net[0].weight.neg_()
    later = codes(graph.with_state(net.state_dict()), x)
    assert np.array_equal(later.bits(), bits_by_hooks(net, x))
    assert distance(later, codes(graph, x)) > 0


tables = st.integers(0, 2**32 - 1).map(lambda seed: np.random.default_rng(seed))


def random_codes(rng: np.random.Generator, flips: float = 0.5) -> Codes:
    return pack(["first", "second"], [rng.random((6, 11)) < flips, rng.random((6, 3)) < flips])


@settings(derandomize=True, deadline=None, max_examples=50)
@given(tables)
def test_distance_is_a_metric(rng: np.random.Generator) -> None:
    a, b, c = (random_codes(rng) for _ in range(3))
    for mean in (None, over_bits):
        options = {} if mean is None else {"mean": mean}
        assert distance(a, a, **options) == 0
        assert distance(a, b, **options) == distance(b, a, **options)
        assert distance(a, c, **options) <= distance(a, b, **options) + distance(b, c, **options) + 1e-15
        assert (distance(a, b, **options) == 0) == (a == b) == np.array_equal(a.bits(), b.bits())


@settings(derandomize=True, deadline=None, max_examples=30)
@given(tables)
def test_distance_by_layer_and_both_means_follow_their_definition(rng: np.random.Generator) -> None:
    a, b = random_codes(rng), random_codes(rng)
    shares = {layer: float((a.bits(layer) != b.bits(layer)).mean()) for layer in a.layers}
    assert distance(a, b, by_layer=True) == pytest.approx(shares)
    assert distance(a, b) == pytest.approx(np.mean(list(shares.values())))
    assert distance(a, b, mean=over_bits) == pytest.approx(float((a.bits() != b.bits()).mean()))


def test_matrix_holds_the_pairwise_distances() -> None:
    rng = np.random.default_rng(0)
    many = [random_codes(rng) for _ in range(7)]
    for mean in (over_bits,):
        expected = [[distance(a, b, mean=mean) for b in many] for a in many]
        assert np.allclose(distance_matrix(many, mean), expected, rtol=0, atol=1e-15)
    assert np.allclose(distance_matrix(many), [[distance(a, b) for b in many] for a in many], rtol=0, atol=1e-15)


def test_a_matrix_of_160_codes_over_a_million_bits_takes_under_a_second() -> None:
    """A tenth of the size that must take under 10 s; the work is linear in the bits."""
    rng = np.random.default_rng(0)
    bits = rng.integers(0, 256, size=(160, 1000, 125), dtype=np.uint8)
    units = (np.arange(1000),)
    many = [Codes(("layer",), (1000,), units, (table,)) for table in bits]
    start = time.process_time()
    matrix = distance_matrix(many)
    assert time.process_time() - start < 1.0
    assert abs(matrix[0, 1] - 0.5) < 0.01


def test_sampled_units_are_fixed_by_the_seed_and_of_the_full_code() -> None:
    net = piecewise_networks.build("relu")
    x = piecewise_networks.inputs("relu", 20)
    graph = trace(net, x)
    full, part, again = codes(graph, x), codes(graph, x, per_layer=5, seed=3), codes(graph, x, per_layer=5, seed=3)
    assert part == again
    for layer, units in zip(part.layers, part.units, strict=True):
        assert len(units) == 5
        assert np.array_equal(part.bits(layer), full.bits(layer)[:, units])
    assert part != codes(graph, x, per_layer=5, seed=4)
    assert standard_error(full, full) == 0.0


def test_sampling_is_unbiased_and_its_standard_error_is_honest() -> None:
    rng = np.random.default_rng(0)
    off = np.zeros((20, 400), dtype=bool)
    changed = rng.random((20, 400)) < rng.random(400)  # units differ at very different rates
    truth = changed.mean()
    estimates, errors = [], []
    for seed in range(300):
        held = sample_units([400], 40, seed)
        a, b = pack(["layer"], [off], held), pack(["layer"], [changed], held)
        estimates.append(distance(a, b))
        errors.append(standard_error(a, b))
    assert abs(np.mean(estimates) - truth) < 4 * np.std(estimates) / np.sqrt(300)
    assert np.mean(errors) == pytest.approx(np.std(estimates), rel=0.15)


def test_codes_of_different_layers_or_samples_are_refused() -> None:
    rng = np.random.default_rng(0)
    a = random_codes(rng)
    other = pack(["first", "other"], [rng.random((6, 11)) < 0.5, rng.random((6, 3)) < 0.5])
    with pytest.raises(InputError, match=r"same layers, units and samples.*one probe"):
        distance(a, other)
    with pytest.raises(InputError, match="unknown layer 'frist'; did you mean 'first'"):
        a.bits("frist")
    with pytest.raises(InputError, match="per_layer must be at least 2"):
        sample_units([4], 1)


# Smooth activations: codes can be read, exact geometry refuses.


@pytest.mark.parametrize(("activation", "options"), [(nn.SiLU, {}), (nn.GELU, {"noise": gaussian})])
def test_soft_codes_times_inputs_are_what_the_smooth_network_computes(activation, options) -> None:
    net = piecewise_networks.mlp(activation).double().eval()
    x = piecewise_networks.inputs("relu", 9)
    shares = soft_codes(trace(net, x, smooth=True), x, **options).shares
    u = net[0](x)
    assert torch.allclose(shares[0] * u, net[1](u), rtol=0, atol=1e-12)
    v = net[2](net[1](u))
    assert torch.allclose(shares[1] * v, net[3](v), rtol=0, atol=1e-12)


def test_soft_codes_tend_to_the_hard_ones_and_so_do_distances() -> None:
    x = piecewise_networks.inputs("relu", 9)
    torch.manual_seed(0)
    graphs = [trace(piecewise_networks.mlp(nn.GELU).double().eval(), x, smooth=True) for _ in range(2)]
    for graph in graphs:
        hard = codes(graph, x).bits()
        assert torch.cat(soft_codes(graph, x, beta=np.inf).shares, dim=1).numpy().astype(bool).tolist() == hard.tolist()
    near = soft_codes(graphs[0], x, beta=1e9).distance(soft_codes(graphs[1], x, beta=1e9))
    assert near == pytest.approx(distance(*(codes(graph, x) for graph in graphs)), abs=1e-6)
    assert 0 < soft_codes(graphs[0], x).distance(soft_codes(graphs[1], x)) < near


def test_exact_geometry_refuses_a_graph_traced_for_codes() -> None:
    x = piecewise_networks.inputs("relu", 2)
    graph = trace(piecewise_networks.mlp(nn.GELU).double().eval(), x, smooth=True)
    with pytest.raises(InputError, match=r"gelu in layer 1 is smooth.*soft codes"):
        pieces_along(graph, *x)
