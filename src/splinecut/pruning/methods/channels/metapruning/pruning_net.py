"""A network whose weights are functions of its widths, so that one training serves every width (Liu et al. 2019).

The weight of every linear and convolutional layer is made by two small linear layers from the width ratios of the
groups that touch it, and cropped to the first units of each group:

    weight = crop(B relu(A ratios + a) + b)

It works on any network whose groups can be read. Departures from the reference: a layer sees the ratios on its own
two sides rather than those of its residual block; b starts as the network's own initial weights, so that it trains
like the network does; batch norm always uses the statistics of the batch, where the reference has one norm for each
ratio (both normalise a width by itself; networks that leave here are recalibrated).
"""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn import functional

from splinecut.networks import surgery
from splinecut.networks.groups.values import Groups
from splinecut.networks.surgery.optimizer import sliced
from splinecut.pruning.budget import Keep
from splinecut.pruning.unit_parameters import BatchNorm
from splinecut.pruning.weight_mask import prunable_weights
from splinecut.training.hooks import Hook, TrainState

Widths = Mapping[str, int]
"""group -> how many of its units stay"""


class PruningNet(nn.Module):
    """`model` with generated weights. It trains at the widths last given to `narrow`, and is evaluated at full width.

    Parameters beside weights and batch norms (biases, slopes) are learned as they are and cropped; batch norms have
    no gain and shift. Memory is `hidden` times that of the weights, as in the paper.
    """

    def __init__(self, model: nn.Module, groups: Groups, hidden: int = 32) -> None:
        super().__init__()
        self.groups, self.full = groups, {group.name: group.size for group in groups}
        self._touching = {
            key: [g.name for g in groups if any(m.key == key for m in g.members)] for key in prunable_weights(model)
        }
        self.generators = nn.ModuleList(
            WeightGenerator(weight, max(1, len(self._touching[key])), hidden)
            for key, weight in prunable_weights(model).items()
        )
        self._constant = _norm_parameters(model)
        learned = [key for key, _ in model.named_parameters() if key not in {*self._touching, *self._constant}]
        self._learned = tuple(learned)
        self.learned = nn.ParameterList(model.get_parameter(key).detach().clone() for key in learned)
        # In tuples, so that they are no parts of this module: what runs is a shape, the numbers come from here.
        self._bare = (_without_data(model),)
        self._full_width = (_unremembering(copy.deepcopy(self._bare[0])),)
        self.narrow(self.full)

    def narrow(self, widths: Widths) -> None:
        """The widths to train at from now on."""
        self.widths, self._narrow = widths, (_unremembering(self._cut(widths)),)

    def forward(self, x: Float[Tensor, "batch *input"]) -> Float[Tensor, "batch outputs"]:
        (shape,), widths = (self._narrow, self.widths) if self.training else (self._full_width, self.full)
        return functional_call(shape.train(self.training), self.weights(widths), (x,))

    def weights(self, widths: Widths) -> dict[str, Tensor]:
        """Every parameter of the network at these widths, by name; gradients flow back to what made them."""
        full: dict[str, Tensor] = {}
        for (key, touching), generator in zip(self._touching.items(), self.generators, strict=True):
            full[key] = generator([widths[name] / self.full[name] for name in touching] or [1.0])
        full |= dict(zip(self._learned, self.learned, strict=True))
        like = next(self.parameters())
        for key, (value, shape) in self._constant.items():
            full[key] = torch.full(shape, value, device=like.device, dtype=like.dtype)
        slices = self.groups.slices(first_units(self.groups, widths))
        return {key: sliced(value, slices[key]) if key in slices else value for key, value in full.items()}

    @torch.no_grad()
    def network(self, widths: Widths) -> nn.Module:
        """An ordinary network of these widths that holds the generated weights; its batch norms know nothing yet."""
        network = self._cut(widths)
        network.load_state_dict(self.weights(widths), strict=False, assign=True)
        return network

    @property
    def generating_flops(self) -> int:
        """What it takes to generate all weights once."""
        layers = [layer for generator in self.generators for layer in generator.children()]
        return sum(2 * layer.weight.numel() for layer in layers if isinstance(layer, nn.Linear))

    def _cut(self, widths: Widths) -> nn.Module:
        return surgery.cut(self._bare[0], self.groups, first_units(self.groups, widths))


