"""A network as an ONNX file, for any batch size."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from splinecut.errors import InputError, SplinecutError
from splinecut.files import write_atomically
from splinecut.networks.model_state import evaluating, unwrapped


def export(model: nn.Module, example: Tensor, path: str | Path) -> Path:
    """Writes `model`, cut or not, as it computes in eval mode; example: (batch, *input), the batch size stays free."""
    path = Path(path)
    if path.suffix != ".onnx":
        raise InputError(f"an ONNX file ends in .onnx, got {path.name}; use {path.stem}.onnx")
    model = unwrapped(model)
    with evaluating(model):
        program = _program(model, example)
    return write_atomically(path, lambda file: program.save(str(file)))


def _program(model: nn.Module, example: Tensor) -> Any:
    try:
        import onnx  # noqa: F401
        import onnxscript  # noqa: F401
    except ImportError as error:
        raise SplinecutError(f"ONNX export needs {error.name}; pip install 'splinecut[onnx]'") from error
    # A batch of one would be taken for a constant.
    batch = example if len(example) > 1 else torch.cat([example, example])
    with warnings.catch_warnings(), torch.no_grad():
        warnings.simplefilter("ignore")
        shapes = ({0: torch.export.Dim.DYNAMIC},)
        return torch.onnx.export(model, (batch,), dynamo=True, dynamic_shapes=shapes, verbose=False)
