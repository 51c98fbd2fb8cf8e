"""The refit of whole networks: what is redundant leaves without a trace, and what is not is made up for."""

from __future__ import annotations

import copy
from functools import cache

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import splinecut as sc
from splinecut.networks.groups.values import BLOCKS, Groups
from splinecut.networks.program import Program
from splinecut.pruning.refit import propagation, ridge
from splinecut.pruning.refit.propagation import Removal, propagate
from splinecut.pruning.ticket import Ticket
from support import coupled_networks

DOUBLE = torch.float64
Keeps = dict[str, np.ndarray]


def drawn(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=DOUBLE)


def calibrated(model: nn.Module, x: Tensor) -> nn.Module:
    """With the statistics of these inputs in its batch norms, so that hardly a unit is dead."""
    for norm in (m for m in model.modules() if isinstance(m, nn.BatchNorm1d | nn.BatchNorm2d)):
        norm.momentum = None
        norm.reset_running_stats()
        norm.bias.data.mul_(0.1)
    with torch.no_grad():
        model.train()(x)
    return model.eval()


def distance(ours: Tensor, dense: Tensor) -> float:
    """As a share of how far outputs of different inputs are apart."""
    return float(((ours - dense).norm() / (dense - dense.mean(0)).norm()).detach())


def duplicate(model: nn.Module, found: Groups) -> Keeps:
    """Makes the second half of each group copies of the first, whatever reads them; the keep map without copies."""
    tensors, keep = dict(model.named_parameters()) | dict(model.named_buffers()), {}
    for group in found:
        half = -(-group.size // 2)
        for member in (*group.role("producer"), *group.role("follower")):
            source = np.arange(len(member.units))
            for unit in range(half, group.size):
                source[member.units == unit] = np.nonzero(member.units == unit - half)[0]
            with torch.no_grad():
                tensors[member.key].copy_(tensors[member.key].index_select(member.axis, torch.from_numpy(source)))
        keep[group.name] = np.arange(group.size) < half
    return keep


def transposed(groups: int = 1) -> nn.Module:
    torch.manual_seed(0)
    up = nn.ConvTranspose2d(8, 6, 3, stride=2, padding=1, output_padding=1, groups=groups)
    return nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), up, nn.ReLU(), nn.Conv2d(6, 2, 1)).double()


def redundant(name: str) -> tuple[nn.Module, Groups, Keeps, tuple[int, ...]]:
    if name.startswith("transposed"):
        model, shape = transposed(2 if name.endswith("grouped") else 1).eval(), (3, 8, 8)
        found = sc.groups(model, drawn(2, *shape))
    else:
        model, x = coupled_networks.make(name, DOUBLE)
        found, shape = coupled_networks.read(name), tuple(x.shape[1:])
    keep = duplicate(model, found)
    return calibrated(model, drawn(100, *shape, seed=5)), found, keep, shape


def refitted(name: str) -> tuple[float, float]:
    """How far the network without its copies is from the dense one on other inputs: refitted, and left alone."""
    model, found, keep, shape = redundant(name)
    ticket, probe, other = Ticket(keep, found), drawn(160, *shape, seed=1), drawn(16, *shape, seed=2)
    with torch.no_grad():
        dense, bare = model(other), sc.cut(model, ticket)(other)
        ours = sc.cut(model, ticket, refit="least_squares", probe=probe)(other)
    return distance(ours, dense), distance(bare, dense)


# Plain, residual (both kinds, with downsampling), concatenated, depthwise, grouped, gated, transposed.
NETWORKS = ("mlp", "preresnet11", "resnet18", "densenet", "mobilenetv2", "resnext", "se-resnet", "unet")


@pytest.mark.parametrize("name", [*NETWORKS, "transposed", "transposed and grouped"])
def test_copies_of_kept_units_leave_without_a_trace(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ridge, "RIDGES", (1e-9, *ridge.RIDGES))  # the algebra, without what the ridge leaves
    assert (found := refitted(name))[0] < 1e-6 and found[1] > 0.1


@pytest.mark.parametrize("name", ["mlp", "resnext", "unet", "transposed"])
def test_the_ridge_leaves_hardly_a_trace(name: str) -> None:
    assert refitted(name)[0] < 1e-4


