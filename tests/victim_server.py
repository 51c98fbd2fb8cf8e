"""Runs experiments in children that die by SIGKILL, one order a line: the imports are paid once for all of them.

An order is {"out": folder, "experiment": tables, "kills": [...]} on standard input, kills as `victim.py` names them;
the answer is one line with the exit status of every child, the last of which was left to finish.
"""

from __future__ import annotations

import json
import sys

import torch

from splinecut.experiments import runner, stages
from splinecut.experiments.spec import Experiment
from splinecut.networks import cost
from victim import one_process

if __name__ == "__main__":
    torch.set_num_threads(1)
    for line in sys.stdin:
        order = json.loads(line)
        experiment = Experiment.from_dict(order["experiment"])
        dataset = runner.load_data(experiment)  # what is imported here need not be imported by each child
        cost.forward_flops(stages.build_model(experiment, dataset), dataset.input_shape)
        ends = [one_process(kill, order["out"], experiment) for kill in [*order["kills"], "none"]]
        print(json.dumps(ends), flush=True)
