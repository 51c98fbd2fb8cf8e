"""The decision boundary on a slice: against the running network, hand-made networks and dense sampling."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from splinecut.geometry.boundary import Boundary, boundary, kinks
from splinecut.geometry.partition import Partition, subdivide
from splinecut.geometry.slices import Slice
from splinecut.networks.trace import trace


def reference(width: int, depth: int, classes: int = 2, seed: int = 0) -> nn.Module:
    torch.manual_seed(seed)
    layers: list[nn.Module] = [nn.Linear(2, width), nn.ReLU()]
    for _ in range(depth - 1):
        layers += [nn.Linear(width, width), nn.ReLU()]
    return nn.Sequential(*layers, nn.Linear(width, classes)).double().eval()


def one_hidden(weight: list[list[float]], bias: list[float], reader: list[list[float]]) -> nn.Module:
    first, last = nn.Linear(len(weight[0]), len(weight)), nn.Linear(len(weight), len(reader))
    with torch.no_grad():
        first.weight.copy_(torch.tensor(weight))
        first.bias.copy_(torch.tensor(bias))
        last.weight.copy_(torch.tensor(reader))
        last.bias.zero_()
    return nn.Sequential(first, nn.ReLU(), last).double().eval()


def on_square(net: nn.Module, half_width: float = 1.0) -> Partition:
    return subdivide(trace(net, torch.zeros(1, 2)), Slice.square(half_width))


def decisions(net: nn.Module, uv: np.ndarray) -> np.ndarray:
    logits = net(torch.from_numpy(uv)).detach().numpy()
    return (logits[:, 0] > 0).astype(int) if logits.shape[1] == 1 else logits.argmax(axis=1)


def n_crossings(line: Boundary, start: np.ndarray, stop: np.ndarray) -> int:
    """How often the straight path from start to stop crosses the boundary."""

    def side(p: np.ndarray, q: np.ndarray, r: np.ndarray) -> np.ndarray:
        return np.sign(
            (q[..., 0] - p[..., 0]) * (r[..., 1] - p[..., 1]) - (q[..., 1] - p[..., 1]) * (r[..., 0] - p[..., 0])
        )

    a, b = line.ends[:, 0], line.ends[:, 1]
    return int(((side(a, b, start) != side(a, b, stop)) & (side(start, stop, a) != side(start, stop, b))).sum())


def test_reference_network_has_26_segments() -> None:
    partition = on_square(reference(64, 3))
    line = boundary(partition)
    assert len(line) == 26
    assert len(kinks(partition, line)) == 25


@pytest.mark.parametrize(("classes", "seed"), [(2, 0), (3, 1), (5, 2), (10, 3)])
def test_on_the_boundary_two_classes_tie_and_no_other_is_larger(classes: int, seed: int) -> None:
    net = reference(24, 2, classes, seed)
    line = boundary(on_square(net, 5.0))
    assert len(line) > 0
    for share in (0.0, 0.3, 1.0):
        points = line.ends[:, 0] + share * (line.ends[:, 1] - line.ends[:, 0])
        logits = net(torch.from_numpy(points)).detach().numpy()
        tied = np.take_along_axis(logits, line.classes, axis=1)
        assert np.allclose(tied[:, 0], tied[:, 1], rtol=0, atol=1e-12)
        assert (logits <= tied.max(axis=1, keepdims=True) + 1e-12).all()


@pytest.mark.parametrize("classes", [1, 2, 3, 6])
def test_a_path_crosses_the_boundary_whenever_the_decision_changes(classes: int) -> None:
    rng = np.random.default_rng(classes)
    net = reference(16, 2, classes, seed=classes)
    line = boundary(on_square(net, 5.0))
    for _ in range(30):
        start, stop = rng.uniform(-5, 5, size=(2, 2))
        path = start + np.linspace(0, 1, 5001)[:, None] * (stop - start)
        assert n_crossings(line, start, stop) == int((np.diff(decisions(net, path)) != 0).sum())


@settings(derandomize=True, deadline=None, max_examples=10)
@given(st.integers(0, 1000))
def test_every_end_is_met_or_lies_on_the_window_or_where_three_classes_meet(seed: int) -> None:
    partition = on_square(reference(10, 2, 3, seed), 5.0)
    line = boundary(partition)
    ends = line.ends.reshape(-1, 2)
    apart = np.linalg.norm(ends[:, None] - ends, axis=2)
    n_met = (apart < 1e-9).sum(axis=1) - 1
    is_on_window = np.abs(np.abs(ends).max(axis=1) - 5) < 1e-9
    assert (is_on_window | (n_met == 1) | (n_met == 2)).all()


def test_kinks_lie_on_the_cut_of_the_unit_they_name() -> None:
    net = reference(20, 3, 3, seed=5)
    partition = on_square(net, 4.0)
    found = kinks(partition, boundary(partition))
    assert len(found) > 5
    values = torch.from_numpy(found.uv)
    inputs = []
    for place, module in enumerate(net):
        if isinstance(module, nn.ReLU):
            inputs.append(values.detach().numpy())
        values = net[place](values)
    for i in range(len(found)):
        assert abs(inputs[found.layer[i]][i, found.unit[i]]) < 1e-10
    assert sum(found.per_unit().values()) == len(found)


def test_a_unit_that_nothing_reads_makes_no_kink() -> None:
    net = reference(12, 1, 2, seed=1)
    with torch.no_grad():
        net[2].weight[:, 3] = 0.0
    partition = on_square(net, 5.0)
    found = kinks(partition, boundary(partition))
    assert len(found) > 3
    assert (0, 3) not in found.per_unit()


def test_absolute_values_draw_an_x() -> None:
    units = [[1.0, 0.0], [-1.0, 0.0], [0.0, 1.0], [0.0, -1.0]]
    partition = on_square(one_hidden(units, [0.0] * 4, [[-1.0, -1.0, 1.0, 1.0]]))
    line = boundary(partition)
    assert len(line) == 4
    assert np.allclose(np.abs(line.ends[..., 0]), np.abs(line.ends[..., 1]))
    assert line.lengths.sum() == pytest.approx(4 * np.sqrt(2))


def test_a_boundary_that_runs_along_a_cut_is_named_once() -> None:
    partition = on_square(one_hidden([[1.0, 0.0], [-1.0, 0.0]], [0.0, 0.0], [[1.0, -1.0]]))  # relu(x) - relu(-x) = x
    line = boundary(partition)
    assert len(line) == 1
    assert np.allclose(line.ends[..., 0], 0)
    assert line.lengths[0] == pytest.approx(2)


def test_of_equal_classes_the_lower_wins() -> None:
    assert len(boundary(on_square(one_hidden([[1.0, 0.0]], [0.0], [[1.0]])))) == 1  # relu(x): 0 left, positive right
    assert len(boundary(on_square(one_hidden([[1.0, 0.0]], [0.0], [[-1.0]])))) == 0  # -relu(x): nowhere positive
    valley = one_hidden([[1.0, 0.0], [-1.0, 0.0]], [0.0, 0.0], [[1.0, 1.0]])  # |x| touches zero without changing side
    assert len(boundary(on_square(valley))) == 0


def test_three_affine_classes_meet_in_a_corner_without_a_kink() -> None:
    net = nn.Sequential(nn.Linear(2, 3)).double().eval()
    with torch.no_grad():
        net[0].weight.copy_(torch.tensor([[0.0, 1.0], [0.9, -0.5], [-0.9, -0.5]]))
        net[0].bias.zero_()
    partition = on_square(net)
    line = boundary(partition)
    assert len(line) == 3
    assert sorted(map(tuple, line.classes.tolist())) == [(0, 1), (0, 2), (1, 2)]
    assert len(kinks(partition, line)) == 0


def test_a_network_that_always_decides_alike_has_no_boundary() -> None:
    line = boundary(on_square(reference(20, 2)))
    assert len(line) == 0
    assert line.ends.shape == (0, 2, 2)
