"""Loss and accuracies of a network on a split."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import nn

from splinecut.networks.model_state import evaluating
from splinecut.training.data.batch_order import Order
from splinecut.training.devices import SINGLE_PROCESS, Processes

if TYPE_CHECKING:
    from splinecut.training.data import Split


@dataclass(frozen=True)
class Metrics:
    """Metrics on a split. `accuracy` and `top5` are fractions of the images, None for regression."""

    loss: float
    accuracy: float | None
    top5: float | None
    images: int


def criterion(task: str, label_smoothing: float = 0.0) -> nn.Module:
    """Cross-entropy for classification, mean squared error for regression."""
    return nn.CrossEntropyLoss(label_smoothing=label_smoothing) if task == "classification" else nn.MSELoss()


@torch.no_grad()
def evaluate(
    model: nn.Module,
    split: Split,
    task: str = "classification",
    batch_size: int = 512,
    device: torch.device | str = "cpu",
    processes: Processes = SINGLE_PROCESS,
) -> Metrics:
    """Loss and accuracies of `model` on `split`, in eval mode and without augmentation; the mode is restored."""
    measure = criterion(task)
    dtype = next(model.parameters()).dtype
    sums = torch.zeros(3, dtype=torch.float64)
    order = Order(batch_size, shuffle=False, rank=processes.rank, world=processes.world)
    with evaluating(model):
        for x, y in split.batches(order, device=device):
            outputs = model(x.to(dtype))
            sums[0] += measure(outputs, y.to(dtype) if task == "regression" else y).item() * len(y)
            if task == "classification":
                best = outputs.topk(min(5, outputs.shape[1]), dim=1).indices == y[:, None]
                sums[1] += best[:, 0].sum().item()
                sums[2] += best.sum().item()
    loss, top1, top5 = (processes.sum(sums) / len(split)).tolist()
    if task != "classification":
        return Metrics(loss, None, None, len(split))
    return Metrics(loss, top1, top5, len(split))
