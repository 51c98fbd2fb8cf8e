"""Runs experiments in children that die by SIGKILL, one order a line: the imports are paid once for all of them.

An order is {"out": folder, "experiment": tables, "kills": [...]} on standard input, kills as `crash_run.py` names them;
the answer is one line with the exit status of every child, the last of which was left to finish.
"""

from __future__ import annotations

import json
import sys

import torch
from crash_run import one_process  # run as a script, from this folder

from splinecut.experiments import building, runner
from splinecut.experiments.spec import Experiment
from splinecut.networks import cost
from splinecut.networks.groups.read import groups


def warm(experiment: Experiment) -> None:
    """Imports, once for all children, what each would import for itself."""
    dataset = runner.load_data(experiment)
    model = building.build_model(experiment, dataset)
    cost.forward_flops(model, dataset.input_shape)
    groups(model, dataset.train.examples(torch.arange(2)))


if __name__ == "__main__":
    torch.set_num_threads(1)
    is_warm = False
    for line in sys.stdin:
        order = json.loads(line)
        experiment = Experiment.from_dict(order["experiment"])
        if not is_warm:
            warm(experiment)
            is_warm = True
        ends = [one_process(kill, order["out"], experiment) for kill in [*order["kills"], "none"]]
        print(json.dumps(ends), flush=True)