@pytest.mark.parametrize("name", ["convnet", "vgg16", "se-resnet"])
def test_layers_with_too_many_columns_are_fitted_channel_by_channel(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(propagation, "COLUMNS", 8)
    monkeypatch.setattr(ridge, "RIDGES", (1e-9, *ridge.RIDGES))
    assert (found := refitted(name))[0] < 1e-5 and found[1] > 0.1


class Block(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.conv1, self.norm1 = nn.Conv2d(width, width, 3, padding=1, bias=False), nn.BatchNorm2d(width)
        self.conv2, self.norm2 = nn.Conv2d(width, width, 3, padding=1, bias=False), nn.BatchNorm2d(width)

    def forward(self, x: Tensor) -> Tensor:
        return (x + self.norm2(self.conv2(self.norm1(self.conv1(x)).relu()))).relu()


@cache
def deep(seed: int = 0, n_blocks: int = 5, width: int = 12) -> tuple[nn.Sequential, Groups]:
    """A residual network with the statistics of many inputs; its groups."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        stem = (nn.Conv2d(3, width, 3, padding=1), nn.BatchNorm2d(width), nn.ReLU())
        blocks = [Block(width) for _ in range(n_blocks)]
        model = nn.Sequential(*stem, *blocks, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(width, 5)).double()
        calibrated(model, drawn(400, 3, 8, 8, seed=seed + 9))
    return model, sc.groups(model, drawn(2, 3, 8, 8))


def random_keep(found: Groups, seed: int = 0, share: float = 0.5) -> Keeps:
    """A random part of the units inside of blocks; the stream stays whole."""
    rng, inner = np.random.default_rng(seed), (group for group in found if group.name.endswith("conv1"))
    return {group.name: rng.permutation(group.size) < share * group.size for group in inner}


@cache
def errors(seed: int, **options: bool) -> list[float]:
    """On inputs that are not in the probe: of every block's output, and of the network's."""
    model, found = deep(seed)
    probe = (drawn(128, 3, 8, 8, seed=seed + 1),)
    fitted = propagate(Program(model, probe, 64), probe, Removal(found, random_keep(found, seed)), **options)
    (ours := copy.deepcopy(model)).load_state_dict({**model.state_dict(), **fitted.weights})
    x = drawn(64, 3, 8, 8, seed=seed + 2)
    with torch.no_grad():
        return [distance(ours[:stop](x), model[:stop](x)) for stop in (*range(4, 9), len(model))]


@pytest.mark.parametrize("seed", [0, 1])
def test_block_outputs_are_closer_when_the_target_includes_the_error_of_the_stream(seed: int) -> None:
    blocks, branches = errors(seed), errors(seed, residual_target=False)
    assert blocks[0] == pytest.approx(branches[0]) and blocks[0] > 1e-2  # before the first the stream has no error
    assert all(ours < theirs for ours, theirs in zip(blocks[1:5], branches[1:5], strict=True))


@pytest.mark.parametrize("seed", [0, 1])
def test_fitting_every_layer_is_no_worse_on_other_inputs_than_fitting_readers(seed: int) -> None:
    assert errors(seed)[-1] < errors(seed, every_layer=False)[-1]


@torch.no_grad()
def test_statistics_after_the_refit_are_those_of_many_inputs_as_before() -> None:
    model, found = deep()
    many, probe = drawn(400, 3, 8, 8, seed=9), drawn(400, 3, 8, 8, seed=1)
    ticket = Ticket(random_keep(found), found)
    smaller, bare = sc.cut(model, ticket, refit="least_squares", probe=probe), sc.cut(model, ticket)
    gaps = [distance(copy.deepcopy(m).train()(many), m(many)) for m in (model, smaller, bare)]
    assert gaps[0] < 0.01 and gaps[1] < 0.15 and gaps[2] > 1


def test_the_dense_network_and_the_random_numbers_stay_as_they_are() -> None:
    model, found = deep()
    model.train()
    state, random, probe = copy.deepcopy(model.state_dict()), torch.get_rng_state(), drawn(32, 3, 8, 8)
    sc.cut(model, Ticket(random_keep(found), found), refit="least_squares", probe=probe)
    assert all(torch.equal(value, state[key]) for key, value in model.state_dict().items())
    assert all(module.training for module in model.modules())
    assert torch.equal(torch.get_rng_state(), random)
    assert all(p.grad is None for p in model.eval().parameters()) and torch.equal(probe, drawn(32, 3, 8, 8))


@pytest.mark.parametrize("what", ["an emptied group", "dropped blocks", "both"])
def test_what_is_emptied_or_dropped_leaves_a_finite_network_that_the_refit_helps(what: str) -> None:
    model, found = deep()
    keep = random_keep(found, share=0.7)
    if what != "dropped blocks":
        keep["4.conv1"] = np.zeros(12, bool)
    if what != "an emptied group":
        keep[BLOCKS] = np.arange(len(found.branches)) % 3 != 2
    ticket, x, probe = Ticket(keep, found), drawn(64, 3, 8, 8, seed=3), drawn(128, 3, 8, 8, seed=4)
    dense, bare = model(x), sc.cut(model, ticket)(x)
    ours = sc.cut(model, ticket, refit="least_squares", probe=probe)(x)
    assert torch.isfinite(ours).all() and ours.std(0).min() > 1e-3
    assert distance(ours, dense) < distance(bare, dense)


@pytest.mark.filterwarnings("error::splinecut.errors.ProbeWarning")
def test_nobody_is_asked_for_more_inputs_for_a_layer_that_reads_nothing() -> None:
    ticket = Ticket({"4.conv1": np.zeros(12, bool)}, deep()[1])
    sc.cut(deep()[0], ticket, refit="least_squares", probe=drawn(128, 3, 8, 8, seed=4))
