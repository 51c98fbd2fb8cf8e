"""The traced graph is the network: same values, at any batch size, with everything it was made of still named."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from splinecut.errors import SplinecutError
from splinecut.geometry.graph import Graph, is_on
from splinecut.networks.trace import TraceError, trace


class Everything(nn.Module):
    """Uses most of what is supported, in the spellings people use."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 8, 3, padding=1, bias=False)
        self.norm = nn.BatchNorm2d(8)
        self.relu = nn.ReLU(inplace=True)
        self.depthwise = nn.Conv2d(8, 8, 3, padding="same", groups=8)
        self.pool = nn.MaxPool2d(3, stride=2, padding=1, ceil_mode=True)
        self.up = nn.Upsample(scale_factor=2)
        self.prelu = nn.PReLU(4)
        self.head = nn.Linear(8, 4)
        self.register_buffer("order", torch.tensor([3, 0, 1, 2]))

    def forward(self, x: Tensor) -> Tensor:
        y = self.relu(self.norm(self.conv(x)))
        y = y + F.leaky_relu(self.depthwise(y), 0.1)
        y += 1.0
        y = torch.cat([self.pool(y * 0.5), -self.pool(y)[:, :3]], dim=1)
        first, second = self.up(y).chunk(2, dim=1)
        y = torch.cat([first, second.clamp(min=-0.2, max=1.5)[:, :2]], dim=1).abs()
        y = F.hardtanh(F.adaptive_avg_pool2d(y, 1).flatten(1) - 0.3, -0.5, 0.5)
        y = self.prelu(self.head(F.dropout(y, training=self.training)))[:, self.order]
        y = torch.cat([y, y.new_zeros(y.size(0), 2)], dim=1)
        y = y.view(y.size(0), 2, -1).permute(0, 2, 1).contiguous().view(-1, 6)
        return (1 - y.mean(1, keepdim=True)) @ torch.ones(1, 2, dtype=y.dtype)


class Wrapped(nn.Module):
    def __init__(self, function, *layers: nn.Module) -> None:
        super().__init__()
        self.function, self.layers = function, nn.ModuleList(layers)

    def forward(self, x: Tensor) -> Tensor:
        return self.function(self.layers, x)


def activation_bits(graph: Graph, x: Float[Tensor, "points ..."]) -> list[Bool[Tensor, "points units"]]:
    """Which units are on at each point: one table per layer of `graph.layers` that has bits, units in C order."""
    layers = [layer for layer in graph.layers if layer.bits]
    sources = [graph[layer.node].inputs[0] for layer in layers]
    values = graph.trail(x, sources)
    return [is_on(values[source], layer.kink).flatten(1) for source, layer in zip(sources, layers, strict=True)]


def everything() -> Everything:
    torch.manual_seed(0)
    model = Everything()
    model.norm.running_mean.normal_()
    model.norm.running_var.uniform_(0.5, 2)
    return model.eval()


@pytest.mark.parametrize("n_points", [1, 2, 9])
def test_the_graph_has_the_values_of_the_network_at_any_batch_size(n_points):
    model = everything()
    graph = trace(model, torch.zeros(1, 3, 8, 8))
    points = torch.randn(n_points, 3, 8, 8, dtype=torch.float64)
    torch.testing.assert_close(graph.run(points), model.double()(points), rtol=1e-12, atol=1e-12)


def test_tracing_leaves_the_network_as_found():
    model = everything()
    before = {key: value.clone() for key, value in model.state_dict().items()}
    trace(model, torch.zeros(1, 3, 8, 8))
    assert all(torch.equal(before[key], value) for key, value in model.state_dict().items())
    assert next(model.parameters()).dtype == torch.float32


def test_nodes_keep_path_parameters_and_attributes():
    graph = trace(everything(), torch.zeros(1, 3, 8, 8))
    (depthwise,) = [node for node in graph.nodes if node.path == "depthwise"]
    assert (depthwise.op, depthwise.role) == ("conv", "affine")
    assert depthwise.parameters == {"weight": "depthwise.weight", "bias": "depthwise.bias"}
    assert depthwise.attributes["groups"] == 8
    (norm,) = [node for node in graph.nodes if node.op == "batch_norm"]
    assert norm.parameters["running_mean"] == "norm.running_mean"


def test_all_spellings_of_relu_give_one_operation():
    spellings = [nn.ReLU(), nn.ReLU(inplace=True), F.relu, torch.relu, lambda x: x.relu(), lambda x: x.relu_()]
    for spelling in spellings:
        model = Wrapped(lambda layers, x, fold=spelling: fold(layers[0](x)), nn.Linear(2, 3)).eval()
        assert [node.op for node in trace(model, torch.zeros(1, 2)).nodes] == ["input", "linear", "relu"]


