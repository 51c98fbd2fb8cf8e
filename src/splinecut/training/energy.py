"""Energy a computation used, as the hardware's own counters tell it: joules, or "not measured", never a guess."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType

import torch

from splinecut.training.energy_model import tx2_estimate as tx2_estimate

POWERCAP = Path("/sys/class/powercap")
SAMPLING = 30.0  # seconds; a package drawing 200 W turns a 65 kJ counter over in five minutes


@dataclass(frozen=True)
class Counter:
    """A running total of joules that starts anew at `wraps_at`."""

    name: str
    read: Callable[[], float]
    wraps_at: float = math.inf

    def since(self, before: float, now: float) -> float:
        """Joules between two readings that are less than one turn apart."""
        return now - before if now >= before else now + self.wraps_at - before


class Meter:
    """Joules used by `device` while the meter is open: `with Meter() as meter: ...; meter.joules`.

    Read are the processor packages (RAPL) and, for a CUDA device, that device (NVML): all that ran on them, not this
    program alone. `joules` is None where the device's counter cannot be read, and `sources` names those that were.
    """

    def __init__(self, device: torch.device | str = "cpu", powercap: Path = POWERCAP) -> None:
        self._counters = counters(torch.device(device), powercap)
        self._joules = 0.0
        self._last: list[float] = []
        self._has_failed = not self._counters
        self._closing = threading.Event()
        self._sampler = threading.Thread(target=self._sample_until_closed, daemon=True)

    @property
    def joules(self) -> float | None:
        """What was used up to the last reading, None when not measured."""
        return None if self._has_failed else self._joules

    @property
    def sources(self) -> tuple[str, ...]:
        """The counters that are read."""
        return tuple(counter.name for counter in self._counters)

    def __enter__(self) -> Meter:
        self._sample()
        if not self._has_failed:
            self._sampler.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._closing.set()
        if self._sampler.is_alive():
            self._sampler.join()
        self._sample()

    def _sample_until_closed(self) -> None:
        while not self._closing.wait(SAMPLING):
            self._sample()

    def _sample(self) -> None:
        if self._has_failed:
            return
        try:
            now = [counter.read() for counter in self._counters]
        except (OSError, ValueError, RuntimeError):
            self._has_failed = True
            return
        before = self._last or now
        self._joules += sum(c.since(b, n) for c, b, n in zip(self._counters, before, now, strict=True))
        self._last = now


def counters(device: torch.device, powercap: Path = POWERCAP) -> list[Counter]:
    """The counters that tell what `device` uses; none where the one that matters cannot be read."""
    processor = _processor(powercap)
    if device.type == "cpu":
        return processor
    accelerator = _nvidia(device) if device.type == "cuda" else []
    return accelerator + processor if accelerator else []


def _processor(powercap: Path) -> list[Counter]:
    """One counter per package. Names with a second number are parts of a package and would count twice."""
    counters = []
    for zone in sorted(powercap.glob("intel-rapl:*")):
        if zone.name.count(":") > 1:
            continue
        try:
            wraps_at = _microjoules(zone / "max_energy_range_uj")
            _microjoules(zone / "energy_uj")
        except (OSError, ValueError):
            # Since 2020 only root may read these by default.
            return []
        counters.append(Counter(zone.name, lambda zone=zone: _microjoules(zone / "energy_uj"), wraps_at))  # type: ignore[misc]
    return counters


def _microjoules(file: Path) -> float:
    return int(file.read_text()) / 1e6


def _nvidia(device: torch.device) -> list[Counter]:
    try:
        import pynvml

        pynvml.nvmlInit()
        uuid = torch.cuda.get_device_properties(device).uuid
        handle = pynvml.nvmlDeviceGetHandleByUUID(f"GPU-{uuid}")
        pynvml.nvmlDeviceGetTotalEnergyConsumption(handle)
    except Exception:
        # No library, no driver, or a device from before such counters: all mean that there is nothing to read.
        return []

    def read() -> float:
        try:
            return pynvml.nvmlDeviceGetTotalEnergyConsumption(handle) / 1e3
        except pynvml.NVMLError as error:
            raise RuntimeError(str(error)) from error

    return [Counter(f"nvml:{uuid}", read)]
