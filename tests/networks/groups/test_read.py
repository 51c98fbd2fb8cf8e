"""Which channels leave together: against torch-pruning, against layouts worked out by hand, and on awkward networks."""

from __future__ import annotations

import copy
import json

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

import splinecut as sc
from splinecut.networks.cost import cost
from splinecut.networks.groups.serialization import from_json, to_json
from splinecut.networks.groups.values import BLOCKS, UnitGroup
from support.coupled_networks import ZOO, SEResNet, make, read


def member(group: UnitGroup, key: str, axis: int) -> list[int]:
    return next(m.units.tolist() for m in group.members if (m.key, m.axis) == (key, axis))


# Against torch-pruning ---------------------------------------------------------------------------------------------


Slice = tuple[str, str, tuple[int, ...]]


def _ours(model: nn.Module, group: UnitGroup, unit: int) -> set[Slice]:
    """What leaves with a unit: (module, side, positions); norms and depthwise layers have one side.

    A grouped convolution's inputs are counted over all groups, as torch-pruning does; its weight has one group's.
    """
    found = set()
    for m in group.members:
        path, _, name = m.key.rpartition(".")
        if name == "weight" or (path == "" and name != "bias"):
            module, side = model.get_submodule(path), "in" if m.role == "consumer" else "out"
            units = np.tile(m.units, module.groups) if side == "in" and isinstance(module, nn.Conv2d) else m.units
            found.add((path or name, side, tuple(np.flatnonzero(units == unit).tolist())))
    return found


def _theirs(model: nn.Module, graph: object, group: UnitGroup, unit: int) -> set[Slice]:
    import torch_pruning as tp

    path = group.producers[0].path
    rows = np.flatnonzero(group.rows(group.producers[0]) == unit).tolist()
    layer = model.get_submodule(path)
    prune = tp.prune_linear_out_channels if isinstance(layer, nn.Linear) else tp.prune_conv_out_channels
    names = {module: name for name, module in model.named_modules()}
    found = set()
    for dependency, positions in graph.get_pruning_group(layer, prune, idxs=rows):  # type: ignore[attr-defined]
        module = dependency.target.module
        if module in names and not isinstance(module, nn.Identity) and list(module.parameters(recurse=False)):
            is_input = (
                "in_channels" in dependency.handler.__name__ and "prune_depthwise" not in dependency.handler.__name__
            )
            is_one_sided = isinstance(module, nn.BatchNorm2d | nn.LayerNorm | nn.GroupNorm | nn.PReLU)
            side = "in" if is_input and not is_one_sided else "out"
            found.add((names[module], side, tuple(sorted(positions))))
    return found


# Left out: where torch-pruning 1.6.1 is wrong (it misses the outputs of a depthwise layer that multiplies its channels,
# loses track in a channel shuffle, forgets a learned scale) or has no layer to start from (a bare parameter).
AGREE = sorted(set(ZOO) - {"group-norm", "shufflenet", "convnext", "recurring"})


@pytest.mark.parametrize("name", AGREE)
def test_groups_agree_with_torch_pruning(name: str) -> None:
    tp = pytest.importorskip("torch_pruning", reason="the oracle torch-pruning 1.6.1 is not installed")
    model, x = make(name)
    graph = tp.DependencyGraph().build_dependency(model, example_inputs=x)
    found = read(name)
    assert len(found) > 0
    for group in found:
        for unit in {0, group.size - 1}:
            assert _ours(model, group, unit) == _theirs(model, graph, group, unit), f"{name} {group.name} {unit}"


# Layouts worked out by hand ----------------------------------------------------------------------------------------


def test_a_flattened_channel_is_a_block_of_inputs() -> None:
    last = read("convnet")["features.3"]
    size = len(member(last, "classifier.weight", 1)) // last.size
    assert member(last, "classifier.weight", 1) == np.repeat(np.arange(last.size), size).tolist()


