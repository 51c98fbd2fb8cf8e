"""`sc.calibrate`: a cut network that has learnt, without labels, to give what its dense original gives."""

from __future__ import annotations

import copy
from contextlib import nullcontext
from dataclasses import asdict
from numbers import Integral
from pathlib import Path

import torch
from jaxtyping import Float
from torch import Tensor, nn

from splinecut.errors import InputError
from splinecut.locking import locked
from splinecut.networks.inputs import Arguments, as_arguments, check_finite, count, held_out
from splinecut.networks.model_state import evaluating, unwrapped
from splinecut.pruning.activations import batch_size
from splinecut.pruning.calibration.augmentation import Augment, resolve_augment
from splinecut.pruning.calibration.saved_state import call_identity
from splinecut.pruning.calibration.steps import HELD_OUT, Calibration, Settings
from splinecut.pruning.options import is_number
from splinecut.training.ledger import Ledger

SMALLEST_BATCH = 16  # of large images; small ones come 64 at a time


def calibrate(
    small: nn.Module,
    dense: nn.Module,
    probe: Float[Tensor, "samples *input"] | Arguments,
    steps: int = 300,
    *,
    batch: int | None = None,
    learning_rate: float = 0.01,
    augment: str | Augment | None = "auto",
    loss: str = "auto",
    output: str | int | None = None,
    seed: int = 0,
    checkpoint: str | Path | None = None,
    ledger: Ledger | None = None,
) -> nn.Module:
    """A copy of `small`, cut from `dense`, trained for a few `steps` to give what `dense` gives on the probe.

    No labels are needed. Blocks that both networks have are compared by the relative error of their outputs, the
    outputs of the networks by their divergence (classes) or relative error. An eighth of the probe is held out; the
    weights whose outputs do best there are returned, those of the start if none do better. Batch norms keep their
    statistics, which a small probe knows badly, and parameters that do not require gradients stay as they are.

    probe:         unlabelled training inputs, one tensor or a tuple of the network's arguments; some hundreds or more.
    batch:         inputs a step; left out, 64, or fewer if they are large.
    learning_rate: of Adam, at its highest: the change of a weight in a step, relative to the size of its unit's
                   weights. It is lowered where the held-out loss shows that it is too high.
    augment:       "auto" flips and shifts images and leaves all else alone; None; or a function of some rows of the
                   probe, a tuple of arguments, and a generator, that gives as many rows.
    loss:          how outputs are compared: "divergence" (KL of softmax), "error" (relative squared error), or "auto":
                   divergence for outputs (inputs, classes), error for others.
    output:        key or index of the output to imitate, where there are several; left out, the first tensor.
    checkpoint:    a folder; an interrupted call, made again, goes on from there to the same result.
    ledger:        charged in the end with all passes of both networks, as "calibrate" and its parts.

    Cost: a step takes `batch` forward passes of `dense`, and of `small` three times as many, as a pass forward and
    back counts three. Both networks are left as found.
    """
    small, dense = unwrapped(small), unwrapped(dense)
    arguments = as_arguments(probe)
    _check(small, arguments, steps, batch, learning_rate)
    n_fit = int((~held_out(count(arguments), HELD_OUT)).sum())
    size = min(batch or max(SMALLEST_BATCH, batch_size(arguments)), n_fit)
    vary = resolve_augment(augment, arguments)
    name = "none" if vary is None else str(getattr(vary, "__qualname__", type(vary).__qualname__))
    settings = Settings(steps, size, float(learning_rate), name, loss, output, seed)
    result, folder = copy.deepcopy(small), None if checkpoint is None else Path(checkpoint)
    student, teacher = _in_full_precision(copy.deepcopy(small)), dense
    if _is_half(dense):
        teacher = _in_full_precision(copy.deepcopy(dense))
    with (
        locked(folder) if folder else nullcontext(),
        torch.random.fork_rng(devices=_cuda_devices(student)),
        evaluating(student.eval()),
        evaluating(teacher),
    ):
        calibration = Calibration(student, teacher, arguments, settings, vary, folder)
        if folder:
            calibration.resume(call_identity(small, dense, arguments, asdict(settings)))
        calibration.run()
        if ledger is not None:
            calibration.charge(ledger, arguments)
    result.load_state_dict(calibration.best)
    return result


def _check(small: nn.Module, arguments: Arguments, steps: int, batch: int | None, rate: float) -> None:
    """Refuses what cannot be calibrated, before anything runs."""
    for name, value in {"steps": steps, "batch": 1 if batch is None else batch}.items():
        if not isinstance(value, Integral) or isinstance(value, bool) or value < 1:
            raise InputError(f"{name} must be a whole number from 1 on, got {value!r}; leave it out for the default")
    if not is_number(rate) or not 0 < rate < float("inf"):
        raise InputError(f"learning_rate must be a positive number, got {rate!r}; the default is 0.01")
    check_finite(arguments)
    if count(arguments) < 2:
        raise InputError(
            "calibrate needs two inputs or more, as some are held out, got 1; give a few hundred training inputs"
        )
    if not any(parameter.requires_grad for parameter in small.parameters()):
        raise InputError(
            "calibrate trains the parameters that require gradients, got a network where none does; "
            "call small.requires_grad_(True)"
        )


def _is_half(model: nn.Module) -> bool:
    """Whether a parameter has fewer than 32 bits: steps as small as these would be rounded away."""
    return any(p.is_floating_point() and p.dtype.itemsize < 4 for p in model.parameters())


def _in_full_precision(model: nn.Module) -> nn.Module:
    return model.float() if _is_half(model) else model


def _cuda_devices(model: nn.Module) -> list[torch.device]:
    return list({p.device for p in model.parameters() if p.device.type == "cuda"})
