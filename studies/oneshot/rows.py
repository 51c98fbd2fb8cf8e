"""The rows of the benchmark: each makes a smaller network of a subject, with a probe, at a share of its FLOPs.

Rows of criteria all cut alike, `sc.cut(refit="least_squares", probe=probe)`, from a ticket within
`Budget(keep, "flops")`. Every criterion has a random twin: the same count of units in every group, drawn at random.
A row that a subject or this version does not allow raises `NotPossible`, and its cell says why.
"""

from __future__ import annotations

import inspect
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
from torch import nn

import splinecut as sc
from splinecut.errors import InputError
from splinecut.networks.cost import forward_flops
from splinecut.networks.groups.values import Groups
from splinecut.pruning.apply import cut
from splinecut.pruning.budget import Budget
from splinecut.pruning.draw_ticket import draw, ticket_from_evidence
from splinecut.pruning.evidence import Evidence
from splinecut.pruning.method import Method
from splinecut.pruning.methods.catalogue import resolve_method
from splinecut.pruning.refit.batch_norms import tracking
from splinecut.pruning.ticket import Ticket, random_twin
from studies.oneshot.criteria import ErrorAndCuts, GateGradients
from studies.oneshot.subject import Inputs, Subject
from studies.oneshot.torch_pruning_peer import NORMALIZERS, Importance, pruned

Scope = Literal["global", "layer"]
Bits = dict[str, str]
"""Group -> one 0 or 1 a unit: a ticket's keep map as text."""


class NotPossible(Exception):
    """Why a row has no result for a subject, or in this version."""


@dataclass(frozen=True)
class Setting:
    """One cell's place: the subject, the number of the probe and its inputs, and the share of FLOPs to keep."""

    subject: Subject
    number: int
    probe: Inputs
    keep: float


@dataclass(frozen=True, eq=False)
class Made:
    """What a row gives: the smaller network, its FLOPs, and how long it took.

    kept:      which units a ticket keeps, for the rows that go on from it.
    residual:  how residual streams were read: which groups `kept` speaks of.
    predicted: the ticket's own estimate of the relative error of the outputs.
    """

    model: nn.Module
    flops: int
    draw_seconds: float
    cut_seconds: float
    kept: Bits | None = None
    residual: str = ""
    predicted: float | None = None


Known = Callable[[str], Mapping[str, Any]]
"""The stored cell of another row in the same setting; made first if there is none."""


@dataclass(frozen=True)
class Row:
    """`make(setting, known)` gives the network; `facts` decide it, so that a stored cell with others is made again."""

    name: str
    make: Callable[[Setting, Known], Made] = field(compare=False)
    facts: str = ""


def criterion(
    name: str,
    method: str | type[Method],
    scope: Scope = "global",
    residual: str | None = None,
    is_ours: bool = False,
    cut_options: Mapping[str, Any] | None = None,
    **options: Any,
) -> Row:
    """A row of a method; `is_ours` draws through the public `sc.draw`, which reads the groups anew each time."""

    def make(setting: Setting, known: Known) -> Made:
        subject, budget = setting.subject, Budget(setting.keep, "flops", scope)
        streams = residual or subject.residual
        allowed = _for_subject(method, options, subject)
        started = time.perf_counter()
        try:
            kind, chosen = resolve_method(method, allowed, budget)
            if is_ours:
                ticket = draw(
                    subject.model, setting.probe, chosen, budget=budget, residual=streams, seed=setting.number
                )
            else:
                evidence = Evidence(subject.model, subject.groups(streams), setting.probe, setting.number)
                ticket = ticket_from_evidence(evidence, kind, chosen, budget)
        except InputError as error:
            raise NotPossible(str(error)) from error
        return _cut(setting, ticket, time.perf_counter() - started, streams, dict(cut_options or {}))

    return Row(name, make, f"{method} {scope} {residual} {is_ours} {cut_options} {sorted(options.items())}")


def _for_subject(method: str | type[Method], options: dict[str, Any], subject: Subject) -> dict[str, Any]:
    """The options with what depends on the subject; refuses criteria that would be another one there."""
    if method == "slimming" and not tracking(subject.model):
        raise NotPossible("the network has no batch norms, whose scales are the score")
    return {**options, "outputs": "values"} if method is GateGradients and subject.labels is None else options


def _cut(setting: Setting, ticket: Ticket, draw_seconds: float, residual: str, options: dict[str, Any]) -> Made:
    for name in options.keys() - inspect.signature(cut).parameters.keys():
        raise NotPossible(f"sc.cut has no option {name!r}")
    started = time.perf_counter()
    try:
        smaller = cut(setting.subject.model, ticket, refit="least_squares", probe=setting.probe, **options)
    except InputError as error:
        raise NotPossible(str(error)) from error
    seconds = time.perf_counter() - started
    predicted = getattr(ticket, "predicted", None)
    flops = forward_flops(smaller, setting.subject.test)
    return Made(
        smaller,
        flops,
        draw_seconds,
        seconds,
        kept={name: "".join("01"[int(stays)] for stays in kept) for name, kept in ticket.keep.items()},
        residual=residual,
        predicted=None if predicted is None else float(predicted),
    )


