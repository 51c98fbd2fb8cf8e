"""The fit behind `training/energy_model`, and its errors on the paper's runs: `python -m studies.tx2_fit`.

It is fitted on the paper's dense runs and never on its pruned ones, which test it. docs/energy.md discusses the errors.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from statistics import median

from splinecut.networks.cost import cost
from splinecut.networks.models import build
from splinecut.training.energy_model import BATCH, tx2_estimate

TRAIN = 3  # a backward pass costs two forwards, for bytes as for FLOPs
CIFAR = 160 * 50_000  # images of one training run: epochs x images
IMAGENET = 90 * 1_281_167


@dataclass(frozen=True)
class Pruned:
    """A row of Table 2 or 3: joules and FLOPs of all training a method does, at each of its pruning ratios."""

    method: str
    joules_and_flops: tuple[tuple[float, float], ...]


@dataclass(frozen=True)
class Setting:
    """A network and data set of the paper: joules and FLOPs of one dense training run, and the pruned rows."""

    model: str
    classes: int
    images: int
    joules: float
    flops: float
    pruned: tuple[Pruned, ...]


def _row(method: str, unit: float, *pairs: tuple[float, float]) -> Pruned:
    return Pruned(method, tuple((joules * unit, petaflops * 1e15) for joules, petaflops in pairs))


_K, _M = 1e3, 1e6
# You et al. 2022, Table 2 (kJ, PFLOPs; "SNIP" is one dense run, LT two) and Table 3 (MJ, PFLOPs; "Unpruned").
# FLOPs of the dense CIFAR runs are unrounded: 3 x 0.31 G and 3 x 0.63 G x 8 M images; Table 2 prints 7.40 and 15.1.
SETTINGS = (
    Setting("preresnet101", 10, CIFAR, 3161 * _K, 7.44e15, (
        _row("NS", _K, (5270, 13.9), (4641, 12.7), (4211, 11.0)),
        _row("ThiNet", _K, (3579, 13.2), (2656, 10.6), (1901, 8.65)),
        _row("Spline", _K, (4897, 13.6), (4382, 12.1), (3995, 10.1)),
        _row("EB Spline", _K, (2322, 6.00), (1808, 4.26), (1421, 2.74)),
    )),
    Setting("vgg16", 10, CIFAR, 373.1 * _K, 15.12e15, (
        _row("NS", _K, (617.1, 27.4), (590.7, 25.7), (553.8, 23.8)),
        _row("ThiNet", _K, (631.5, 22.6), (383.9, 19.0), (380.1, 16.6)),
        _row("Spline", _K, (643.5, 26.4), (603.4, 25.0), (538.1, 19.6)),
        _row("EB Spline", _K, (476.1, 19.4), (436.1, 15.5), (370.7, 11.1)),
    )),
    Setting("preresnet101", 100, CIFAR, 3047 * _K, 7.44e15, (
        _row("NS", _K, (4851, 13.7), (4310, 12.5), (3993, 10.3)),
        _row("ThiNet", _K, (3603, 13.2), (2642, 10.6), (1893, 8.65)),
        _row("Spline", _K, (4980, 12.6), (4413, 10.9), (4008, 9.36)),
        _row("EB Spline", _K, (2388, 5.44), (1821, 3.84), (1416, 2.46)),
    )),
    Setting("vgg16", 100, CIFAR, 370.6 * _K, 15.12e15, (
        _row("NS", _K, (636.5, 29.3), (592.3, 27.1), (567.8, 24.0)),
        _row("ThiNet", _K, (632.2, 27.4), (568.5, 22.6), (381.4, 19.0)),
        _row("Spline", _K, (688.3, 28.0), (605.2, 22.9), (555.0, 19.4)),
        _row("EB Spline", _K, (512.2, 19.9), (429.1, 15.3), (378.9, 11.8)),
    )),
    Setting("resnet18", 1000, IMAGENET, 98.14 * _M, 1259.13e15, (
        _row("NS", _M, (193.51, 2424.86), (180.92, 2168.89)),
        _row("SFP", _M, (158.14, 1991.94)),
        _row("EB Spline", _M, (95.63, 1101.24), (82.85, 831.00)),
    )),
    Setting("resnet50", 1000, IMAGENET, 280.72 * _M, 2839.96e15, (
        _row("ThiNet", _M, (456.13, 4358.53), (431.73, 3850.03)),
        _row("SFP", _M, (470.72, 4330.86)),
        _row("LeGR", _M, (412.66, 4174.74)),
        _row("GAL-0.5", _M, (440.73, 4458.74)),
        _row("GDP", _M, (443.54, 4487.14)),
        _row("C-SGD-50", _M, (407.04, 4117.94)),
        _row("Meta Pruning", _M, (349.12, 3532.63)),
        _row("EB Spline", _M, (264.24, 2434.09), (197.09, 1636.02)),
    )),
)  # fmt: skip


@cache
def dense_cost(setting: Setting) -> tuple[float, float]:
    """FLOPs and bytes of one dense training run, counted on our own model."""
    model = build(setting.model, classes=setting.classes, seed=0)
    forward = cost(model, model.input_shape, BATCH)  # type: ignore[arg-type]
    return TRAIN * forward.flops * setting.images, TRAIN * forward.bytes * setting.images


def fit() -> tuple[float, float]:
    """Joules per FLOP and per byte: non-negative least squares of the relative errors on the six dense runs.

    Relative, because the runs differ by a factor of 750 and the largest would decide alone.
    """
    import numpy as np
    from scipy.optimize import nnls

    measured = np.array([setting.joules for setting in SETTINGS])
    costs = np.array([dense_cost(setting) for setting in SETTINGS])
    per_flop, per_byte = nnls(costs / measured[:, None], np.ones(len(measured)))[0]
    return float(per_flop), float(per_byte)


def errors(setting: Setting) -> tuple[float, dict[str, list[float]]]:
    """Relative errors of the estimate: on the dense run, and on the pruned rows by method.

    The tables give a pruned row's FLOPs but not its widths; its bytes are taken in proportion to the dense run's.
    """
    flops, moved = dense_cost(setting)

    def estimate(share: float) -> float:
        return tx2_estimate(flops * share, moved * share)

    pruned = {
        row.method: [estimate(spent / setting.flops) / joules - 1 for joules, spent in row.joules_and_flops]
        for row in setting.pruned
    }
    return estimate(1) / setting.joules - 1, pruned


def main() -> None:
    """Prints the fit and its errors."""
    per_flop, per_byte = fit()
    print(f"{per_flop:.4e} joules per FLOP, {per_byte:.5e} per byte")
    everything: list[float] = []
    for setting in SETTINGS:
        dense, pruned = errors(setting)
        print(f"{setting.model}, {setting.classes} classes: dense run {dense:+.0%}")
        for method, row in pruned.items():
            print(f"  {method:<13}" + "".join(f"{error:+8.0%}" for error in row))
            everything += [abs(error) for error in row]
    print(f"{len(everything)} pruned rows: median error {median(everything):.1%}, worst {max(everything):.1%}")


if __name__ == "__main__":
    main()
