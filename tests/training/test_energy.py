"""Energy: counters that wrap, vanish or cannot be read; and the estimate against the paper's tables."""

from __future__ import annotations

import re
import sys
import types
from pathlib import Path
from statistics import median

import pytest
import torch

from splinecut.experiments.measurements import bytes_moved
from splinecut.networks import cost
from splinecut.networks.models import build
from splinecut.training import energy
from splinecut.training import energy_model as tx2
from splinecut.training.energy import Counter, Meter, counters
from splinecut.training.ledger import FORWARD, Ledger
from studies import tx2_fit


def write_zone(powercap: Path, name: str, joules: float, wraps_at: float = 1000.0) -> Path:
    zone = powercap / name
    zone.mkdir(exist_ok=True)
    (zone / "energy_uj").write_text(f"{round(joules * 1e6)}\n")
    (zone / "max_energy_range_uj").write_text(f"{round(wraps_at * 1e6)}\n")
    return zone


def test_a_meter_adds_up_the_packages_and_not_their_parts(tmp_path: Path) -> None:
    for name in ("intel-rapl:0", "intel-rapl:1", "intel-rapl:0:0"):
        write_zone(tmp_path, name, 10)
    with Meter(powercap=tmp_path) as meter:
        write_zone(tmp_path, "intel-rapl:0", 13)
        write_zone(tmp_path, "intel-rapl:1", 14)
        write_zone(tmp_path, "intel-rapl:0:0", 99)
    assert meter.joules == pytest.approx(3 + 4)
    assert meter.sources == ("intel-rapl:0", "intel-rapl:1")


def test_a_counter_that_starts_anew_is_followed(tmp_path: Path) -> None:
    write_zone(tmp_path, "intel-rapl:0", 990)
    with Meter(powercap=tmp_path) as meter:
        write_zone(tmp_path, "intel-rapl:0", 5)
    assert meter.joules == pytest.approx(15)


def test_long_measurements_are_sampled_on_the_way(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr(energy, "SAMPLING", 0.0)
    turns = iter(range(1, 100))
    counter = Counter("turning", lambda: 60.0 * next(turns, 100) % 100, wraps_at=100)
    monkeypatch.setattr(energy, "counters", lambda device, powercap: [counter])
    with Meter() as meter:
        while next(turns, None) is not None and (meter.joules or 0) < 300:
            pass
    assert meter.joules >= 300, "three turns of the counter"


def test_without_a_readable_counter_nothing_is_measured(tmp_path: Path) -> None:
    with Meter(powercap=tmp_path) as nothing:
        pass
    assert nothing.joules is None
    zone = write_zone(tmp_path, "intel-rapl:0", 10)
    with Meter(powercap=tmp_path) as lost:
        (zone / "energy_uj").unlink()
    assert lost.joules is None


def test_the_processor_does_not_stand_in_for_a_graphics_card(tmp_path: Path, monkeypatch) -> None:
    write_zone(tmp_path, "intel-rapl:0", 10)
    monkeypatch.setitem(sys.modules, "pynvml", None)
    assert counters(torch.device("cpu"), tmp_path)
    assert not counters(torch.device("cuda"), tmp_path)
    assert not counters(torch.device("mps"), tmp_path)


def test_a_graphics_card_is_measured_by_its_own_counter(tmp_path: Path, monkeypatch) -> None:
    readings = iter([1_000, 5_000, 12_500])
    library = types.SimpleNamespace(
        nvmlInit=lambda: None,
        nvmlDeviceGetHandleByUUID=lambda uuid: uuid,
        nvmlDeviceGetTotalEnergyConsumption=lambda handle: next(readings),
        NVMLError=RuntimeError,
    )
    monkeypatch.setitem(sys.modules, "pynvml", library)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda device: types.SimpleNamespace(uuid="abc"))
    with Meter("cuda", powercap=tmp_path) as meter:
        pass
    assert meter.joules == pytest.approx(7.5)  # millijoules; the first reading only tries the counter
    assert meter.sources == ("nvml:abc",)


def test_the_constants_are_what_the_fit_gives() -> None:
    per_flop, per_byte = tx2_fit.fit()
    assert per_flop == pytest.approx(tx2.JOULES_PER_FLOP, rel=1e-3)
    assert per_byte == pytest.approx(tx2.JOULES_PER_BYTE, rel=1e-3)


def test_the_flops_of_the_dense_runs_are_the_papers() -> None:
    for setting in tx2_fit.SETTINGS:
        assert tx2_fit.dense_cost(setting)[0] == pytest.approx(setting.flops, rel=0.01)


def test_the_documentation_prints_the_errors_that_are_measured() -> None:
    found = [abs(e) for setting in tx2_fit.SETTINGS for row in tx2_fit.errors(setting)[1].values() for e in row]
    text = (Path(__file__).parents[2] / "docs" / "energy.md").read_text()
    stated = re.search(r"(\d+) pruned rows: median error ([\d.]+) %, worst ([\d.]+) %", " ".join(text.split()))
    assert stated is not None
    assert int(stated[1]) == len(found)
    assert float(stated[2]) == pytest.approx(100 * median(found), abs=0.1)
    assert float(stated[3]) == pytest.approx(100 * max(found), abs=0.1)


def test_the_estimate_is_additive() -> None:
    assert tx2.tx2_estimate(2e9, 0) + tx2.tx2_estimate(0, 3e6) == pytest.approx(tx2.tx2_estimate(2e9, 3e6))


def test_each_phase_moves_the_bytes_of_its_own_network() -> None:
    """Counted by hand: passes x images x the bytes of one image through the network that was there."""
    whole, cut = (build("convnet", width=width, seed=0) for width in (1.0, 0.25))
    shape = tuple(whole.input_shape)  # type: ignore[arg-type]
    first, last = (cost.cost(model, shape, batch=tx2.BATCH) for model in (whole, cut))
    ledger = Ledger()
    ledger.charge("train", first.flops, images=100)
    ledger.charge("train: validate", first.flops, images=10, passes=FORWARD)
    ledger.charge("retrain", last.flops, images=70)
    ledger.charge("retrain: validate", last.flops, images=10, passes=FORWARD)
    ledger.charge("reinitialise-2", last.flops, images=5)
    ledger.charge("test", last.flops, images=20, passes=FORWARD)
    by_hand = (3 * 100 + 10) * first.bytes + (3 * 70 + 10 + 3 * 5 + 20) * last.bytes
    assert bytes_moved(ledger, whole, cut, shape) == pytest.approx(by_hand, rel=1e-12)


def test_rounds_move_bytes_at_a_rate_between_the_two_networks() -> None:
    whole, cut = (build("convnet", width=width, seed=0) for width in (1.0, 0.25))
    shape = tuple(whole.input_shape)  # type: ignore[arg-type]
    rates = []
    for phase in ("train", "round-3", "retrain"):
        ledger = Ledger()
        ledger.charge(phase, 1000, images=1)
        rates.append(bytes_moved(ledger, whole, cut, shape))
    assert rates[0] < rates[1] < rates[2]  # a narrow network moves more bytes for each of its FLOPs
