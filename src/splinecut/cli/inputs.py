"""Read what a command is given: a network with its weights, inputs from a file."""

from __future__ import annotations

import pickle
import textwrap
from pathlib import Path
from typing import TYPE_CHECKING

from splinecut.errors import InputError

if TYPE_CHECKING:
    from torch import Tensor, nn


PICKLES = (".pt", ".pth", ".bin", ".ckpt")  # what torch.save writes


def with_weights(network: nn.Module, path: Path) -> nn.Module:
    """`network` filled from a file: a state dict as .safetensors or as torch.save wrote it, or what `sc.save` wrote."""
    from safetensors import SafetensorError, safe_open
    from safetensors.torch import load_file

    from splinecut.networks import surgery

    if not path.is_file():
        raise InputError(f"there is no {path}; give the file with the model's weights")
    try:
        if _is_pickle(path):
            network.load_state_dict(_with_counters(_unpickled(path), network))
            return network
        with safe_open(path, "pt") as file:
            is_ours = "splinecut" in (file.metadata() or {})
        if is_ours:
            return surgery.load(path, network)
        network.load_state_dict(_with_counters(load_file(path), network))
    except (OSError, SafetensorError, RuntimeError) as error:
        reason = textwrap.shorten(str(error), 240, placeholder=" ...")
        raise InputError(f"cannot load weights from {path}: {reason}; give the state of this very model") from None
    return network


def _with_counters(state: dict[str, Tensor], network: nn.Module) -> dict[str, Tensor]:
    """The state with the network's own count of batches for each batch norm that has none in it.

    Weights written before torch 0.4.1, or by other frameworks, lack `num_batches_tracked`, which no output depends on.
    """
    own = {name: value for name, value in network.state_dict().items() if name.endswith("num_batches_tracked")}
    return {**own, **state}


def _is_pickle(path: Path) -> bool:
    """By its name, or by its first bytes where the name says nothing: an archive, or a pickle as old as torch 1.5."""
    if path.suffix in (*PICKLES, ".safetensors"):
        return path.suffix in PICKLES
    with path.open("rb") as file:
        return file.read(2) in (b"PK", b"\x80\x02")


def _unpickled(path: Path) -> dict[str, Tensor]:
    """The state dict in a file of torch.save; anything else is refused, since to unpickle it may run its code."""
    import torch

    remedy = "write it with torch.save(model.state_dict(), FILE)"
    try:
        state = torch.load(path, map_location="cpu", weights_only=True)
    except pickle.UnpicklingError:
        raise InputError(f"{path} holds more than tensors, such as a whole model, and is not read; {remedy}") from None
    except (OSError, RuntimeError, EOFError, ValueError, KeyError) as error:
        reason = textwrap.shorten(str(error) or type(error).__name__, 160, placeholder=" ...")
        raise InputError(f"cannot read {path}: {reason}; {remedy}") from None
    if not isinstance(state, dict) or not all(isinstance(value, torch.Tensor) for value in state.values()):
        held = f"a dict of {', '.join(map(str, list(state)[:6]))}" if isinstance(state, dict) else type(state).__name__
        raise InputError(f"{path} holds {held}, not a state dict; {remedy}")
    return state


def read_rows(path: Path) -> Tensor:
    """The inputs in a .npy file, one a row."""
    import numpy as np
    import torch

    try:
        return torch.from_numpy(np.load(path, allow_pickle=False))
    except (OSError, ValueError, TypeError) as error:
        raise InputError(f"cannot read inputs from {path}: {error}; write them with numpy.save") from None
