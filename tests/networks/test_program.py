"""A network run step by step gives what the network itself gives, from any step on and with other weights."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from splinecut.errors import InputError
from splinecut.networks.program import Program
from support.coupled_networks import make

DOUBLE = torch.float64
Then = Callable[[Any, Tensor], Any]
pytestmark = pytest.mark.timeout(60)  # an order of steps that goes round in circles would never end


def drawn(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=DOUBLE)


class Block(nn.Module):
    """A residual block, after or before its activations (He et al. 2016); the downsampling comes last in the code."""

    def __init__(self, inputs: int, outputs: int, is_pre: bool, inplace: bool) -> None:
        super().__init__()
        self.conv1, self.conv2 = nn.Conv2d(inputs, outputs, 3, padding=1), nn.Conv2d(outputs, outputs, 3, padding=1)
        self.norm1, self.norm2 = nn.BatchNorm2d(inputs if is_pre else outputs), nn.BatchNorm2d(outputs)
        self.relu, self.is_pre = nn.ReLU(inplace), is_pre
        bare = nn.Conv2d(inputs, outputs, 1)
        self.down = None if inputs == outputs else bare if is_pre else nn.Sequential(bare, nn.BatchNorm2d(outputs))

    def parts(self, x: Tensor) -> tuple[Tensor, Tensor]:
        if self.is_pre:
            branch = self.conv2(self.norm2(self.conv1(self.norm1(x).relu())).relu())
        else:
            branch = self.norm2(self.conv2(self.relu(self.norm1(self.conv1(x)))))
        return branch, x if self.down is None else self.down(x)

    def forward(self, x: Tensor) -> Tensor:
        y, shortcut = self.parts(x)
        y += shortcut
        return y if self.is_pre else self.relu(y)


class Encoder(nn.Module):
    """Token ids and a mask of padding through one encoder layer, read out with the weights of the embedding."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(11, 8)
        self.layer = nn.TransformerEncoderLayer(8, 2, 12, batch_first=True)
        self.head = nn.Linear(8, 11)
        self.head.weight = self.embed.weight

    def forward(self, ids: Tensor, is_padding: Tensor) -> Tensor:
        return self.head(self.layer(self.embed(ids), src_key_padding_mask=is_padding))


def alive(model: nn.Module, seed: int = 0) -> nn.Module:
    """With weights and statistics that leave nothing at zero or one."""
    generator = torch.Generator().manual_seed(seed)
    for key, value in model.double().eval().state_dict().items():
        if value.is_floating_point() and not key.endswith("running_var"):
            value.normal_(0, 0.5, generator=generator)
        elif value.is_floating_point():
            value.uniform_(0.5, 2, generator=generator)
    return model


def run(program: Program, arguments: tuple[Any, ...], **changed: Tensor) -> Tensor:
    weights = program.weights | changed
    return torch.cat([program.outputs(values, 0, weights)[:n] for n, values in program.chunks(arguments)])


def given(name: str) -> tuple[nn.Module, tuple[Any, ...]]:
    """The network of that name and ten inputs."""
    if name == "encoder":
        ids = torch.randint(11, (10, 5), generator=torch.Generator().manual_seed(0))
        return alive(Encoder()), (ids, torch.arange(5) >= torch.arange(10)[:, None] % 4 + 2)
    if name in ZOO:
        model, x = make(name, DOUBLE)
        return model, (drawn(10, *x.shape[1:]),)
    options = name == "pre-activation", name == "residual"
    return alive(nn.Sequential(*(Block(*sides, *options) for sides in ((3, 4), (4, 4), (4, 6))))), (drawn(10, 3, 6, 6),)


NAMES = ("residual", "pre-activation", "encoder")
ZOO = ("densenet", "mobilenetv2", "resnext", "unet", "vit", "recurring", "shufflenet", "group-norm", "se-resnet")


@pytest.mark.parametrize("name", [*NAMES, "residual, nothing in place", *ZOO])
def test_the_program_gives_what_the_network_gives(name: str) -> None:
    model, arguments = given(name)
    program = Program(model, arguments, 4)  # ten rows: the last batch has to be filled up
    with torch.no_grad():
        expected = model(*arguments)
    assert expected.std(0).max() > 1e-5
    torch.testing.assert_close(run(program, arguments), expected, rtol=1e-12, atol=1e-12)
    assert [n for n, _ in program.chunks(arguments)] == [4, 4, 2] and program.bytes_per_input > 0


@pytest.mark.parametrize("name", [*NAMES, "unet"])
def test_running_goes_on_from_any_step_on_a_copy_of_the_values(name: str) -> None:
    program = Program(*(made := given(name)), 10)
    ((_, first),) = program.chunks(made[1])
    expected = program.outputs(dict(first), 0, program.weights)
    for stop in range(len(program.steps) + 1):
        copied = dict(values := program.run(dict(first), 0, stop, program.weights))
        assert torch.equal(program.outputs(values, stop, program.weights), expected)
        assert torch.equal(program.outputs(copied, stop, program.weights), expected)  # the first left it as it was


