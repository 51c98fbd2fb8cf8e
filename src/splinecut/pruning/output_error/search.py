"""The search behind `form="output"`: measure what each group's units are worth to the output, allocate, measure again.

Every round starts from the network as cut so far. The dense network and the cut one run on the probe side by side
(`refit.propagation`), which refits the cut one and leaves the moments that the next candidates are made of. Units are
chosen and weights fitted on three quarters of the probe; all errors are those of the remaining quarter.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch
from jaxtyping import Float

from splinecut.networks.groups.values import Groups, UnitGroup
from splinecut.networks.inputs import Arguments, check_finite, count, held_out, take, without_duplicates
from splinecut.networks.model_state import weights_digest
from splinecut.networks.program import Program
from splinecut.progress_bar import Report, bar
from splinecut.pruning.activations import batch_size
from splinecut.pruning.budget import Budget, Keep, savings, select
from splinecut.pruning.evidence import Evidence
from splinecut.pruning.output_error.allocation import levels, unit_scores, with_unknown
from splinecut.pruning.output_error.candidates import Candidates, readers_of
from splinecut.pruning.output_error.divergence import TEMPERATURE, divergence, kind_of, relative
from splinecut.pruning.output_error.effort import EFFORTS, Effort, Settings
from splinecut.pruning.output_error.measure import Candidate, Store, compute_always, measured_costs, store_in
from splinecut.pruning.refit.least_squares import within_memory
from splinecut.pruning.refit.probe_warning import listed, warn_about_probe
from splinecut.pruning.refit.propagation import Propagation, Removal, propagate


class OutputScores(dict[str, Float[np.ndarray, " units"]]):
    """Scores of units by group, with what the search found out on the way (`Ticket.facts`)."""

    facts: Mapping[str, Any] = {}


@dataclass
class _Search:
    evidence: Evidence
    budget: Budget
    settings: Settings
    effort: str
    report: Report
    facts: dict[str, Any] = field(default_factory=dict)
    alternatives: list[dict[str, np.ndarray]] = field(default_factory=list)  # scores of the last round

    def run(self) -> OutputScores:
        groups = self.evidence.groups
        given = without_duplicates(self.evidence.arguments)
        check_finite(given)
        program = Program(self.evidence.model, given, batch_size(given))
        self.arguments = within_memory(program, given)
        self.program, self.readers = program, readers_of(program, groups)
        self.kind = kind_of(program)
        self.collect = frozenset(layer.key for layers in self.readers.values() for layer in layers)
        self.report(0.0, "activations")
        alive: Keep = groups.full_keep()
        state = propagate(program, self.arguments, Removal(groups, alive), self.collect)
        self._note_limits(state)
        for number in range(self.settings.n_rounds):
            share = self.budget.keep ** ((number + 1) / self.settings.n_rounds)
            budget = replace(self.budget, keep=share if number < self.settings.n_rounds - 1 else self.budget.keep)
            scores = self._scores(state, alive, budget, number)
            if number < self.settings.n_rounds - 1:
                alive = select(scores, budget, groups)
                state = self._refitted(alive, self.collect)
        return self._checked(scores)

    def _scores(self, state: Propagation, alive: Keep, budget: Budget, number: int) -> dict[str, np.ndarray]:
        """One score a unit, measured on the network as cut so far; units that have left have -inf."""
        groups = self.evidence.groups
        candidates = Candidates(self.program, groups, self.readers, alive, state.moments)
        orders = {group.name: candidates.order(group) for group in groups}
        scores = self._allocated(candidates, orders, state, budget, number)
        self.alternatives = [scores]
        if self.settings.is_swapped:
            self.alternatives.append(self._swapped(candidates, orders, scores, budget))
        return scores

    def _swapped(
        self,
        candidates: Candidates,
        orders: Mapping[str, np.ndarray],
        scores: Mapping[str, np.ndarray],
        budget: Budget,
    ) -> dict[str, np.ndarray]:
        """The scores handed out anew: as many units of each group stay, but swaps may have changed which."""
        keep, result = select(scores, budget, self.evidence.groups), {}
        for group in self.evidence.groups:
            order, result[group.name] = orders[group.name], scores[group.name].copy()
            swapped = candidates.swapped(group, order, int(keep[group.name].sum()))
            result[group.name][swapped] = scores[group.name][order]
        return result

    def _allocated(
        self, candidates: Candidates, orders: Mapping[str, np.ndarray], state: Propagation, budget: Budget, number: int
    ) -> dict[str, np.ndarray]:
        """Scores of units that leave in these orders: how many leave each group is what the output says."""
        groups, program, alive = self.evidence.groups, self.program, candidates.alive
        if budget.scope != "global":
            return {group.name: _ranks(orders[group.name], group.size) for group in groups}
        tried: list[Candidate] = []
        target = self.budget.keep / max(1e-12, _share(groups, alive, self.budget))
        for group in groups:
            tried += self._levels(candidates, group, orders[group.name], target)
        costs, base = measured_costs(
            program,
            self._measured_inputs(),
            state.weights,
            tried,
            divergence(self.kind, TEMPERATURE),
            self._store(number, alive),
            lambda share, what="": self.report((number + share) / (self.settings.n_rounds + 0.2), what),
        )
        saved = savings(groups, self.budget)
        scores: dict[str, np.ndarray | None] = {}
        for group in groups:
            own = [i for i, candidate in enumerate(tried) if candidate.group == group.name]
            known = any(layer.key in state.moments for layer in self.readers[group.name])
            scores[group.name] = None
            if known and own:
                kept, extra = [tried[i].n_kept for i in own], [max(0.0, costs[i] - base) for i in own]
                scores[group.name] = unit_scores(orders[group.name], group.size, kept, extra, saved[group.name])
            elif known and len(orders[group.name]) == 1:
                scores[group.name] = None if alive[group.name].all() else np.where(alive[group.name], np.inf, -np.inf)
        return with_unknown(scores, {group.name: group.size for group in groups})

    def _levels(self, candidates: Candidates, group: UnitGroup, order: np.ndarray, target: float) -> list[Candidate]:
        layers = [layer for layer in self.readers[group.name] if layer.key in candidates.moments]
        counts = {max(1, round(level * len(order))) for level in levels(min(1.0, target), self.settings.n_levels)}
        found = []
        for n_kept in sorted(counts - {len(order)}, reverse=True) if layers else ():
            kept = np.zeros(group.size, bool)
            kept[order[len(order) - n_kept :]] = True
            weights = candidates.changed(group, kept)
            found.append(Candidate(group.name, n_kept, self.program.place[layers[0].node], weights))
        return found

    def _store(self, number: int, alive: Keep) -> Store:
        """Where this round's measurements are kept: a file named by all that decides them."""
        if self.evidence.cache is None:
            return compute_always
        sha = hashlib.sha256(weights_digest(self.evidence.model).encode())
        for value in self.arguments:
            sha.update(repr(value).encode() if not isinstance(value, torch.Tensor) else value.cpu().numpy().tobytes())
        sha.update(f"{self.budget} {self.effort} {self.evidence.groups.fingerprint} {number}".encode())
        for kept in alive.values():
            sha.update(kept.tobytes())
        return store_in(self.evidence.cache / f"output-error-{sha.hexdigest()[:16]}.json")

    def _measured_inputs(self) -> Arguments:
        """The held-out inputs, at most as many as the effort allows; all of a probe of one input."""
        rows = torch.nonzero(held_out(count(self.arguments)))[:, 0]
        return take(self.arguments, rows[: self.settings.n_inputs]) if len(rows) else self.arguments

    def _refitted(self, keep: Keep, collect: frozenset[str] = frozenset()) -> Propagation:
        return propagate(self.program, self.arguments, Removal(self.evidence.groups, keep), collect)

    def _checked(self, scores: dict[str, np.ndarray]) -> OutputScores:
        """The scores whose cut, refitted as a whole, is measured to be the best, with its predicted divergence.

        Beside those as they are: after swaps, which lower the errors of layers and may raise that of the output; and
        those that leave residual streams whole.
        """
        best, predicted = scores, dict[str, float]()
        if self.settings.is_checked:
            inside = self._without_streams(scores)
            for tried in [*self.alternatives, *([] if inside is None else [inside])]:
                found = self._predicted(select(tried, self.budget, self.evidence.groups))
                if not predicted or found["compared"] < predicted["compared"]:
                    best, predicted = tried, found
            self.facts |= {name: value for name, value in predicted.items() if name != "compared"}
        result = OutputScores(best)
        result.facts = self.facts
        return result

    def _predicted(self, keep: Keep) -> dict[str, float]:
        """How far the cut and refitted network is from the dense one, on inputs that no fit has seen."""
        self.report(0.95, "the whole cut")
        state = self._refitted(keep)
        each = {
            "predicted": relative(state.dense, state.cut, self.kind == "kl"),
            "compared": divergence(self.kind, TEMPERATURE)(state.dense, state.cut),
        }
        if self.kind == "kl":
            each["predicted_kl"] = divergence("kl")(state.dense, state.cut)
        is_held = _repeated(state.is_held, len(each["predicted"]))
        # Fitted rows can only look too good; where they look worse, the held-out ones were lucky.
        return {name: max(_mean(values[is_held]), _mean(values)) for name, values in each.items()}

    def _without_streams(self, scores: dict[str, np.ndarray]) -> dict[str, np.ndarray] | None:
        """The scores that leave residual streams whole; None where that changes nothing or cannot be afforded."""
        groups = self.evidence.groups
        streams = {group.name for group in groups if len(group.producers) > 1}
        keep = select(scores, self.budget, groups)
        if not any(not keep[name].all() for name in streams):
            return None
        top = max(float(np.max(values[np.isfinite(values)], initial=0.0)) for values in scores.values())
        inside = {n: np.full_like(values, 2 * top + 1) if n in streams else values for n, values in scores.items()}
        kept = select(inside, self.budget, groups)
        return inside if all(kept[name].all() for name in streams) else None

    def _note_limits(self, state: Propagation) -> None:
        """Names layers with fewer rows than units: little is known of these, and more inputs would help."""
        n_inputs, needed = count(self.arguments), dict[str, int]()
        for group in self.evidence.groups:
            for layer in self.readers[group.name]:
                rows = state.moments[layer.key][0].n_rows if layer.key in state.moments else group.size
                if rows < group.size:
                    path = layer.key.rpartition(".")[0] or layer.key
                    needed[path] = max(needed.get(path, 0), int(np.ceil(n_inputs * group.size / max(1, rows))))
        if needed:
            self.facts["limited"] = needed
            warn_about_probe(
                f"fewer rows of the probe than units at {listed(list(needed))}: little is known of what these are "
                f"worth; {max(needed.values())} inputs or more would do, got {n_inputs}"
            )


