"""Run an experiment and write its record; every stage leaves its result in the run folder and is done once."""

from __future__ import annotations

import copy
import shutil
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any

from splinecut.experiments import records
from splinecut.experiments.building import build_detector, run_context
from splinecut.experiments.measurements import bytes_moved, measure, pruning_facts
from splinecut.experiments.plan import Plan, plan
from splinecut.experiments.records import Record
from splinecut.experiments.run_folder import commit, versions, write_run_files
from splinecut.locking import locked
from splinecut.moved import renamed_arguments
from splinecut.networks import cost, surgery
from splinecut.networks.latency import latency
from splinecut.pruning.engine.context import RunContext, TrainingResult
from splinecut.pruning.engine.driver import prune
from splinecut.pruning.engine.hooks import DetectorHook
from splinecut.training import data, devices
from splinecut.training import energy_model as tx2
from splinecut.training.initialization import Initialization
from splinecut.training.progress import ConsoleProgress

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch import nn

    from splinecut.experiments.spec import Experiment
    from splinecut.pruning.ticket import Ticket
    from splinecut.training.data import DataSet

    Loader = Callable[[Experiment, str | Path | None], DataSet]

LATENCY_BATCHES = (1, 128)
NO_START = Initialization().model_dump(mode="json")


@renamed_arguments(watch="progress")
def run(
    experiment: Experiment | Plan,
    out: str | Path = "runs",
    data_dir: str | Path | None = None,
    device: str = "auto",
    progress: ConsoleProgress | None = None,
    shared: str | Path | None = None,
    loader: Loader | None = None,
) -> Record:
    """The record of `experiment`, or of its plan: read if its run folder is complete, else made.

    An interrupted run resumes from its last checkpoint.
    The folder is `out`/<name>-<digest>. Under torchrun all processes call this; the first one writes. Trainings that
    runs have in common (the same dense network for several budgets) are done once in the folder `shared`, if given,
    and charged to each run in full. `loader` takes the place of `load_data`.
    """
    spec = experiment.experiment if isinstance(experiment, Plan) else experiment
    folder = Path(out) / spec.folder
    if records.is_complete(folder):
        return records.load(folder)
    progress = progress or ConsoleProgress()
    with devices.processes(devices.choose(device)) as (processes, place):
        holding = locked(folder) if processes.is_main else nullcontext()
        try:
            with holding:
                if records.is_complete(folder):  # by another process, while this one got here
                    return records.load(folder)
                dataset = (loader or load_data)(spec, data_dir)
                common = Path(shared) if shared else None
                planned = plan(experiment)
                return _run(planned, run_context(planned, folder, dataset, place, processes, progress, common))
        finally:
            progress.close()


def load_data(experiment: Experiment, data_dir: str | Path | None = None) -> DataSet:
    """The data set an experiment names."""
    spec = experiment.data
    return data.load(
        spec.name,
        data_dir=data_dir,
        seed=experiment.seed,
        validation=spec.validation,
        train_size=spec.train_size,
        image_size=spec.image_size,
    )


def _run(planned: Plan, context: RunContext) -> Record:
    """Train -> detect -> prune -> retrain -> measure -> record."""
    assert context.folder is not None
    experiment = planned.experiment
    if context.processes.is_main:
        write_run_files(context.folder, experiment)
    detector = build_detector(experiment, context)
    test: dict[str, dict[str, Any]] = {}
    ticket, pruning = None, None
    if experiment.method is None or planned.method is None or planned.budget is None:
        hooks = [DetectorHook(detector)] if detector else []
        final = context.train(context.initial_model(), planned.stages[-1], hooks)
    else:

        def on_pruned(model: nn.Module) -> None:
            test["after cut"] = measure(context, model, when="after the cut")["last"]

        name = experiment.method.name
        result = prune(context, name, planned.method, planned.budget, detector, planned.recovery, on_pruned)
        final, ticket, pruning = result.final, result.ticket, pruning_facts(result, detector)
    test |= measure(context, final.model, final.best)
    record = _record(experiment, context, final, test, pruning)
    if context.processes.is_main:
        _finish(context.folder, final, ticket, record)
    context.processes.barrier()
    return record


def _record(
    experiment: Experiment,
    context: RunContext,
    final: TrainingResult,
    test: dict[str, dict[str, Any]],
    pruning: dict[str, Any] | None,
) -> Record:
    model, shape = final.model, context.dataset.input_shape
    return Record(
        name=experiment.name,
        digest=experiment.digest,
        spec=spec_for_record(experiment),
        test=test,
        history=final.history,
        parameters=cost.parameters(model),
        forward_flops=cost.forward_flops(model, shape),
        ledger=context.ledger.to_dict(),
        energy=_energy(context, model),
        latency={str(batch): latency(model, shape, batch) for batch in LATENCY_BATCHES},
        pruning=pruning,
        shared=sorted(context.used_cache_names),
        data_hash=context.dataset.hash,
        versions=versions(),
        commit=commit(),
        device=str(context.device),
    )


def spec_for_record(experiment: Experiment) -> dict[str, Any]:
    """The whole spec. Keys added later are omitted at their defaults, so that old and new records compare equal."""
    spec = experiment.model_dump(mode="json")
    for table, key in ((spec, "film"), (spec, "start"), (spec["retrain"], "start"), (spec["retrain"], "epochs")):
        if table[key] is None or table[key] == NO_START:
            del table[key]
    return spec


def _energy(context: RunContext, model: nn.Module) -> dict[str, Any]:
    """Measured joules (None where no meter could be read) and, named an estimate, what a Jetson TX2 would use."""
    moved = bytes_moved(
        context.ledger, context.build(context.seed).to(context.dtype), model, context.dataset.input_shape
    )
    total = context.ledger.total
    return {"measured_joules": total.joules, "estimate_tx2_joules": tx2.tx2_estimate(total.flops, moved)}


def _finish(folder: Path, final: TrainingResult, ticket: Ticket | None, record: Record) -> None:
    """Ticket and weights first, the record after them: it marks the run complete."""
    if ticket is not None:
        ticket.save(folder / ("ticket.safetensors" if ticket.kind == "weights" else "ticket.json"))
    surgery.save(final.model, folder / "model.safetensors")
    if final.best.weights:
        best = copy.deepcopy(final.model)
        best.load_state_dict(final.best.weights)
        surgery.save(best, folder / "best.safetensors")
    record.save(folder)
    shutil.rmtree(folder / "checkpoints", ignore_errors=True)
