"""How far a cut network is from its dense original: at its output, and at the outputs of blocks they both have."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional
from torch.utils._pytree import tree_map

from splinecut.errors import InputError, unknown
from splinecut.networks.inputs import Arguments, to_model
from splinecut.networks.model_state import evaluating

TEMPERATURE = 2.0  # of the softmax, Hinton et al. 2015: unlikely classes say how classes resemble each other

OutputLoss = Callable[[Tensor, Tensor], Tensor]
"""(output of the cut network, output of the dense one) -> a number, 0 where they agree."""


@dataclass(frozen=True)
class Outputs:
    """What a network gave for one batch: its output, and the outputs of the blocks that are compared."""

    output: Tensor
    blocks: tuple[Tensor, ...]


def divergence(small: Float[Tensor, "n classes"], dense: Float[Tensor, "n classes"]) -> Float[Tensor, ""]:
    """KL of the class probabilities at a temperature T, times T^2, mean over inputs (Hinton et al. 2015, Sec. 2.1)."""
    ours, theirs = (functional.log_softmax(scores / TEMPERATURE, 1) for scores in (small, dense))
    return functional.kl_div(ours, theirs, log_target=True, reduction="batchmean") * TEMPERATURE**2


def relative_error(small: Tensor, dense: Tensor) -> Float[Tensor, ""]:
    """|small - dense|^2 / |dense|^2 over the whole batch; 0 where both are zero."""
    size = dense.square().sum().clamp(min=torch.finfo(dense.dtype).tiny)
    return (small - dense).square().sum() / size


def block_error(small: Outputs, dense: Outputs) -> Tensor | float:
    """The mean over blocks of the relative error of their outputs."""
    errors = [relative_error(*pair) for pair in zip(small.blocks, dense.blocks, strict=True)]
    return torch.stack(errors).mean() if errors else 0.0


def resolve_loss(loss: str, output: Tensor) -> OutputLoss:
    """The comparison of outputs: for "auto", divergence where an input has two or more scores, else relative error."""
    if loss == "auto":
        return divergence if output.ndim == 2 and output.shape[1] > 1 else relative_error
    known: dict[str, OutputLoss] = {"divergence": divergence, "error": relative_error}
    if loss not in known:
        raise unknown("loss", str(loss), ("auto", *known))
    if loss == "divergence" and output.ndim != 2:
        raise InputError(
            f"loss='divergence' needs outputs (inputs, classes), got shape {tuple(output.shape)}; use loss='error'"
        )
    return known[loss]


def run(model: nn.Module, arguments: Arguments, blocks: Sequence[str], output: str | int | None) -> Outputs:
    """One forward pass, as `model` stands.

    No gradient of the output goes back through the last block: layers up to there learn from the blocks alone. Those
    of the output would be larger and noisier, and overrule them (docs/calibration.md has the figures).
    """
    with _outputs(model, blocks) as seen:
        stop = model.get_submodule(blocks[-1]).register_forward_hook(_without_gradient) if blocks else None
        try:
            result = model(*to_model(arguments, model))
        finally:
            if stop is not None:
                stop.remove()
    return Outputs(picked(result, output), tuple(seen[path][0] for path in blocks))


def _without_gradient(_: nn.Module, inputs: Any, result: Any) -> Any:
    return tree_map(lambda leaf: leaf.detach() if isinstance(leaf, Tensor) else leaf, result)


def common_blocks(dense: nn.Module, small: nn.Module, arguments: Arguments, output: str | int | None) -> list[str]:
    """Paths of the blocks whose outputs can be compared, in the order in which they run.

    A block is a module with layers inside it. Layers themselves are left out: between the convolutions of a block the
    two networks may differ as they like, if only the block gives what it did. A block counts if it runs once in each
    network and gives tensors of equal shapes; of several that hand on the same tensor (a stage and its last block),
    one does. The output of the whole network is compared by itself.
    """
    ours = {path for path, _ in small.named_modules() if path}
    paths = [
        path
        for path, module in dense.named_modules()
        if path in ours and any(_has_parameters(child) for child in module.children())
    ]
    seen, results = [], []
    for model in (dense, small):
        with torch.no_grad(), evaluating(model), _outputs(model, paths) as here:
            results.append(picked(model(*to_model(arguments, model)), output))
        seen.append(here)
    _check_outputs(*results)
    chosen: list[str] = []
    known = [id(results[0])]
    for path, given in seen[0].items():
        others = seen[1].get(path, [])
        if len(given) == len(others) == 1 and given[0].shape == others[0].shape and id(given[0]) not in known:
            known.append(id(given[0]))
            chosen.append(path)
    return chosen


def picked(result: Any, output: str | int | None) -> Tensor:
    """The tensor that is compared: the first of what the network returned, or the one that `output` names."""
    if output is None:
        found = _first_tensor(result)
    else:
        try:
            found = result[output] if not isinstance(result, Tensor) else None
        except (KeyError, IndexError, TypeError):
            found = None
    if not isinstance(found, Tensor) or not found.is_floating_point():
        names = ", ".join(map(str, result)) if isinstance(result, Mapping) else type(result).__name__
        asked = "a tensor of floats among its outputs" if output is None else f"an output {output!r} of floats"
        raise InputError(f"the networks must give {asked}, got {names}; name the output to imitate with output=")
    return found


def _check_outputs(dense: Tensor, small: Tensor) -> None:
    if dense.shape != small.shape:
        raise InputError(
            f"both networks must give outputs of one shape, got {tuple(small.shape)} of the smaller and "
            f"{tuple(dense.shape)} of the dense one; give the network that the smaller one was cut from"
        )


def _first_tensor(result: Any) -> Tensor | None:
    if isinstance(result, Tensor):
        return result
    values = result.values() if isinstance(result, Mapping) else result if isinstance(result, tuple | list) else ()
    return next((tensor for value in values if (tensor := _first_tensor(value)) is not None), None)


def _has_parameters(module: nn.Module) -> bool:
    return next(module.parameters(), None) is not None


@contextlib.contextmanager
def _outputs(model: nn.Module, paths: Iterable[str]) -> Iterator[dict[str, list[Tensor]]]:
    """Path -> the first tensors that the module there gives, one for each time it runs, filled during the block."""
    seen: dict[str, list[Tensor]] = {}

    def hook(path: str) -> Callable[[nn.Module, Any, Any], None]:
        def look(_: nn.Module, inputs: Any, result: Any) -> None:
            tensor = _first_tensor(result)
            if tensor is not None and tensor.is_floating_point():
                seen.setdefault(path, []).append(tensor)

        return look

    handles = [model.get_submodule(path).register_forward_hook(hook(path)) for path in paths]
    try:
        yield seen
    finally:
        for handle in handles:
            handle.remove()