def test_concatenated_channels_are_read_at_their_offset() -> None:
    found = read("unet")
    assert member(found["up2"], "join2.0.weight", 1) == [*range(8), *[-1] * 8]
    assert member(found["down2.3"], "join2.0.weight", 1) == [*[-1] * 8, *range(8)]


def test_groups_of_a_convolution_lose_the_same_places() -> None:
    first = read("resnext")["blocks.0.conv1"]
    assert first.size == 3  # 12 channels in 4 groups
    assert member(first, "blocks.0.conv1.weight", 0) == [0, 1, 2] * 4
    assert member(first, "blocks.0.conv2.weight", 1) == [0, 1, 2]


def test_depthwise_filters_follow_their_input() -> None:
    hidden = read("mobilenetv2")["blocks.0.expand.0"]
    depthwise = next(m for m in hidden.members if m.key == "blocks.0.depthwise.0.weight")
    assert (depthwise.role, depthwise.axis, depthwise.units.tolist()) == ("follower", 0, list(range(18)))
    assert member(read("group-norm")["conv3"], "twice.weight", 0) == np.repeat(np.arange(6), 2).tolist()


def test_a_layer_used_twice_reads_what_it_makes() -> None:
    group = read("recurring")["enter"]
    assert member(group, "again.weight", 0) == member(group, "again.weight", 1) == list(range(8))


def test_tied_weights_have_one_name() -> None:
    keys = {m.key for group in read("recurring") for m in group.members}
    assert "twin_a.weight" in keys
    assert "twin_b.weight" not in keys


def test_squeeze_excite_ties_the_gate_to_the_stream() -> None:
    stream = read("se-resnet")["stem"]
    assert {"blocks.0.excite", "blocks.1.excite"} <= {producer.path for producer in stream.producers}


def test_producers_name_the_batch_norm_that_follows() -> None:
    conv, linear = read("vgg16")["features.0"].producers[0], read("mlp")["0"].producers[0]
    assert (conv.weight, conv.bias, conv.norm) == ("features.0.weight", None, "features.1")
    assert (linear.weight, linear.bias, linear.norm) == ("0.weight", "0.bias", None)


# Residual policies -------------------------------------------------------------------------------------------------


def test_a_tied_stream_is_one_group() -> None:
    stream = read("resnet18")["layer2.0.conv2"]
    assert [p.path for p in stream.producers] == ["layer2.0.conv2", "layer2.0.downsample.0", "layer2.1.conv2"]


def test_select_makes_a_group_of_every_selector_and_leaves_streams_whole() -> None:
    found = read("preresnet11", "select")
    selectors = [group.name for group in found if group.kind == "selector"]
    assert selectors == ["blocks.0.select", "blocks.1.select", "blocks.2.select", "select"]
    assert {m.key for m in found["blocks.0.select"].members} == {"blocks.0.select.index", "blocks.0.conv1.weight"}
    assert found["blocks.1.select"].producers[0].norm == "blocks.1.bn1"
    assert found["blocks.1.select"].rows(found["blocks.1.select"].producers[0]).tolist() == list(range(32))
    assert "residual stream" in found.left_whole["blocks.0.conv3"]
    assert "selector" in found.left_whole["stem"]


def test_inner_leaves_every_summand_whole() -> None:
    inner, tied = read("resnet18", "inner"), read("resnet18", "tied")
    assert {group.name for group in inner} < {group.name for group in tied}
    assert all(".conv2" in name or "downsample" in name or name in ("conv1", "fc") for name in inner.left_whole)


def test_select_without_selectors_is_inner_and_says_so() -> None:
    found = read("resnet18", "select")
    assert [group.name for group in found] == [group.name for group in read("resnet18", "inner")]
    assert "no Select modules" in found.left_whole["conv1"]


# What stays whole --------------------------------------------------------------------------------------------------


def test_attention_stays_whole_and_mlp_units_can_leave() -> None:
    found = read("vit")
    assert [(group.name, group.size) for group in found] == [("blocks.0.mlp.0", 20), ("blocks.1.mlp.0", 20)]
    assert "attention" in found.left_whole["blocks.0.attention"]
    assert "patches" in found.left_whole


