"""ThiNet: channels leave whose contributions to sampled outputs of the next layer change their sum least.

Luo et al. (2017): one output of the next layer (an image, a filter, a position), less its bias, is a sum of what each
of its input channels adds,

    y = sum over c of x_c .

Of m such samples, X is (m, channels). Channels leave so that |sum over removed c of x_c|^2, over all samples, stays
small; those kept are then scaled by w = argmin |y - X_kept w|^2, which multiplies the next layer's weights. Layers are
cut one by one from the input, with a short training after each, so every layer is judged on an already cut network.

Departures: every group is cut, where the authors spare the last layers of VGG. The least squares look for the w
nearest to 1, so a channel that is silent in the samples keeps its weights. A channel that several layers read is
judged by all of them, each counting alike, and each scales by its own w.
"""

from __future__ import annotations

import copy
import zlib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Literal, cast

import numpy as np
import torch
from jaxtyping import Float, Int64
from torch import Tensor, nn
from torch.nn import functional as F

from splinecut.networks.groups.values import Groups, UnitGroup
from splinecut.pruning.activations import ConsumerLayer, Place, consumer_layers, run_with_input_hooks
from splinecut.pruning.budget import Budget, Keep, even_keep, select_evenly
from splinecut.pruning.evidence import Evidence
from splinecut.pruning.method import Method, Round, Scores
from splinecut.pruning.options import Count, NotNegativeInt, Positive
from splinecut.pruning.unit_parameters import filter_norm
from splinecut.training.config import Schedule, TrainingConfig
from splinecut.training.ledger import FORWARD, Phase

if TYPE_CHECKING:
    from splinecut.pruning.engine.context import RunContext
    from splinecut.pruning.ticket import Ticket

Contributions = dict[Place, Float[np.ndarray, "samples units"]]
"""Place of a consumer layer -> what each unit adds to each sampled output."""

TINY = np.finfo(float).tiny