@pytest.mark.parametrize("name", [*NAMES, "recurring"])
def test_another_weight_does_what_it_does_in_the_network(name: str) -> None:
    model, arguments = given(name)
    program = Program(model, arguments, 4)
    before, tensors = run(program, arguments), dict(model.named_parameters()) | dict(model.named_buffers())
    for key in (key for key in program.weights if not key.endswith("num_batches_tracked")):
        old = tensors[key].detach().clone()
        ours = run(program, arguments, **{key: (new := old + 0.3 * (1 + old.abs()))})
        with torch.no_grad():
            tensors[key].copy_(new)
            expected = model(*arguments)
            tensors[key].copy_(old)
        torch.testing.assert_close(ours, expected, rtol=1e-12, atol=1e-12)
        assert not torch.allclose(ours, before), key


@pytest.mark.parametrize("name", ["residual", "pre-activation"])
def test_the_last_layer_of_a_block_runs_when_what_it_is_added_to_is_known(name: str) -> None:
    model, arguments = given(name)
    program = Program(model, arguments, 10)
    ((_, values),) = program.chunks(arguments)
    seen = dict(values)
    for step in range(len(program.steps)):
        seen |= program.run(values, step, step + 1, program.weights)
    for place, block in enumerate(model):
        layers = [layer for key, layer in program.layers.items() if key.startswith(f"{place}.")]
        (last,) = (layer for layer in layers if layer.stream is not None)  # of branch and shortcut one is the last
        assert program.place.get(last.stream, -1) < program.place[last.node]
        with torch.no_grad():
            branch, shortcut = block.parts(model[:place](*arguments))
        expected = shortcut if "conv2" in last.key else branch
        torch.testing.assert_close(seen[last.stream], expected, rtol=1e-12, atol=1e-12)
        assert "conv1" not in last.key and (last.norm is None) == block.is_pre


class Small(nn.Module):
    def __init__(self, then: Then) -> None:
        super().__init__()
        self.a, self.b, self.norm, self.then = nn.Linear(4, 4), nn.Linear(4, 4), nn.BatchNorm1d(4), then

    def forward(self, x: Tensor) -> Any:
        return self.then(self, x)


def small(forward: Then) -> Program:
    return Program(alive(Small(forward)), (drawn(6, 4),), 6)


def test_a_stream_that_depends_on_the_layer_is_none() -> None:
    assert small(lambda m, x: (y := m.a(x)) + m.b(y.relu())).layers["a.weight"].stream is None
    assert small(lambda m, x: (y := m.a(x)) + y).layers["a.weight"].stream is None
    assert small(lambda m, x: torch.add(m.a(x), x, alpha=2)).layers["a.weight"].stream is None
    assert small(lambda m, x: m.a(x) + x).layers["a.weight"].stream is not None


def test_of_two_layers_that_are_added_one_waits_for_the_other() -> None:
    program = small(lambda m, x: m.a(x) + m.b(x))
    (waiting,) = (layer for layer in program.layers.values() if layer.stream is not None)
    assert program.place[waiting.stream] < program.place[waiting.node]


def test_a_norm_belongs_to_a_layer_that_nobody_else_reads() -> None:
    assert small(lambda m, x: m.norm(m.a(x)).relu()).layers["a.weight"].norm is not None
    shared = small(lambda m, x: m.norm(y := m.a(x)).relu() + y)
    assert shared.layers["a.weight"].norm is None and [norm.mean for norm in shared.norms] == ["norm.running_mean"]


def test_the_output_is_the_first_floating_point_one_with_a_row_for_each_input() -> None:
    x = drawn(6, 4)
    named = small(lambda m, x: {"ids": m.a(x).argmax(1), "logits": m.a(x), "other": m.b(x)})
    for program in (named, small(lambda m, x: (m.a(x).sum(), m.a(x), m.b(x)))):
        assert torch.allclose(run(program, (x,)), program.model.a(x), rtol=1e-12, atol=1e-12)
    with pytest.raises(InputError, match="floating-point output"):
        small(lambda m, x: m.a(x).argmax(1))


def test_an_argument_without_a_row_for_each_input_is_passed_on_whole() -> None:
    class Table(nn.Linear):
        def forward(self, x: Tensor, table: Tensor) -> Tensor:
            return super().forward(x @ table)

    model, arguments = alive(Table(3, 5)), (drawn(10, 2), drawn(2, 3, seed=1))  # as long as the last batch
    assert torch.allclose(run(Program(model, arguments, 4), arguments), model(*arguments), rtol=1e-12, atol=1e-12)