def output_scores(evidence: Evidence, budget: Budget, effort: Effort = "balanced") -> OutputScores:
    """One score a unit, larger stays: what the network's output loses when it leaves, per unit of the budget.

    Measurements are kept in `evidence.cache`, if it names a folder, so that an interrupted search resumes.
    """
    with bar("measuring") as report, torch.random.fork_rng(devices=[]):
        return _Search(evidence, budget, EFFORTS[effort], effort, report).run()


def _ranks(order: np.ndarray, size: int) -> np.ndarray:
    scores = np.full(size, -np.inf)
    scores[order] = (np.arange(len(order)) + 0.5) / max(1, size)
    return scores


def _share(groups: Groups, keep: Keep, budget: Budget) -> float:
    """What is left of what the budget counts."""
    if budget.of == "flops":
        return groups.flops(keep) / max(1, groups.flops())
    if budget.of == "weights":
        return groups.parameters(keep) / max(1, groups.parameters())
    return sum(int(kept.sum()) for kept in keep.values()) / max(1, groups.n_units)


def _mean(values: torch.Tensor) -> float:
    return float(values.mean()) if len(values) else 0.0


def _repeated(is_held: torch.Tensor, n: int) -> torch.Tensor:
    return is_held if len(is_held) == n else is_held.repeat_interleave(max(1, n // len(is_held)))[:n]