@dataclass(frozen=True)
class ThiNet(Method):
    """greedy "removal" (2017): the channel leaves whose going changes the sum of all removed ones least.
    greedy "selection" (2019): the channel is added that best explains what the chosen ones, refitted, leave of y.

    Samples: `images` of each class (of the experiment's probe), `positions` random outputs of each. After each layer
    `tune_epochs` at a constant `tune_lr`; `rescale` multiplies what is kept by the least-squares w.
    """

    reference: ClassVar[str] = "Luo et al. 2017; selection: Luo et al. 2019"
    state: ClassVar[str] = "after training, layer by layer"
    residual: ClassVar[Literal["tied", "select", "inner"]] = "inner"
    is_random: ClassVar[bool] = True  # the sampled filters are units of the next group

    greedy: Literal["removal", "selection"] = "removal"
    images: Count = 10
    positions: Count = 10
    rescale: bool = True
    tune_epochs: NotNegativeInt = 1
    tune_lr: Positive = 1e-3

    def rounds(self, budget: Budget, groups: Groups | None) -> Sequence[Round]:
        """One for each group that loses units, in the order they run."""
        assert groups is not None
        cut = [name for name, kept in even_keep(groups, budget).items() if not kept.all()]
        return [Round(budget, only=name) for name in cut] or [Round(budget)]

    def between(self, plan: TrainingConfig) -> TrainingConfig:
        gentle = plan.optimizer.model_copy(update={"lr": self.tune_lr})
        constant = Schedule(name="constant")
        return plan.model_copy(update={"epochs": self.tune_epochs, "optimizer": gentle, "schedule": constant})

    def score(self, evidence: Evidence, budget: Budget) -> Scores:
        """The turn at which each unit leaves its group; groups that no refittable layer reads go by L2."""
        contributions = self.contributions(evidence, evidence.groups)
        scores = {}
        for group in evidence.groups:
            grams = [_gram(contributions[place]) for place in contributions if place[0] == group.name]
            turns = (
                np.argsort(GREEDY_ORDERS[self.greedy](np.sum(grams, axis=0)))
                if grams
                else filter_norm(evidence.model, group)
            )
            scores[group.name] = turns.astype(float)
        return scores

    def flops(self, evidence: Evidence, forward_flops: int) -> int:
        """A pass of the sampled images, the products of all pairs of channels, and the greedy search."""
        images = len(self._images(evidence))
        read = [(group.size, len(consumer_layers(evidence.model, group))) for group in evidence.groups]
        products = sum(2 * n * images * self.positions * units**2 for units, n in read)
        steps = {"removal": 2, "selection": 3}[self.greedy]
        return images * forward_flops + products + sum(2 * units**steps for units, _ in read)

    def select(self, scores: Scores, budget: Budget, groups: Groups | None, search_result: Any) -> Keep:
        """The same share of every group, whatever the budget's scope: turns mean nothing across layers."""
        assert groups is not None
        return select_evenly(scores, budget, groups)

    def apply(self, context: RunContext, model: nn.Module, ticket: Ticket, evidence: Evidence) -> nn.Module:
        """The cut network, its next layers scaled; a refit that the experiment asks for stands in for the scaling."""
        if not self.rescale or context.refit is not None:
            return context.apply(model, ticket)
        losing = [group for group in evidence.groups if not ticket.keep[group.name].all()]
        contributions = self.contributions(evidence, losing)
        context.ledger.charge(
            Phase("refit"), context.flops(model), len(self._images(evidence)) if losing else 0, FORWARD
        )
        scaled = copy.deepcopy(model)
        for consumer in (consumer for group in losing for consumer in consumer_layers(model, group)):
            kept = ticket.keep[consumer.group]
            columns = torch.from_numpy(consumer.columns[kept])
            weight = scaled.get_parameter(consumer.key)
            factors = torch.from_numpy(least_squares(contributions[consumer.place], kept)).to(weight)
            with torch.no_grad():
                weight[:, columns] *= factors.view(1, -1, 1, *[1] * (weight.dim() - 2))
        return context.apply(scaled, ticket)

    def _images(self, evidence: Evidence) -> Float[Tensor, "images *input"]:
        """The first `images` of each class in the probe; without classes the whole probe."""
        if evidence.labels is None:
            return evidence.images
        labels = evidence.labels.cpu().numpy()
        rows = [np.flatnonzero(labels == label)[: self.images] for label in np.unique(labels)]
        return evidence.images[torch.from_numpy(np.sort(np.concatenate(rows))).to(evidence.images.device)]

    def contributions(self, evidence: Evidence, groups: Iterable[UnitGroup]) -> Contributions:
        """The samples that decide about `groups`."""
        return channel_contributions(evidence.model, groups, self._images(evidence), self.positions, evidence.seed)


def channel_contributions(
    model: nn.Module, groups: Iterable[UnitGroup], probe: Float[Tensor, "images *input"], positions: int, seed: int
) -> Contributions:
    """What every unit adds to `positions` random outputs of each consumer layer, for each image; float64."""
    samples: dict[Place, list[Tensor]] = {}
    on_input: dict[str, Callable[[Tensor], None]] = {}
    consumers = [consumer for group in groups for consumer in consumer_layers(model, group)]
    for path in dict.fromkeys(consumer.module for consumer in consumers):
        here = [consumer for consumer in consumers if consumer.module == path]
        module = model.get_submodule(path)
        # Seeded by the layer's name: which other layers are looked at makes no difference.
        generator = np.random.default_rng([seed, zlib.crc32(path.encode())])

        def look(
            x: Tensor,
            here: list[ConsumerLayer] = here,
            module: nn.Module = module,
            generator: np.random.Generator = generator,
        ) -> None:
            patches, weights = _sampled(module, x, positions, generator)
            for consumer in here:
                columns = torch.from_numpy(consumer.columns).to(x.device)
                parts = (patches[:, columns] * weights[:, columns]).flatten(2).sum(2)
                samples.setdefault(consumer.place, []).append(parts.cpu())

        on_input[path] = look
    run_with_input_hooks(model, probe, on_input)
    return {place: torch.cat(parts).numpy() for place, parts in samples.items()}


