"""What commands are given on the command line: a user's network with its weights, inputs from a file."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from splinecut.errors import InputError

if TYPE_CHECKING:
    from torch import Tensor, nn


def with_weights(network: nn.Module, path: Path) -> nn.Module:
    """`network` filled from a .safetensors file: a plain state dict, or what `sc.save` wrote of it, cut or not."""
    from safetensors import SafetensorError, safe_open
    from safetensors.torch import load_file

    from splinecut.networks import surgery

    try:
        with safe_open(path, "pt") as file:
            is_ours = "splinecut" in (file.metadata() or {})
        if is_ours:
            return surgery.load(path, network)
        network.load_state_dict(load_file(path))
    except (OSError, SafetensorError, RuntimeError) as error:
        reason = " ".join(str(error).split())[:200]
        raise InputError(f"cannot load weights from {path}: {reason}; give the state of this very model") from None
    return network


def read_rows(path: Path) -> Tensor:
    """The inputs in a .npy file, one a row."""
    import numpy as np
    import torch

    try:
        return torch.from_numpy(np.load(path, allow_pickle=False))
    except (OSError, ValueError, TypeError) as error:
        raise InputError(f"cannot read inputs from {path}: {error}; write them with numpy.save") from None
