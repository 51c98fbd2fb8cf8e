"""What a record holds of a run: test metrics, what was pruned and when, bytes moved."""

from __future__ import annotations

import math
from dataclasses import asdict
from typing import Any

from torch import nn

from splinecut.geometry.codes import Codes, distance_matrix
from splinecut.networks import cost
from splinecut.networks.model_state import clone_state
from splinecut.pruning.detect import EarlyBird
from splinecut.pruning.engine.context import RunContext
from splinecut.pruning.engine.driver import PruningResult
from splinecut.pruning.ticket import emptied
from splinecut.pruning.weight_mask import nonzeros
from splinecut.training import energy_model as tx2
from splinecut.training.evaluate import evaluate
from splinecut.training.hooks import KeepBest
from splinecut.training.ledger import FORWARD, Ledger, Phase
from splinecut.training.loop import Diverged

MOST_DISTANCES = 50_000  # between observations, over all layers, that a record holds: under half a megabyte


def pruning_facts(result: PruningResult, detector: EarlyBird | None) -> dict[str, Any]:
    """What the record keeps of a pruned run: what was asked, what was achieved, when it was drawn."""
    ticket, dense = result.ticket, result.dense
    history = dense.history if dense else []
    facts = {
        "method": ticket.method,
        "units": ticket.kind,
        "options": dict(ticket.options),
        "budget": asdict(ticket.budget) if ticket.budget else None,
        "achieved": {**asdict(ticket.achieved), "density": ticket.achieved.density},
        "layers": {name: [int(kept.sum()), int(kept.size)] for name, kept in ticket.keep.items()},
        "emptied": emptied(ticket.keep),
        "drawn_epoch": history[-1]["epoch"] if history else 0,
        "drawn_step": history[-1]["step"] if history else 0,
        "is_early": bool(history and history[-1].get("stopped")),
        "distances": detector.by_layer() if detector else {},
        "matrix": detector.matrix().round(5).tolist() if detector else [],
        "matrices": matrices(detector) if detector else {},
        "dense_history": history,
    }
    if ticket.kind == "weights":
        facts["nonzero"], facts["weights"] = nonzeros(result.final.model)
    return facts


def matrices(detector: EarlyBird) -> dict[str, list[list[float]]]:
    """For every layer, the distance between every two observations; nothing where that is too much for a record."""
    observations = detector.seen
    layers = observations[0].layers if observations else ()
    if len(layers) * len(observations) ** 2 > MOST_DISTANCES:
        return {}
    return {
        layer: distance_matrix([_one_layer(codes, number) for codes in observations]).round(5).tolist()
        for number, layer in enumerate(layers)
    }


def _one_layer(codes: Codes, i: int) -> Codes:
    return Codes((codes.layers[i],), (codes.n_units[i],), (codes.units[i],), (codes.packed[i],))


def measure(
    context: RunContext, model: nn.Module, best: KeepBest | None = None, when: str = "after training"
) -> dict[str, dict[str, Any]]:
    """Test metrics of the last weights and of the ones best by validation; the model is left with the last.

    Refuses a loss that is not finite: the last step of a training is seen by no later loss.
    """
    flops = context.flops(model)

    def look() -> dict[str, Any]:
        dataset = context.dataset
        context.ledger.charge(Phase("test"), flops, len(dataset.test), FORWARD)
        metrics = evaluate(model, dataset.test, dataset.task, device=context.device, processes=context.processes)
        if not math.isfinite(metrics.loss):
            raise Diverged(
                f"the test loss {when} is {metrics.loss}; lower the learning rate (training.optimizer.lr is "
                f"{context.plan.optimizer.lr:g}) or check the network and the inputs"
            )
        return asdict(metrics)

    test = {"last": look()}
    if best is not None and best.weights:
        last = clone_state(model)
        model.load_state_dict(best.weights)
        test["best"] = {**look(), "epoch": best.epoch}
        model.load_state_dict(last)
    return test


def bytes_moved(ledger: Ledger, dense: nn.Module, pruned: nn.Module, shape: tuple[int, ...]) -> float:
    """Bytes behind a ledger's FLOPs: each phase at the bytes per FLOP of the network it was spent on.

    Rounds between the dense and the pruned network are taken at the mean of the two.
    """
    at_first, at_last = (_bytes_per_flop(model, shape) for model in (dense, pruned))
    rates = {"dense": at_first, "between": (at_first + at_last) / 2, "pruned": at_last}
    return sum(charge.flops * rates[Phase.parse(phase).network] for phase, charge in ledger)


def _bytes_per_flop(model: nn.Module, shape: tuple[int, ...]) -> float:
    spent = cost.cost(model, shape, batch=tx2.BATCH)
    return spent.bytes / max(1, spent.flops)