class Counting(nn.Module):
    """Code that counts its channels in ways no graph shows."""

    def __init__(self, how: str) -> None:
        super().__init__()
        self.how = how
        self.a, self.b, self.c = nn.Conv2d(3, 8, 1), nn.Conv2d(8, 8, 1), nn.Linear(8, 2)
        self.register_buffer("order", torch.tensor([7, 6, 5, 4, 3, 2, 1, 0]))

    def forward(self, x: Tensor) -> Tensor:
        x = functional.relu(self.b(functional.relu(self.a(x))))
        if self.how == "view":
            x = x.view(len(x), 8, -1)[:, :, :, None]
        elif self.how == "slice":
            x = torch.cat([x[:, 4:], x[:, :4]], 1)
        elif self.how == "roll":
            x = x.roll(1, dims=1)
        elif self.how == "reduce":
            x = x - x.mean(1, keepdim=True)
        elif self.how == "sort":
            x = x.sort(1).values
        elif self.how == "norm":
            x = functional.layer_norm(x, x.shape[1:])
        elif self.how == "constant":
            x = x * torch.linspace(0, 1, 8)[:, None, None]
        elif self.how == "number":
            x = x * x.shape[1]
        elif self.how == "list":
            x = x[:, [3, 2, 1, 0, 4, 5, 6, 7]]
        return self.c(x.mean((2, 3)))


@pytest.mark.parametrize("how", ["view", "slice", "roll", "reduce", "sort", "norm", "constant", "number", "list"])
def test_what_counts_its_channels_stays_whole_and_the_rest_can_leave(how: str) -> None:
    torch.manual_seed(0)
    found = sc.groups(Counting(how), torch.randn(2, 3, 4, 4))
    assert [group.name for group in found] == ["a"]
    assert found.left_whole["b"]
    assert found.left_whole["c"] == "it is the network's output"


class Odd(nn.Module):
    """A reparametrised convolution, a recurrent layer, attention written out, a gated MLP."""

    def __init__(self) -> None:
        super().__init__()
        self.normed = nn.utils.parametrizations.weight_norm(nn.Conv2d(3, 12, 4, stride=4))
        self.query, self.key, self.value, self.out = (nn.Linear(12, 12) for _ in range(4))
        self.wide, self.narrow = nn.Linear(12, 30), nn.Linear(15, 12)
        self.recurrent = nn.LSTM(12, 8, batch_first=True)
        self.head = nn.Linear(8, 2)

    def forward(self, x: Tensor) -> Tensor:
        x = self.normed(x).flatten(2).transpose(1, 2)
        b, t, _ = x.shape
        q, k, v = (layer(x).view(b, t, 3, -1).transpose(1, 2) for layer in (self.query, self.key, self.value))
        mixed = (q @ k.transpose(-1, -2)).softmax(-1) @ v
        x = self.out(mixed.transpose(1, 2).reshape(b, t, -1))
        gate, value = self.wide(x).chunk(2, -1)
        return self.head(self.recurrent(self.narrow(functional.silu(gate) * value))[0][:, -1])


def test_odd_layers_stay_whole_by_name_and_the_units_between_them_can_leave() -> None:
    torch.manual_seed(0)
    found = sc.groups(Odd(), torch.randn(2, 3, 16, 16))
    assert {group.name: group.size for group in found} == {"out": 12, "wide": 15}
    assert "computed" in found.left_whole["normed"]
    assert "matmul" in found.left_whole["query"]
    assert "lstm" in found.left_whole["recurrent"]
    assert "lstm" in found.left_whole["narrow"]


