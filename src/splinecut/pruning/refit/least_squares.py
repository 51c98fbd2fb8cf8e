"""A refit on data: the weights of a cut network fitted to what the dense one computes on a probe.

`propagation` has the algorithm. It works on the dense network's program with removed units read with weight zero; here
the result is written into the network that was really cut.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from jaxtyping import Float
from torch import Tensor, nn

from splinecut.networks.groups.values import Groups, Keep
from splinecut.networks.inputs import Arguments, as_arguments, check_finite, count, take, without_duplicates
from splinecut.networks.program import Program
from splinecut.networks.surgery.optimizer import sliced
from splinecut.progress_bar import bar
from splinecut.pruning.activations import batch_size
from splinecut.pruning.refit.probe_warning import listed, warn_about_probe
from splinecut.pruning.refit.propagation import Propagation, Removal, propagate

MEMORY = 2**32  # bytes of activations that are kept at most, of both networks; larger probes are used in part


@torch.no_grad()
def least_squares(
    model: nn.Module,
    smaller: nn.Module,
    groups: Groups,
    keep: Keep,
    probe: Float[Tensor, "samples *input"] | Arguments,
) -> None:
    """Fits the layers of `smaller`, cut from `model`, so that it computes what the dense network does on the probe.

    A layer whose weights do better as they are, on inputs held out of the fit, keeps them; a ProbeWarning names it
    where it lost inputs.
    """
    arguments = without_duplicates(as_arguments(probe))
    check_finite(arguments)
    program = Program(model, arguments, batch_size(arguments))
    arguments = within_memory(program, arguments)
    removal = Removal(groups, keep)
    with bar("refit") as report:
        result = propagate(program, arguments, removal, on_all=True, report=report)
    write_weights(smaller, removal, program, result.weights)
    _warn(program, removal, result, count(arguments))


def within_memory(program: Program, arguments: Arguments) -> Arguments:
    """As many inputs, from the first on, as MEMORY holds the activations of."""
    most = max(program.batch, MEMORY // (2 * program.bytes_per_input))
    return arguments if count(arguments) <= most else take(arguments, slice(most))


def write_weights(smaller: nn.Module, removal: Removal, program: Program, weights: Mapping[str, Tensor]) -> None:
    """Writes weights of full size into the network that was cut."""
    tensors = dict(smaller.named_parameters()) | dict(smaller.named_buffers())
    for key, value in weights.items():
        if value is not program.weights[key] and key in tensors:
            tensors[key].copy_(sliced(value, removal.slices.get(key, {})))


def _warn(program: Program, removal: Removal, result: Propagation, n_inputs: int) -> None:
    unchanged = [
        key.rpartition(".")[0] or key
        for key, fitted in result.fits.items()
        if fitted.ridge is None and fitted.unfitted > 0 and _lost_some(program, removal, key)
    ]
    if unchanged:
        warn_about_probe(
            f"not refitted, since on held-out inputs their weights do better as they are: {listed(unchanged)}; "
            f"give more than {n_inputs} inputs as probe"
        )
    elif n_inputs == 1:
        warn_about_probe("a refit on one input cannot be checked; give a few hundred training inputs as probe")


def _lost_some(program: Program, removal: Removal, key: str) -> bool:
    """Whether the layer lost some of its inputs; of one that lost all, more inputs would teach nothing."""
    layer = program.layers[key]
    stays = removal.channels(layer, program.weights[key].shape[0 if layer.is_transposed else 1])
    return bool(stays.any()) and not bool(stays.all())
