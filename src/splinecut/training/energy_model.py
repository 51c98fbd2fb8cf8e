"""An estimate of the joules that a Jetson TX2 would use for a training.

    joules = JOULES_PER_FLOP x FLOPs + JOULES_PER_BYTE x bytes

The two constants are fitted to the paper's dense runs (studies/tx2_fit.py); docs/energy.md gives the errors.
"""

from __future__ import annotations

BATCH = 256  # images that share one reading of the weights, as in the paper's runs
JOULES_PER_FLOP = 4.4008e-12
JOULES_PER_BYTE = 1.91662e-9


def tx2_estimate(flops: float, bytes_moved: float) -> float:
    """Estimated joules; `bytes_moved` as `networks.cost` counts it for batches of BATCH images."""
    return JOULES_PER_FLOP * flops + JOULES_PER_BYTE * bytes_moved