class WeightGenerator(nn.Module):
    """ratios -> a weight tensor, by two linear layers; at first near `weight`, whatever the ratios."""

    def __init__(self, weight: Tensor, n_ratios: int, hidden: int) -> None:
        super().__init__()
        self.shape = weight.shape
        self.first = nn.Linear(n_ratios, hidden)
        self.second = nn.Linear(hidden, weight.numel())
        with torch.no_grad():
            # Scaled by the weights' spread: at first the ratios change a weight by a part of its usual size.
            self.second.weight.mul_(weight.detach().std(correction=0))
            self.second.bias.copy_(weight.detach().flatten())

    def forward(self, ratios: Sequence[float]) -> Tensor:
        x = torch.tensor(ratios, device=self.first.weight.device, dtype=self.first.weight.dtype)
        return self.second(functional.relu(self.first(x))).view(self.shape)


class DrawWidths(Hook):
    """Gives every step random widths, a function of (seed, step); each step is charged what it ran at."""

    def __init__(self, levels: Sequence[float], seed: int) -> None:
        self.levels, self.seed = levels, seed

    def start(self, state: TrainState) -> None:
        self._draw(state)

    def loss(self, state: TrainState, outputs: Tensor, targets: Tensor, loss: Tensor) -> Tensor:
        net = _net(state)
        state.forward_flops = net.groups.flops(first_units(net.groups, net.widths))
        return loss

    def after_step(self, state: TrainState) -> None:
        state.ledger.charge(state.phase.with_part("generate weights"), _net(state).generating_flops, 1)
        self._draw(state)

    def _draw(self, state: TrainState) -> None:
        net = _net(state)
        # From (seed, step), so that a resumed training draws what it would have drawn.
        generator = np.random.default_rng([self.seed, state.step])
        net.narrow(width_of(net.groups, generator.choice(self.levels, len(net.groups))))
        state.forward_flops = net.groups.flops()  # of the validation that may come before the next step


def _net(state: TrainState) -> PruningNet:
    assert isinstance(state.model, PruningNet)
    return state.model


def width_of(groups: Groups, ratios: Sequence[float] | np.ndarray) -> dict[str, int]:
    """Units of each group at these ratios, one at least."""
    return {group.name: max(1, round(ratio * group.size)) for group, ratio in zip(groups, ratios, strict=True)}


def first_units(groups: Groups, widths: Widths) -> Keep:
    """The keep map of the first units of each group."""
    return {group.name: np.arange(group.size) < widths[group.name] for group in groups}


def _norm_parameters(model: nn.Module) -> dict[str, tuple[float, torch.Size]]:
    """Gains (1) and shifts (0) of all batch norms, with their shapes."""
    constants = {}
    for path, module in model.named_modules():
        for name, parameter in module.named_parameters(recurse=False) if isinstance(module, BatchNorm) else ():
            constants[f"{path}.{name}" if path else name] = (float(name == "weight"), parameter.shape)
    return constants


def _without_data(model: nn.Module) -> nn.Module:
    """A copy whose parameters have a shape but no data: cutting it costs nothing."""
    memo: dict[int, Any] = {
        id(p): nn.Parameter(torch.empty_like(p, device="meta"), p.requires_grad) for p in model.parameters()
    }
    return copy.deepcopy(model, memo)


def _unremembering(model: nn.Module) -> nn.Module:
    """The model with batch norms that use the statistics of the batch at hand, in evaluation too."""
    norms = [(path, module) for path, module in model.named_modules() if isinstance(module, BatchNorm)]
    for path, norm in norms:
        parent, _, name = path.rpartition(".")
        setattr(model.get_submodule(parent), name, _OfTheBatch(norm))
    return model


class _OfTheBatch(nn.Module):
    """Batch norm without memory. A batch of one value a channel, which torch refuses to train on, gives zeros."""

    def __init__(self, norm: nn.Module) -> None:
        super().__init__()
        self.weight, self.bias, self.eps = norm.weight, norm.bias, norm.eps

    def forward(self, x: Tensor) -> Tensor:
        return torch.batch_norm(x, self.weight, self.bias, None, None, True, 0.0, self.eps, x.is_cuda)  # type: ignore[arg-type]
