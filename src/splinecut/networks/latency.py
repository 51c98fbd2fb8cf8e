"""Measures the time of a forward pass on this machine."""

from __future__ import annotations

import statistics
import time

import torch
from torch import nn

from splinecut.networks.model_state import evaluating


@torch.no_grad()
def latency(model: nn.Module, shape: tuple[int, ...], batch: int = 1, seconds: float = 0.3) -> float:
    """Median seconds of a forward pass of `batch` inputs of `shape`, over as many as fit in `seconds` (5 at least)."""
    like = next(model.parameters())
    x = torch.zeros(batch, *shape, dtype=like.dtype, device=like.device)
    times: list[float] = []
    with evaluating(model):
        model(x)  # the first pass chooses kernels
        started = time.perf_counter()
        while len(times) < 5 or time.perf_counter() - started < seconds:
            before = time.perf_counter()
            model(x)
            if like.device.type == "cuda":
                torch.cuda.synchronize(like.device)
            times.append(time.perf_counter() - before)
    return statistics.median(times)
