"""Global and dynamic pruning: a mask over all filters is chosen anew every epoch while the masked network trains.

Lin et al. (2018): with all filters let through, the saliency of a filter is the first-order change of the loss when
it goes, |sum w dL/dw + b dL/db|, batch by batch, averaged over batches; the best of the whole network stay. Removed
filters keep the weights they had and may come back at the next choice. Then the mask is frozen, the network is cut
and trained again.

Under batch norm that formula is useless: the loss does not depend on the length of a filter, so w . dL/dw is zero up
to the norm's epsilon. We use the norm's own parameters,

    |gamma dL/dgamma + beta dL/dbeta|,

which is the derivative by a gate behind the norm, and the formula above only for units without a norm. Further
departures: the reference averages over batches and then takes the last one; we take the average. The mask closes the
inputs of the layers that read a filter, which is exactly what the cut does. Batch norms use the statistics of the
scoring batch, since those they have gathered belong to the masked network.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

import numpy as np
import torch
from jaxtyping import Float, Int64
from pydantic import Field
from torch import Tensor, nn
from torch.nn import functional

from splinecut.networks.groups.read import groups as read_groups
from splinecut.networks.groups.values import Groups, UnitGroup
from splinecut.networks.model_state import evaluating
from splinecut.pruning.activations import ConsumerLayer, consumer_layers
from splinecut.pruning.budget import Budget, Keep, select
from splinecut.pruning.engine.schedules import shortened
from splinecut.pruning.engine.stages import Stage
from splinecut.pruning.evidence import Evidence
from splinecut.pruning.method import Method, Round, Scores
from splinecut.pruning.options import Count, Share
from splinecut.pruning.unit_parameters import BatchNorm, add_per_unit, batch_norms, filters
from splinecut.training.hooks import Hook
from splinecut.training.ledger import TRAIN, Phase

if TYPE_CHECKING:
    from splinecut.pruning.engine.context import RunContext
    from splinecut.training.hooks import TrainState


@dataclass(frozen=True)
class GlobalDynamic(Method):
    """Gate saliency, chosen anew every epoch of a dynamic phase that follows the dense training.

    share:      length of the dynamic phase, as a share of the plan (no setting for CIFAR is published).
    batches:    training batches a choice looks at, of `batch_size` images each (fewer where the data are few).
    """

    state: ClassVar[str] = "in training"
    reference: ClassVar[str] = "Lin et al. 2018"
    residual: ClassVar[Literal["tied", "select", "inner"]] = "inner"

    share: Share = 0.3
    batches: Count = 100
    batch_size: Annotated[int, Field(ge=2)] = 32  # a batch norm cannot normalise a single image

    def search(self, context: RunContext, model: nn.Module, turn: Round) -> Scores:
        """Trains the network under its moving mask; the scores of the last choice."""
        n_images = self.batches * self.batch_size
        probe, labels = context.probe(n_images), context.labels(n_images)
        groups = read_groups(model, probe, context.residual)

        def score(state: TrainState) -> Scores:
            state.ledger.charge(Phase("score"), state.forward_flops, len(probe), TRAIN, in_paper=False)
            return self.score(Evidence(state.model, groups, probe, context.seed, labels), turn.budget)

        gates = Gates(groups, turn.budget, score)
        epochs = max(1, round(self.share * context.plan.epochs))
        stage = Stage(Phase("dynamic"), shortened(context.plan, epochs), in_paper=False)
        context.train(model, stage, [gates])
        return gates.scores

    def score(self, evidence: Evidence, budget: Budget) -> Scores:
        if evidence.search_result is not None:
            return evidence.search_result
        inputs, labels = evidence.labelled()
        total = {group.name: np.zeros(group.size) for group in evidence.groups}
        n_batches = max(1, len(inputs) // self.batch_size)
        for x, y in zip(inputs.tensor_split(n_batches), labels.tensor_split(n_batches), strict=True):
            for name, derivative in gate_derivatives(evidence.model, evidence.groups, x, y).items():
                total[name] += np.abs(derivative) / n_batches
        return total

    def flops(self, evidence: Evidence, forward_flops: int) -> int:
        """A forward and a backward pass of the probe; nothing where the search has scored, and paid, already."""
        return 0 if evidence.search_result is not None else TRAIN * evidence.n_inputs * forward_flops


def gate_derivatives(
    model: nn.Module, groups: Groups, x: Float[Tensor, "samples *input"], y: Int64[Tensor, " samples"]
) -> Scores:
    """dL/dm of a gate m = 1 on each unit, behind its batch norm, or behind its filter where it has none.

    A gate that multiplies gamma and beta (or w and b) has the derivative gamma dL/dgamma + beta dL/dbeta.
    """
    gated = {group.name: _gated(model, group) for group in groups}
    parameters = {id(p): p for triples in gated.values() for p, _, _ in triples}
    # Statistics of this batch: the running ones were gathered while units were closed.
    with batch_statistics(model), torch.enable_grad():
        like = next(model.parameters())
        loss = functional.cross_entropy(model(x.to(like.device, like.dtype)), y.to(like.device))
        gradients = dict(zip(parameters, torch.autograd.grad(loss, list(parameters.values())), strict=True))
    result = {group.name: np.zeros(group.size) for group in groups}
    for name, triples in gated.items():
        for parameter, axis, units in triples:
            # Summed over a filter with its signs: the derivative by one gate on all of it.
            product = (parameter.detach() * gradients[id(parameter)]).double().movedim(axis, 0)
            add_per_unit(result[name], units, product.reshape(len(product), -1).sum(1))
    return result


def _gated(model: nn.Module, group: UnitGroup) -> list[tuple[nn.Parameter, int, Int64[np.ndarray, " rows"]]]:
    """The parameters that a gate on each unit multiplies, the axis of the units, and the unit of each row."""
    norms = batch_norms(model, group)
    if not norms:
        return list(filters(model, group))
    return [(p, 0, units) for norm, units in norms for p in (norm.weight, norm.bias) if p is not None]


@contextmanager
def batch_statistics(model: nn.Module) -> Iterator[None]:
    """The network in eval mode, but batch norms look at the batch; what they have gathered is put back afterwards."""
    norms = [module for module in model.modules() if isinstance(module, BatchNorm)]
    gathered = [(buffer, buffer.clone()) for norm in norms for buffer in norm.buffers()]
    with evaluating(model):
        for norm in norms:
            norm.train()
        try:
            yield
        finally:
            for buffer, old in gathered:
                buffer.copy_(old)


class Gates(Hook):
    """Closes the removed units of a network in training and chooses them anew at the start of every epoch.

    score: looks at the network with all gates open.
    """

    name = "gates"

    def __init__(self, groups: Groups, budget: Budget, score: Callable[[TrainState], Scores]) -> None:
        self.groups, self.budget, self.score = groups, budget, score
        self.scores: Scores = {}
        self._open: dict[str, Float[Tensor, " inputs"]] = {}
        self._handles: list[Any] = []

    @property
    def keep(self) -> Keep:
        """Which units are open."""
        return select(self.scores, self.budget, self.groups)

    def start(self, state: TrainState) -> None:
        consumers = [consumer for group in self.groups for consumer in consumer_layers(state.model, group)]
        for path in {consumer.module for consumer in consumers}:
            is_linear = next(consumer.is_linear for consumer in consumers if consumer.module == path)
            handle = state.model.get_submodule(path).register_forward_pre_hook(self._gate(path, is_linear))
            self._handles.append(handle)
        if self.scores:  # a resumed training goes on with the mask it had
            self._close(state.model)
        else:
            self._choose(state)

    def after_epoch(self, state: TrainState) -> bool:
        if state.epoch < state.plan.epochs:
            self._choose(state)
        return False

    def end(self, state: TrainState) -> None:
        for handle in self._handles:
            handle.remove()
        self._handles = []

    def _choose(self, state: TrainState) -> None:
        self._open = {}  # closed units have no gradient: scored behind their gates, none could come back
        self.scores = self.score(state)
        self._close(state.model)
        self._forget(state)

    def _close(self, model: nn.Module) -> None:
        keep, like = self.keep, next(model.parameters())
        self._open = {}
        for group in self.groups:
            for consumer in consumer_layers(model, group):
                passes = self._open.setdefault(consumer.module, _all_open(model, consumer, like))
                passes[torch.from_numpy(consumer.columns[~keep[group.name]].reshape(-1)).to(like.device)] = 0

    def _gate(self, path: str, is_linear: bool) -> Callable[[nn.Module, tuple[Tensor, ...]], tuple[Tensor, ...] | None]:
        def gate(module: nn.Module, inputs: tuple[Tensor, ...]) -> tuple[Tensor, ...] | None:
            if path not in self._open:
                return None
            x, *rest = inputs
            axes = [1] * (0 if is_linear else x.dim() - 2)
            return (x * self._open[path].to(x.dtype).view(-1, *axes), *rest)

        return gate

    def _forget(self, state: TrainState) -> None:
        """Takes away the momentum of closed units, which would move weights that no gradient holds."""
        keep, parameters = self.keep, dict(state.model.named_parameters())
        for member, kept in ((member, keep[group.name]) for group in self.groups for member in group.members):
            buffers = state.optimizer.state.get(parameters[member.key], {}) if member.key in parameters else {}
            gone = torch.from_numpy(np.flatnonzero(~member.stays(kept)))
            for value in buffers.values():
                if isinstance(value, Tensor) and value.shape == parameters[member.key].shape:
                    value.index_fill_(member.axis, gone.to(value.device), 0)

    def state(self) -> dict[str, Any]:
        return {name: torch.from_numpy(values) for name, values in self.scores.items()}

    def restore(self, state: dict[str, Any]) -> None:
        self.scores = {name: values.cpu().double().numpy() for name, values in state.items()}


def _all_open(model: nn.Module, consumer: ConsumerLayer, like: Tensor) -> Float[Tensor, " inputs"]:
    return torch.ones(model.get_parameter(consumer.key).shape[1], device=like.device)
