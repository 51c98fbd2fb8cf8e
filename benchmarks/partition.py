"""Speed and memory of `subdivide`, as ratios against a plain forward pass measured in the same run.

    python benchmarks/partition.py [--out results/partition-speed.json] [--skip-large]

Reference networks: torch.manual_seed(0), Linear(2, w), ReLU, (Linear(w, w), ReLU) x (d - 1), Linear(w, 2), float64.
Times are CPU seconds of this process, both cores counted; the best of a few repeats.
"""

from __future__ import annotations

import argparse
import os
import platform
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

import splinecut as sc
from splinecut.geometry.graph import Graph
from splinecut.geometry.partition import Partition, subdivide
from splinecut.networks.trace import trace
from studies.support.result_file import write

MOST_FORWARD_PASSES = 2.0
MOST_SPREAD = 1.5
MOST_GIGABYTES = 6.0
MOST_COMPILING = 5.0  # seconds


def network(width: int, depth: int) -> nn.Sequential:
    torch.manual_seed(0)
    layers: list[nn.Module] = [nn.Linear(2, width), nn.ReLU()]
    for _ in range(depth - 1):
        layers += [nn.Linear(width, width), nn.ReLU()]
    return nn.Sequential(*layers, nn.Linear(width, 2)).double().eval()


def cpu_seconds(act: Callable[[], Any], repeats: int) -> tuple[float, Any]:
    """(best CPU time of several repeats, the last result)."""
    best, result = np.inf, None
    for _ in range(repeats):
        start = time.process_time()
        result = act()
        best = min(best, time.process_time() - start)
    return best, result


def against_forward(width: int, depth: int, repeats: int = 3) -> dict[str, Any]:
    """Subdividing against one forward pass on as many points as there are regions."""
    model = network(width, depth)
    graph = trace(model, torch.zeros(1, 2))
    ours, partition = cpu_seconds(lambda: subdivide(graph, sc.Slice.square()), repeats)
    points = torch.rand(len(partition), 2, dtype=torch.float64) * 2 - 1
    with torch.no_grad():
        forward, _ = cpu_seconds(lambda: model(points), repeats)
    return {
        "network": f"2-{width}x{depth}-2",
        "regions": len(partition),
        "subdivide_s": ours,
        "forward_s": forward,
        "ratio": ours / forward,
        "allowed": MOST_FORWARD_PASSES,
    }


def window_for(graph: Graph, n_regions: int) -> tuple[float, Partition]:
    """Half width of the centred square with about so many regions, by secant steps on the square root of the count."""
    half_width = 1.0
    for _ in range(8):
        try:
            partition = subdivide(graph, sc.Slice.square(half_width), max_regions=2 * n_regions)
        except sc.RegionLimit:
            half_width /= 1.5
            continue
        if abs(len(partition) / n_regions - 1) < 0.1:
            break
        half_width *= float(np.clip(np.sqrt(n_regions / len(partition)), 0.3, 3))
    return half_width, partition


def scaling(width: int = 512, depth: int = 4, counts: tuple[int, ...] = (10_000, 100_000, 1_000_000)) -> dict[str, Any]:
    """Time per region as the window grows, and the memory of the largest."""
    graph = trace(network(width, depth), torch.zeros(1, 2))
    rows = []
    for count in counts:
        half_width, partition = window_for(graph, count)
        seconds, partition = cpu_seconds(lambda h=half_width: subdivide(graph, sc.Slice.square(h)), 1)
        rows.append(
            {
                "half_width": half_width,
                "regions": len(partition),
                "subdivide_s": seconds,
                "microseconds_per_region": 1e6 * seconds / len(partition),
            }
        )
        del partition
    each = [row["microseconds_per_region"] for row in rows]
    return {
        "network": f"2-{width}x{depth}-2",
        "rows": rows,
        "spread": max(each) / min(each),
        "allowed_spread": MOST_SPREAD,
        "peak_gigabytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20,
        "allowed_gigabytes": MOST_GIGABYTES,
    }


def first_call() -> dict[str, float]:
    """CPU seconds of a first call with an empty cache of compiled code, and of one with a full cache."""
    script = (
        "import time, torch, splinecut as sc; from torch import nn; from splinecut.geometry.partition import subdivide;"
        "from splinecut.networks.trace import trace;"
        "m = nn.Sequential(nn.Linear(2, 8), nn.ReLU(), nn.Linear(8, 1)).eval(); g = trace(m, torch.zeros(1, 2));"
        "t = time.process_time(); subdivide(g, sc.Slice.square()); print(time.process_time() - t)"
    )
    with tempfile.TemporaryDirectory() as cache:
        environment = {**os.environ, "NUMBA_CACHE_DIR": cache}
        command = [sys.executable, "-c", script]
        cold, warm = (
            float(subprocess.run(command, env=environment, check=True, capture_output=True, text=True).stdout)
            for _ in range(2)
        )
    return {"cold_s": cold, "warm_s": warm, "allowed_s": MOST_COMPILING}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, help="write the figures as JSON")
    parser.add_argument("--skip-large", action="store_true", help="leave out the 1M-region window")
    options = parser.parse_args()
    found: dict[str, Any] = {
        "machine": {"processor": platform.processor() or platform.machine(), "cores": os.cpu_count()},
        "first_call": first_call(),
        "against_forward": [against_forward(128, 5), against_forward(256, 4)],
        "scaling": scaling(counts=(10_000, 100_000) if options.skip_large else (10_000, 100_000, 1_000_000)),
    }
    print_table(found)
    if options.out:
        write(options.out, "benchmarks/partition.py", options, found)


def print_table(found: dict[str, Any]) -> None:
    first, scale = found["first_call"], found["scaling"]
    print(f"first call: {first['cold_s']:.1f} s CPU (allowed {first['allowed_s']:g}), {first['warm_s']:.2f} s cached")
    print(f"\n{'network':>12} {'regions':>10} {'subdivide s':>12} {'forward s':>10} {'ratio':>6}  (allowed 2)")
    for row in found["against_forward"]:
        print("{network:>12} {regions:>10,} {subdivide_s:>12.3f} {forward_s:>10.3f} {ratio:>6.2f}".format(**row))
    print(f"\n{scale['network']:>12} {'half width':>12} {'regions':>10} {'subdivide s':>12} {'us/region':>10}")
    for row in scale["rows"]:
        figures = "{half_width:>12.4g} {regions:>10,} {subdivide_s:>12.2f} {microseconds_per_region:>10.1f}"
        print(" " * 13 + figures.format(**row))
    print(f"spread {scale['spread']:.2f} (allowed {scale['allowed_spread']:g}), ", end="")
    print(f"peak {scale['peak_gigabytes']:.2f} GB (allowed {scale['allowed_gigabytes']:g})")


if __name__ == "__main__":
    main()