def test_a_sum_with_the_input_stays_whole() -> None:
    class Shifted(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a, self.b = nn.Linear(4, 4), nn.Linear(4, 2)

        def forward(self, x: Tensor) -> Tensor:
            return self.b(torch.relu(self.a(x)) + x)

    found = sc.groups(Shifted(), torch.randn(2, 4))
    assert len(found) == 0
    assert "input" in found.left_whole["a"]


def test_channels_added_to_padding_stay_whole() -> None:
    class OptionA(nn.Module):
        """The shortcut without weights of He et al. 2016: new channels are zeros."""

        def __init__(self) -> None:
            super().__init__()
            self.a, self.b, self.c, self.d = nn.Linear(3, 4), nn.Linear(4, 6), nn.Linear(6, 6), nn.Linear(6, 2)

        def forward(self, x: Tensor) -> Tensor:
            x = torch.relu(self.a(x))
            return self.d(self.c(torch.relu(self.b(x))) + functional.pad(x, (0, 2)))

    found = sc.groups(OptionA(), torch.randn(2, 3))
    assert [group.name for group in found] == ["b"]
    assert "fixed size" in found.left_whole["c"]


def test_an_unknown_policy_names_the_nearest() -> None:
    with pytest.raises(sc.InputError, match="did you mean 'inner'"):
        sc.groups(*make("mlp"), residual="iner")


def test_an_example_without_a_batch_is_refused() -> None:
    with pytest.raises(sc.InputError, match="add a batch axis"):
        sc.groups(make("mlp")[0], torch.zeros(4))


# As found ----------------------------------------------------------------------------------------------------------


def test_reading_groups_leaves_the_network_as_found() -> None:
    model, x = make("preresnet11")
    model.train()
    model.bn.eval()
    model(x).sum().backward()
    before, mode = copy.deepcopy(model.state_dict()), [m.training for m in model.modules()]
    gradients = [p.grad.clone() for p in model.parameters()]
    random = torch.get_rng_state()
    sc.groups(model, x)
    assert all(torch.equal(value, before[key]) for key, value in model.state_dict().items())
    assert [m.training for m in model.modules()] == mode
    assert all(torch.equal(p.grad, g) for p, g in zip(model.parameters(), gradients, strict=True))
    assert torch.equal(torch.get_rng_state(), random)


@pytest.mark.parametrize("name", ZOO)
def test_groups_know_what_the_network_costs(name: str) -> None:
    model, x = make(name)
    found = read(name)
    assert found.parameters() == sum(p.numel() for p in model.parameters())
    assert found.flops() == cost(model, x).flops


@pytest.mark.parametrize("name", ["resnext", "unet", "shufflenet", "preresnet11"])
def test_groups_survive_json(name: str) -> None:
    found = read(name)
    again = from_json(json.loads(json.dumps(to_json(found))))
    assert again.fingerprint == found.fingerprint
    for group, other in zip(found, again, strict=True):
        assert str(group) == str(other)
        for m, o in zip(group.members, other.members, strict=True):
            assert (m.key, m.axis, m.role) == (o.key, o.axis, o.role)
            assert np.array_equal(m.units, o.units)


def test_groups_print_and_are_found_by_name() -> None:
    found = read("vgg16")
    assert str(found).splitlines()[0] == "features.0: 4 units, read by features.3"
    with pytest.raises(sc.InputError, match=r"did you mean 'features\.3'"):
        found["featurs.3"]


# Whole branches ----------------------------------------------------------------------------------------------------


def test_every_residual_branch_of_a_resnet_can_go() -> None:
    found = sc.groups(*make("resnet18"), residual="inner").branches
    names = [branch.name for branch in found]
    assert names == [f"layer{stage}.{block}" for stage in (1, 2, 3, 4) for block in (0, 1)]
    branch = found[2]
    assert set(branch.modules) == {"layer2.0.conv1", "layer2.0.bn1", "layer2.0.act1", "layer2.0.conv2", "layer2.0.bn2"}
    assert not any("downsample" in key for key in branch.keys)


def test_a_plain_network_has_no_branches() -> None:
    assert sc.groups(*make("vgg16"), residual="inner").branches == ()
    gated = sc.groups(SEResNet(), torch.randn(2, 3, 16, 16), residual="inner")
    assert gated.branches == ()  # the gate needs the branch's shape


def test_costs_without_a_branch_leave_out_its_parameters() -> None:
    found = read("resnet18")
    keep = {BLOCKS: np.array([False] + [True] * 7)}
    gone = sum(int(np.prod(found.parameter_shapes[key])) for key in found.branches[0].keys)
    assert found.parameters(keep) == found.parameters() - gone
    assert found.flops(keep) < found.flops()


# Strangers' programs -----------------------------------------------------------------------------------------------


class Unbound(nn.Module):
    """Queries, keys and values from one layer, taken apart by unbind, as timm writes it."""

    def __init__(self) -> None:
        super().__init__()
        self.qkv, self.o = nn.Linear(4, 24), nn.Linear(8, 2)

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = self.qkv(x).unflatten(-1, (3, -1)).unbind(-2)
        return self.o(q * 0.5 + k * v)


def test_pieces_of_unbind_leave_together() -> None:
    found = sc.groups(Unbound(), torch.randn(2, 4))
    assert [(group.name, group.size) for group in found] == [("qkv", 8)]


class Caching(nn.Module):
    """Keeps what it computed from the first input it saw, as detectors keep their anchors."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.o = nn.Conv2d(3, 8, 1), nn.Conv2d(8, 2, 1)
        self.shape, self.grid = None, torch.empty(0)

    def forward(self, x: Tensor) -> Tensor:
        y = self.o(self.a(x).relu())
        if self.shape != x.shape:
            self.shape, self.grid = x.shape, torch.arange(x.shape[-1], dtype=x.dtype)
        return y + self.grid


def test_a_network_that_keeps_caches_is_left_as_found() -> None:
    model, x = Caching(), torch.randn(3, 3, 4, 4)
    assert [group.name for group in sc.groups(model, x)] == ["a"]
    assert model.shape is None
    assert model(x).shape == (3, 2, 4, 4)


class GraphNet(nn.Module):
    """Messages along edges: the nodes and the edges of a graph have different numbers of rows."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.b, self.o = nn.Linear(5, 8), nn.Linear(8, 8), nn.Linear(8, 2)

    def forward(self, nodes: Tensor, edges: Tensor) -> Tensor:
        h = self.a(nodes).relu()
        gathered = torch.zeros_like(nodes[:, :1]).index_add(0, edges[1], nodes[edges[0], :1])
        return self.o(self.b(h).relu() * gathered)


def test_the_nodes_and_edges_of_a_graph_are_not_cut_to_two_rows() -> None:
    nodes, edges = torch.randn(20, 5), torch.randint(0, 20, (2, 40))
    found = sc.groups(GraphNet(), (nodes, edges))
    assert [group.name for group in found] == ["a", "b"]
    assert found.flops() == 2 * 20 * (5 * 8 + 8 * 8 + 8 * 2)


def test_a_forgotten_batch_axis_is_named_with_the_shape_that_was_given() -> None:
    model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.Flatten(), nn.Linear(4 * 36, 2))
    with pytest.raises(sc.InputError, match=r"shape \(3, 8, 8\).*batch axis"):
        sc.groups(model, torch.randn(3, 8, 8))


def test_a_network_of_which_nothing_can_leave_is_refused_with_the_reasons() -> None:
    with pytest.raises(sc.InputError, match=r"no channels .* can be removed: 0 \(it is the network's output\)"):
        sc.draw(nn.Sequential(nn.Linear(4, 2)), torch.randn(2, 4), method="l2", keep=0.5)
    with pytest.raises(sc.InputError, match="scores residual branches"):
        sc.draw(*make("mlp"), method="l2", budget=sc.Budget(0.5, "blocks"))


def test_parts_that_are_joined_along_another_axis_leave_together() -> None:
    class Joined(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a, self.b, self.o = nn.Conv2d(3, 6, 1), nn.Conv2d(3, 6, 1), nn.Linear(6 * 8 * 4, 3)

        def forward(self, x: Tensor) -> Tensor:
            return self.o(torch.cat([self.a(x), self.b(x)], 2).flatten(1))

    found = sc.groups(Joined(), torch.randn(2, 3, 4, 4))
    assert [(group.name, group.size, len(group.producers)) for group in found] == [("a", 6, 2)]