def test_a_value_changed_in_place_is_changed_for_later_readers():
    def forward(layers, x):
        hidden = layers[0](x)
        hidden.relu_()
        return hidden + layers[1](hidden)

    model = Wrapped(forward, nn.Linear(2, 3), nn.Linear(3, 3)).double().eval()
    points = torch.randn(4, 2, dtype=torch.float64)
    torch.testing.assert_close(trace(model, points).run(points), model(points))


def test_a_clamp_makes_two_layers_and_a_max_pool_one_without_bits():
    model = nn.Sequential(nn.Linear(4, 6), nn.ReLU6(), nn.Unflatten(1, (1, 6)), nn.MaxPool1d(2)).eval()
    graph = trace(model, torch.zeros(1, 4))
    assert [(layer.kink, layer.size, layer.bits) for layer in graph.layers] == [(0, 6, 6), (6, 6, 6), (0, 3, 0)]
    assert graph.n_bits == 12


def test_bits_are_on_where_the_input_of_the_fold_is_above_its_kink():
    model = nn.Sequential(nn.Linear(1, 2, bias=False), nn.ReLU()).eval()
    model[0].weight.data = torch.tensor([[1.0], [-1.0]])
    (bits,) = activation_bits(trace(model, torch.zeros(1, 1)), torch.tensor([[2.0], [0.0], [-2.0]]).double())
    assert bits.tolist() == [[True, False], [False, False], [False, True]]


@pytest.mark.parametrize(
    "pool",
    [
        nn.MaxPool2d(2),
        nn.MaxPool2d(3, 2, padding=1),
        nn.MaxPool2d((2, 3), (2, 1), dilation=(1, 2), ceil_mode=True),
        nn.AdaptiveMaxPool2d((2, 3)),
        Wrapped(lambda _, x: x.amax(dim=(1, 3))),
        Wrapped(lambda _, x: x.max(dim=2).values),
        Wrapped(lambda _, x: torch.maximum(x, x.flip(2))),
    ],
)
def test_the_largest_of_each_window_is_the_value_of_a_max(pool):
    points = torch.randn(3, 2, 7, 8, dtype=torch.float64)
    graph = trace(pool.eval(), points)
    node = next(node for node in graph.nodes if node.role == "max")
    values = graph.trail(points, node.inputs)
    flat = torch.cat([values[name].flatten(1) for name in node.inputs], dim=1)
    padded = torch.cat([flat, torch.full((3, 1), -torch.inf, dtype=torch.float64)], dim=1)
    assert torch.equal(padded[:, torch.from_numpy(node.windows)].amax(2), pool(points).flatten(1))


def test_newer_weights_can_be_put_into_the_same_graph():
    model = everything()
    graph = trace(model, torch.zeros(1, 3, 8, 8))
    with torch.no_grad():
        model.head.weight.mul_(2)
    points = torch.randn(2, 3, 8, 8, dtype=torch.float64)
    torch.testing.assert_close(graph.with_state(model.state_dict()).run(points), model.double()(points))


def _branch(_, x):
    return x if x.sum() > 0 else -x


@pytest.mark.parametrize(
    ("model", "says"),
    [
        (nn.Sequential(nn.Linear(2, 2), nn.ReLU()).train(), "model.eval()"),
        (Wrapped(_branch), "control flow depends on the data"),
        (nn.Sequential(nn.Linear(2, 2), nn.GELU()), "gelu in layer 1 is not supported: it is smooth"),
        (nn.Sequential(nn.Linear(2, 2), nn.Softmax(1)), "soft codes"),
        (Wrapped(lambda _, x: torch.sign(x)), "sign in layer (network) is not supported: supported are abs"),
        (Wrapped(lambda _, x: x * x), "both depend on the input"),
        (Wrapped(lambda _, x: x / x), "both depend on the input"),
        (Wrapped(lambda _, x: x - x.mean(0)), "batch axis"),
        (Wrapped(lambda _, x: x.T @ x), "batch axis"),
        (Wrapped(lambda _, x: F.dropout(x)), "dropout is active"),
        (Wrapped(lambda _, x: (x, x)), "one tensor"),
        (nn.BatchNorm1d(2, track_running_stats=False), "running statistics"),
        (nn.Linear(3, 2), "check the input's shape"),
    ],
)
def test_what_cannot_be_read_is_refused_in_one_line(model, says):
    model = model if says == "model.eval()" else model.eval()
    with pytest.raises(TraceError) as refusal:
        trace(model, torch.zeros(1, 2))
    assert says in str(refusal.value)
    assert "\n" not in str(refusal.value)
    assert isinstance(refusal.value, SplinecutError)


@pytest.mark.parametrize(("value", "says"), [(torch.nan, "NaN"), (torch.inf, "infinite")])
def test_weights_that_are_not_finite_are_refused_by_name(value, says):
    model = nn.Sequential(nn.Linear(2, 2), nn.ReLU()).eval()
    model[0].weight.data[1, 0] = value
    with pytest.raises(TraceError, match=f"0.weight holds {says}"):
        trace(model, torch.zeros(1, 2))
