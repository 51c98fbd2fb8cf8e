"""Where training runs: one device, or several processes started by torchrun."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from splinecut.errors import InputError, unknown

DEVICES = ("auto", "cpu", "cuda", "mps")


def choose(name: str = "auto") -> torch.device:
    """The device called `name`; `auto` takes CUDA, then Apple's MPS, then the CPU. Refuses one that is missing."""
    kind, _, index = name.partition(":")
    if kind not in DEVICES:
        raise unknown("device", name, DEVICES)
    available = {"cpu": True, "cuda": torch.cuda.is_available(), "mps": torch.backends.mps.is_available()}
    if kind == "auto":
        return torch.device("cuda" if available["cuda"] else "mps" if available["mps"] else "cpu")
    if not available[kind] or (kind == "cuda" and index and int(index) >= torch.cuda.device_count()):
        present = ", ".join(device for device, is_available in available.items() if is_available)
        raise InputError(f"device {name!r} is not available; found: {present}; use device 'auto'")
    return torch.device(name)


@dataclass(frozen=True)
class Processes:
    """The processes that train together; a single one by default."""

    rank: int = 0
    world: int = 1

    @property
    def is_main(self) -> bool:
        """Whether this process writes files and prints."""
        return self.rank == 0

    def wrap(self, model: nn.Module, device: torch.device) -> nn.Module:
        """`model`, wrapped to average its gradients over the processes."""
        if self.world == 1:
            return model
        devices = [device] if device.type == "cuda" else None
        return nn.parallel.DistributedDataParallel(model, device_ids=devices)

    def sum(self, values: Tensor) -> Tensor:
        """`values` added up over the processes."""
        if self.world > 1:
            torch.distributed.all_reduce(values)
        return values

    def gather(self, values: Tensor) -> list[Tensor]:
        """`values` of every process, by rank."""
        if self.world == 1:
            return [values]
        everyone = [torch.empty_like(values) for _ in range(self.world)]
        torch.distributed.all_gather(everyone, values)
        return everyone

    def barrier(self) -> None:
        """Wait until all processes are here."""
        if self.world > 1:
            torch.distributed.barrier()


SINGLE_PROCESS = Processes()


@contextmanager
def processes(device: torch.device) -> Iterator[tuple[Processes, torch.device]]:
    """The group that torchrun started (gloo on CPU, nccl on GPU) and this process's device; else SINGLE_PROCESS.

    Batch norm sees each process's share of a batch only: with it, n processes train a slightly different network
    than one process does. Without it they are the same up to rounding.
    """
    if int(os.environ.get("WORLD_SIZE", "1")) == 1:
        yield SINGLE_PROCESS, device
        return
    if device.type == "cuda":
        device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
        torch.cuda.set_device(device)
    torch.distributed.init_process_group("nccl" if device.type == "cuda" else "gloo")
    try:
        yield Processes(torch.distributed.get_rank(), torch.distributed.get_world_size()), device
    finally:
        torch.distributed.destroy_process_group()
