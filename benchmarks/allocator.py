"""What it is worth that workers of a sweep keep the memory they free.

    python benchmarks/allocator.py [--out results/allocator.json]

Training steps of two small networks, one thread, in processes that were started plainly and as `splinecut sweep` starts
its workers, by turns, so that a noisy machine disturbs both alike. The figure is the CPU time of a step of the
workers' kind, relative to a plain process: the median over turns.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
from pathlib import Path

from splinecut.experiments.sweep.jobs import MALLOC_ENV, worker_env
from studies.support.result_file import write

NETWORKS = {"vgg16": 0.25, "preresnet20": 0.5}  # name -> width
STEPS = """
import sys, time, torch
from splinecut.networks import models
name, width, steps = sys.argv[1], float(sys.argv[2]), int(sys.argv[3])
torch.set_num_threads(1)
model = models.build(name, width=width, seed=0).to(memory_format=torch.channels_last)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
images = torch.randn(128, 3, 32, 32).contiguous(memory_format=torch.channels_last)
labels = torch.randint(10, (128,))
for step in range(4 + steps):
    if step == 4:  # the first steps warm up
        begun = time.process_time()
    optimizer.zero_grad()
    torch.nn.functional.cross_entropy(model(images), labels).backward()
    optimizer.step()
print((time.process_time() - begun) / steps)
"""


def seconds_a_step(name: str, width: float, steps: int, environment: dict[str, str]) -> float:
    """CPU time of one training step in a process of its own."""
    plain = {key: value for key, value in os.environ.items() if key not in MALLOC_ENV}
    command = [sys.executable, "-c", STEPS, name, str(width), str(steps)]
    told = subprocess.run(
        command, env={**plain, "OMP_NUM_THREADS": "1", **environment}, capture_output=True, text=True, check=True
    )
    return float(told.stdout)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=15)
    parser.add_argument("--turns", type=int, default=5)
    parser.add_argument("--out", type=Path)
    asked = parser.parse_args()
    facts: dict[str, object] = {}
    for name, width in NETWORKS.items():
        ratios = [
            seconds_a_step(name, width, asked.steps, worker_env(1)) / seconds_a_step(name, width, asked.steps, {})
            for _ in range(asked.turns)
        ]
        facts[f"{name} width {width:g}"] = {"cpu": statistics.median(ratios), "turns": [round(r, 3) for r in ratios]}
    print(json.dumps(facts, indent=2))
    if asked.out:
        write(asked.out, "benchmarks/allocator.py", asked, facts)


if __name__ == "__main__":
    main()