def twin(of: Row) -> Row:
    """The row whose tickets keep as many units of every group as those of `of`, drawn at random."""

    def make(setting: Setting, known: Known) -> Made:
        ticket, residual = _stored_ticket(setting, known(of.name))
        return _cut(setting, random_twin(ticket, setting.number), 0.0, residual, {})

    return Row(f"{of.name} twin", make, f"twin of {of.facts}")


def calibrated(name: str, of: Row, steps: int) -> Row:
    """The networks of row `of` after a calibration without labels on the same probe."""

    def make(setting: Setting, known: Known) -> Made:
        calibrate = getattr(sc, "calibrate", None)
        if calibrate is None:
            raise NotPossible("this version has no sc.calibrate")
        cell = known(of.name)
        ticket, residual = _stored_ticket(setting, cell)
        made = _cut(setting, ticket, cell["draw seconds"], residual, {})
        started = time.perf_counter()
        model = calibrate(made.model, setting.subject.model, setting.probe, steps=steps)
        model = made.model if model is None else model  # in place, or a copy
        seconds = made.cut_seconds + time.perf_counter() - started
        return Made(model.eval(), made.flops, made.draw_seconds, seconds, made.kept, residual)

    return Row(name, make, f"calibrate {steps} {of.facts}")


def _stored_ticket(setting: Setting, cell: Mapping[str, Any]) -> tuple[Ticket, str]:
    """The ticket of a stored cell, and how residual streams were read for it."""
    if "skipped" in cell:
        raise NotPossible(f"the row it goes on from has no result: {cell['skipped']}")
    groups: Groups = setting.subject.groups(cell["residual"])
    keep = {name: np.array([bit == "1" for bit in bits]) for name, bits in cell["kept"].items()}
    return Ticket(keep, groups, cell["row"], Budget(setting.keep, "flops")), cell["residual"]


def torch_pruning(importance: Importance) -> Row:
    """Torch-Pruning with one of its importances, its own surgery and fresh batch norms; no refit."""

    def make(setting: Setting, known: Known) -> Made:
        started = time.perf_counter()
        try:
            model = pruned(setting.subject, setting.probe, setting.keep, importance)
        except ImportError as error:
            raise NotPossible(f"torch-pruning is not installed ({error})") from error
        except (InputError, ValueError, RuntimeError, AttributeError, KeyError, TypeError) as error:
            raise NotPossible(f"Torch-Pruning: {type(error).__name__}: {error}") from error
        seconds = time.perf_counter() - started
        return Made(model, forward_flops(model, setting.subject.test), seconds, 0.0)

    return Row(f"torch-pruning {importance}", make, f"torch-pruning 1.6.1 {importance} {NORMALIZERS}")


OURS: dict[str, Any] = {"form": "output"}  # the options of "ours", beside the effort
OURS_RESIDUAL: str | None = None  # None: as the subject says, like all other rows
CALIBRATION_STEPS = 300

_OURS = {
    effort: criterion(f"ours {effort}", "spline", residual=OURS_RESIDUAL, is_ours=True, **OURS, effort=effort)
    for effort in ("fast", "balanced", "thorough")
}
_CRITERIA = [
    criterion("l2", "l2"),
    criterion("l2, layer", "l2", "layer"),  # globally it may empty a layer whose filters are short
    criterion("l2 tied", "l2", residual="tied"),
    criterion("bn scale", "slimming"),
    criterion("spline paper, layer", "spline", "layer", form="paper"),
    criterion("spline paper, global", "spline", form="paper"),
    criterion("thinet", "thinet"),
    criterion("taylor", GateGradients, form="taylor"),
    criterion("fisher", GateGradients, form="fisher"),
    criterion("joint", "spline", form="joint"),
    criterion("joint + cut penalty", ErrorAndCuts, form="joint"),
    *_OURS.values(),
    criterion("ours + cut penalty", ErrorAndCuts, residual=OURS_RESIDUAL, is_ours=True, **OURS, effort="balanced"),
]
ROWS: dict[str, Row] = {
    row.name: row
    for row in [
        criterion("random", "random"),
        *(each for row in _CRITERIA for each in (row, twin(row))),
        torch_pruning("l2"),
        torch_pruning("taylor"),
        calibrated("ours + calibration", _OURS["balanced"], CALIBRATION_STEPS),
    ]
}

ABLATIONS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    # What is switched off -> (options of the method, options of sc.cut).
    "measured outputs": ({"form": "joint"}, {}),
}
ABLATION_ROWS: dict[str, Row] = {
    row.name: row
    for row in [
        ROWS["l2"],
        ROWS["ours balanced"],
        *(
            criterion(
                f"ours without {name}",
                "spline",
                residual=OURS_RESIDUAL,
                is_ours=True,
                cut_options=cut_options,
                **{**OURS, "effort": "balanced", **options},
            )
            for name, (options, cut_options) in ABLATIONS.items()
        ),
    ]
}
