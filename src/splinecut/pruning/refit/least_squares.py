"""A refit on data: every layer that lost inputs is fitted to what it received in the dense network.

The probe runs through the cut network once. When it reaches a layer, the layer's input in the dense network is
regressed on its input now (`regression`), and its weights change before it runs. Batch norms change their statistics by
what the cut changed on the probe (`batch_norms`). So every layer is fitted on an already fitted network, and errors of
one layer are made good by the next instead of adding up.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import partial

import numpy as np
import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from splinecut.networks.groups.values import Groups, Keep
from splinecut.networks.inputs import Arguments, as_arguments, batches, check_finite, count, held_out, to_model
from splinecut.networks.model_state import evaluating
from splinecut.pruning.activations import ConsumerLayer, Place, batch_size, consumer_layers, input_hooks
from splinecut.pruning.refit.batch_norms import Statistics, correct, not_finite, tracking
from splinecut.pruning.refit.layer_weights import LayerWeights, weight_products
from splinecut.pruning.refit.probe_warning import listed, warn_about_probe
from splinecut.pruning.refit.regression import Constant, fit_layer

ROWS = 80_000  # rows of a regression at most; more positions of an image add little,
NUMBERS = 2**22  # and no more activations than this, as long as there are four rows a unit and 4,000

Kept = Bool[np.ndarray, " units"]


@torch.no_grad()
def least_squares(
    model: nn.Module,
    smaller: nn.Module,
    groups: Groups,
    keep: Keep,
    probe: Float[Tensor, "samples *input"] | Arguments,
) -> None:
    """Fits the consumers of the cut groups to their input in the dense network `model`, layer by layer, in one pass.

    A layer whose weights do better as they are, on inputs held out of the fit, keeps them; a ProbeWarning names it.
    """
    arguments = as_arguments(probe)
    check_finite(arguments)
    weights, n_inputs = LayerWeights(model, smaller, groups, keep), count(arguments)
    by_module = _cut_consumers(model, groups, keep)
    dense = _observe(model, [consumer for pairs in by_module.values() for consumer, _ in pairs], arguments)
    has_norm = {producer.path for group in groups for producer in group.producers if producer.norm}
    unchanged: list[str] = []

    def refit(path: str, x: Tensor) -> None:
        module = smaller.get_submodule(path)
        constant: Constant = "bias" if module.bias is not None else "norm" if path in has_norm else "nothing"
        for consumer, kept in by_module[path]:
            # One layer may read several groups: each is fitted by itself, on its own columns.
            of_kept = replace(consumer, columns=weights.columns(consumer)[kept])
            before = torch.cat(dense.inputs[consumer.place]).double()
            now = _thinned(of_kept, x, len(kept), n_inputs, n_inputs).double()
            # All rows of an input are held out together: positions of one image resemble each other.
            is_held = held_out(n_inputs).repeat_interleave(-(-len(now) // n_inputs))[: len(now)]
            outgoing = weights.outgoing(consumer)
            fit = fit_layer(before, now, torch.tensor(kept), weight_products(outgoing), is_held, constant)
            if fit is None:
                unchanged.append(path)
                continue
            weights.write(consumer, kept, fit.coefficients)
            if isinstance(module.bias, Tensor):
                module.bias.add_((outgoing.sum(dim=(2, 3)) @ fit.offset).to(module.bias))

    def correct_norm(path: str, x: Tensor) -> None:
        correct(norms[path], dense.norms[path], weights.stays(f"{path}.running_mean"), x)

    norms = {path: norm for path, norm in tracking(smaller).items() if path in dense.norms}
    on_input = {path: partial(refit, path) for path in by_module}
    on_input |= {path: partial(correct_norm, path) for path in norms}
    # Once: a layer that runs twice is fitted to its first input, and the second run already uses the new weights.
    with evaluating(smaller), input_hooks(smaller, on_input, once=True):
        smaller(*to_model(arguments, smaller))
    _warn(unchanged, n_inputs)


def _cut_consumers(model: nn.Module, groups: Groups, keep: Keep) -> dict[str, list[tuple[ConsumerLayer, Kept]]]:
    """Module path -> the groups it reads that lost units but not all, each with its keep map."""
    by_module: dict[str, list[tuple[ConsumerLayer, Kept]]] = {}
    for group in groups:
        kept = np.asarray(keep[group.name], bool)
        for consumer in consumer_layers(model, group) if kept.any() and not kept.all() else ():
            by_module.setdefault(consumer.module, []).append((consumer, kept))
    return by_module


def _warn(unchanged: list[str], n_inputs: int) -> None:
    if unchanged:
        warn_about_probe(
            f"not refitted, since on held-out inputs their weights do better as they are: {listed(unchanged)}; "
            f"give more than {n_inputs} inputs as probe"
        )
    elif n_inputs == 1:
        warn_about_probe("a refit on one input cannot be checked; give a few hundred training inputs as probe")


@dataclass
class _DenseActivations:
    """The dense network on the probe: the inputs of consumer layers, thinned, and statistics of batch-norm inputs."""

    inputs: dict[Place, list[Float[Tensor, "rows units"]]] = field(default_factory=dict)
    norms: dict[str, Statistics] = field(default_factory=dict)


def _observe(model: nn.Module, consumers: list[ConsumerLayer], arguments: Arguments) -> _DenseActivations:
    """Runs the probe through the dense network, batch by batch."""
    dense, n_inputs = _DenseActivations(), count(arguments)
    by_module: dict[str, list[ConsumerLayer]] = {}
    for consumer in consumers:
        by_module.setdefault(consumer.module, []).append(consumer)

    def keep_rows(path: str, x: Tensor) -> None:
        for consumer in by_module[path]:
            rows = _thinned(consumer, x, len(consumer.columns), n_here, n_inputs)
            if not torch.isfinite(rows).all():
                raise not_finite(path)
            dense.inputs.setdefault(consumer.place, []).append(rows)

    def add_statistics(path: str, x: Tensor) -> None:
        dense.norms.setdefault(path, Statistics()).add(x)
        if not dense.norms[path].is_finite:
            raise not_finite(path)

    on_input = {path: partial(keep_rows, path) for path in by_module}
    on_input |= {path: partial(add_statistics, path) for path in tracking(model)}
    with evaluating(model), torch.random.fork_rng(devices=[]):
        for part in batches(arguments, batch_size(arguments)):
            n_here = count(part)
            with input_hooks(model, on_input, once=True):
                model(*to_model(part, model))
    return dense


def _thinned(
    consumer: ConsumerLayer, x: Tensor, n_units: int, n_here: int, n_inputs: int
) -> Float[Tensor, "rows units"]:
    """The same rows of every input, about as many in all as ROWS and NUMBERS say.

    n_units: of the dense network, so that the dense and the cut one give the same rows; n_here: inputs in `x`.
    """
    rows = consumer.rows(x)
    per_input = max(1, len(rows) // n_here)
    wanted = -(-max(4 * n_units + 4000, min(ROWS, NUMBERS // n_units)) // n_inputs)
    step = max(1, per_input // wanted) | 1  # odd, which keeps it off the grid of an image
    if len(rows) == n_here * per_input:
        rows = rows.view(n_here, per_input, -1)[:, ::step].flatten(0, 1)
    return rows.cpu()
