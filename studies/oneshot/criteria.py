"""Criteria of the benchmark that are no methods of the package: first- and second-order scores without labels, and the
error criterion with a penalty for repeated cuts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor, nn

from splinecut.networks.groups.values import Groups, UnitGroup
from splinecut.networks.inputs import batches, to_model
from splinecut.networks.model_state import evaluating
from splinecut.pruning.activations import ConsumerLayer, consumer_layers
from splinecut.pruning.budget import Budget, Keep, savings
from splinecut.pruning.evidence import Evidence
from splinecut.pruning.method import Method, Scores
from splinecut.pruning.methods.catalogue import resolve_method
from splinecut.pruning.methods.channels.joint_error import finite
from splinecut.pruning.methods.channels.spline import folded_norm, removal_distances, unit_distances
from splinecut.pruning.unit_parameters import unit_cuts

BATCH = 32  # inputs whose gradients are taken together


@dataclass(frozen=True)
class GateGradients(Method):
    """What scaling a unit changes: the gradient of the output's log-likelihood by a gate of 1 on the unit.

    The gate of unit i multiplies what its consumers read, so for one input the gradient is
    g_i = sum over positions of x_i dl/dx_i. The label is drawn from the network's own softmax; where it gives values
    rather than classes, l = <outputs, noise> with Gaussian noise. Either way E[g_i^2] / 2 is the second-order estimate
    of KL(dense || without i), the Fisher score of Theis et al. (2018).

    form "taylor": E|g_i|, Molchanov et al. (2017).  "fisher": E[g_i^2] / 2 per FLOP that the unit saves.
    """

    reference: ClassVar[str] = "Molchanov et al. 2017; Theis et al. 2018"
    is_random: ClassVar[bool] = True  # labels are drawn

    form: Literal["taylor", "fisher"] = "taylor"
    outputs: Literal["classes", "values"] = "classes"

    def score(self, evidence: Evidence, budget: Budget) -> Scores:
        totals = {group.name: np.zeros(group.size) for group in evidence.groups}
        for gradients in self._gradients(evidence):
            for name, by_input in gradients.items():
                values = by_input.abs() if self.form == "taylor" else by_input.square() / 2
                totals[name] += values.sum(0).numpy() / evidence.n_inputs
        if self.form == "taylor":
            return totals
        saved = savings(evidence.groups, budget)
        return {name: values / max(saved[name], 1.0) for name, values in totals.items()}

    def _gradients(self, evidence: Evidence) -> Iterator[dict[str, Float[Tensor, "inputs units"]]]:
        """Batch by batch, the gradient of every input's likelihood by the gates of each group; float64."""
        generator = torch.Generator().manual_seed(evidence.seed)
        consumers = [layer for group in evidence.groups for layer in consumer_layers(evidence.model, group)]
        with evaluating(evidence.model), _seen_inputs(evidence.model, {layer.module for layer in consumers}) as seen:
            for part in batches(evidence.arguments, BATCH):
                seen.clear()
                with torch.enable_grad():
                    likelihood = self._log_likelihood(evidence.model(*to_model(part, evidence.model)), generator)
                reached = [layer for layer in consumers if layer.module in seen]
                paths = list(dict.fromkeys(layer.module for layer in reached))
                slopes = dict(zip(paths, torch.autograd.grad(likelihood, [seen[p] for p in paths]), strict=True))
                found: dict[str, Tensor] = {}
                for layer in reached:
                    by_gate = _by_gate(layer, (seen[layer.module] * slopes[layer.module]).detach())
                    found[layer.group] = found.get(layer.group, 0) + by_gate
                yield found

    def _log_likelihood(self, outputs: Float[Tensor, "inputs outputs"], generator: torch.Generator) -> Tensor:
        """Summed over inputs, which do not meet in eval mode: each input's gradient is its own."""
        if self.outputs == "values":
            return (outputs * torch.randn(outputs.shape, generator=generator)).sum()
        logs = outputs.log_softmax(1)
        labels = torch.multinomial(logs.detach().exp(), 1, generator=generator)
        return logs.gather(1, labels).sum()


def _by_gate(layer: ConsumerLayer, product: Float[Tensor, "inputs *rest"]) -> Float[Tensor, "inputs units"]:
    """The products of activations and gradients, added up over the positions of each input."""
    rows = layer.rows(product).double()
    return rows.reshape(len(product), -1, rows.shape[1]).sum(1).cpu()


@contextmanager
def _seen_inputs(model: nn.Module, paths: set[str]) -> Iterator[dict[str, Tensor]]:
    """The inputs of these modules in the latest pass, in its graph even where no parameter asks for gradients."""
    seen: dict[str, Tensor] = {}

    def hook(path: str) -> Callable[[nn.Module, tuple[Any, ...]], tuple[Any, ...]]:
        def keep(_: nn.Module, inputs: tuple[Any, ...]) -> tuple[Any, ...]:
            x = inputs[0] if inputs[0].requires_grad else inputs[0].requires_grad_()
            seen[path] = x
            return (x, *inputs[1:])

        return keep

    handles = [model.get_submodule(path).register_forward_pre_hook(hook(path)) for path in sorted(paths)]
    try:
        yield seen
    finally:
        for handle in handles:
            handle.remove()


@dataclass(frozen=True)
class ErrorAndCuts(Method):
    """Another form of the spline criterion, with its scores lowered for units whose cut repeats a kept one.

    d_i is the corrected distance from a unit's cut to the nearest that stays when it leaves (`removal_distances`), as a
    share of its group's median. The score is multiplied by 1 - strength (1 - min(1, d_i)): a unit that repeats another
    keeps 1 - strength of it, one that is as far from the others as most keeps all.

    This is the place to try other penalties: `penalty` alone says how distances change scores.
    """

    reference: ClassVar[str] = "You et al. 2022, as a penalty"
    refit: ClassVar[Literal["none", "fold", "least_squares"]] = "least_squares"

    form: str = "joint"
    effort: str = ""
    strength: float = 0.5
    rho: float = 0.05

    @property
    def _base(self) -> Method:
        return resolve_method("spline", {"form": self.form, **({"effort": self.effort} if self.effort else {})})[1]

    def score(self, evidence: Evidence, budget: Budget) -> Scores:
        scores = self._base.score(evidence, budget)
        return finite(
            {group.name: scores[group.name] * self.penalty(evidence.model, group) for group in evidence.groups}
        )

    def select(self, scores: Scores, budget: Budget, groups: Groups | None, search_result: Any) -> Keep:
        return self._base.select(scores, budget, groups, search_result)

    def penalty(self, model: nn.Module, group: UnitGroup) -> Float[np.ndarray, " units"]:
        """The factor of each unit's score, from 1 - strength to 1."""
        cuts = [unit_cuts(model, group, producer) for producer in group.producers if producer.weight]
        if not cuts:  # an input selector: its units have no cut of their own
            return np.ones(group.size)
        distance = removal_distances(unit_distances(cuts, "corrected", self.rho), folded_norm(cuts)).clip(0)
        usual = max(float(np.median(distance)), np.finfo(float).tiny)
        return 1 - self.strength * (1 - np.minimum(1.0, distance / usual))