def _sampled(
    module: nn.Module, x: Tensor, positions: int, generator: np.random.Generator
) -> tuple[Float[Tensor, "samples inputs taps"], Float[Tensor, "samples inputs taps"]]:
    """Inputs and weights that meet in `positions` random outputs of each image of `x`."""
    windows, places = _windows(module, x)
    # One product per sampled output and input channel, instead of the whole convolution split by channel.
    weight = cast(Tensor, module.weight).detach().double()
    weight = weight.reshape(*weight.shape[:2], -1)
    n = len(x) * positions
    image = torch.arange(len(x)).repeat_interleave(positions)
    place = np.unravel_index(generator.integers(int(np.prod(places)), size=n), places)
    filters = torch.from_numpy(generator.integers(len(weight), size=n))
    index: Any = (image, slice(None), *(torch.from_numpy(axis) for axis in place))
    picked = windows[index]
    return picked.reshape(n, weight.shape[1], -1).double(), weight[filters.to(weight.device)]


def _windows(module: nn.Module, x: Tensor) -> tuple[Float[Tensor, "images inputs *places_and_taps"], tuple[int, ...]]:
    """What each output of the layer looks at, as a view, and the shape of its places; a linear layer's are tokens."""
    if isinstance(module, nn.Linear):
        rows = x.reshape(len(x), -1, x.shape[-1]).movedim(1, 2)
        return rows, (rows.shape[2],)
    conv = cast(nn.Conv2d, module)
    mode = "constant" if conv.padding_mode == "zeros" else conv.padding_mode
    windows = F.pad(x, cast(Any, conv)._reversed_padding_repeated_twice, mode=mode)
    n_axes = x.dim() - 2
    for axis in range(n_axes):
        reach = conv.dilation[axis] * (conv.kernel_size[axis] - 1) + 1
        windows = windows.unfold(2 + axis, reach, conv.stride[axis])[..., :: conv.dilation[axis]]
    return windows, tuple(windows.shape[2 : 2 + n_axes])


def _gram(parts: Float[np.ndarray, "samples units"]) -> Float[np.ndarray, "units units"]:
    """X^T X as a share of |y|^2, so that layers that read the same units count alike."""
    return parts.T @ parts / max(float(np.square(parts.sum(1)).sum()), TINY)


def leave_by_removal(gram: Float[np.ndarray, "units units"]) -> Int64[np.ndarray, " units"]:
    """Units in the order they leave when each time the sum of all removed parts grows least; O(units^2).

    |R + x_c|^2 = |R|^2 + 2 <R, x_c> + |x_c|^2, with R the sum so far. Of equal units the higher index leaves.
    """
    n = len(gram)
    growth, order = gram.diagonal().copy(), np.empty(n, np.int64)
    for turn in range(n):
        leaving = n - 1 - int(growth[::-1].argmin())  # argmin takes the first of equal ones: look from the end
        order[turn] = leaving
        growth += 2 * gram[leaving]
        growth[leaving] = np.inf
    return order


def leave_by_selection(gram: Float[np.ndarray, "units units"]) -> Int64[np.ndarray, " units"]:
    """Units in the order they leave: the reverse of that in which they would be chosen to explain y; O(units^3).

    The unit with the largest <r, x_c>^2 / |x_c|^2 is chosen, where r is what least squares on those chosen before
    leaves of y. `left` and `toward` are X^T X and X^T r with the chosen units projected out.
    """
    n = len(gram)
    length = np.maximum(gram.diagonal(), TINY)
    left, toward, chosen = gram.copy(), gram.sum(1), np.empty(n, np.int64)
    is_free = np.ones(n, bool)
    for turn in range(n):
        best = int(np.where(is_free, toward**2 / length, -1.0).argmax())
        chosen[turn], is_free[best] = best, False
        if left[best, best] > 1e-12 * length[best]:  # else it lies in the span of the chosen ones
            # One Gram-Schmidt step in the coordinates of the Gram matrix: no sample is looked at again.
            direction = left[best] / np.sqrt(left[best, best])
            toward = toward - direction * (toward[best] / np.sqrt(left[best, best]))
            left -= np.outer(direction, direction)
    return chosen[::-1]


def least_squares(parts: Float[np.ndarray, "samples units"], kept: np.ndarray) -> Float[np.ndarray, " kept"]:
    """The w nearest to 1 among those that minimise |y - X_kept w|^2."""
    missing = parts[:, ~kept].sum(1)  # y - X_kept 1: lstsq gives the w - 1 of smallest norm, so silent channels keep 1
    return 1 + np.linalg.lstsq(parts[:, kept], missing, rcond=None)[0] if kept.any() else np.ones(0)


GREEDY_ORDERS: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "removal": leave_by_removal,
    "selection": leave_by_selection,
}
