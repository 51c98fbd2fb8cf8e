"""Stages of a run: what is trained or searched, and what decides its result, so that runs can share it."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from splinecut.training.ledger import Phase

if TYPE_CHECKING:
    from splinecut.training.config import TrainingConfig

FIRST = Phase("train")  # the training of the dense network; private where nothing says what decides it


@dataclass(frozen=True)
class Stage:
    """One training or search of a run.

    phase:      what its cost is charged to; also names its checkpoint folder.
    config:     how it trains. None: the run's own configuration for a training, nothing for a search.
    start_step: where in the schedule of `config` training starts.
    decided_by: what decides the result beside the facts of the run, as plain JSON. Runs in which all of it is equal
                share the stage. None: no other run uses it.
    in_paper:   whether the paper counts its cost; it does not count training that only searches.
    """

    phase: Phase
    config: TrainingConfig | None = None
    start_step: int = 0
    decided_by: Mapping[str, Any] | None = None
    in_paper: bool = True

    def cache_name(self, facts: Mapping[str, Any], seed: int) -> str:
        """The folder that holds the result; `facts` are those of the run (network, data), known once data are loaded.

        Stored on disk and in records: a change of the hashed JSON would train everything again.
        """
        return f"{self.phase}-{hashlib.sha256(self._key({**facts, 'seed': seed}).encode()).hexdigest()[:16]}"

    def schedule_key(self, spec_facts: Mapping[str, Any]) -> str:
        """Equal for stages that share a folder, as far as a recipe tells: data are named, not hashed. Not stored."""
        return self._key(spec_facts)

    def _key(self, facts: Mapping[str, Any]) -> str:
        own = dict(self.decided_by or {})
        if self.config is not None:
            # "plan" and "start" are the names of the first release: other words here would name other folders.
            own = {"plan": self.config.model_dump(mode="json"), "start": self.start_step, **own}
        both = facts.keys() & own.keys()
        assert all(facts[key] == own[key] for key in both), f"two facts of one name: {sorted(both)}"
        # Sorted, so that the order in which a recipe or a method lists its facts does not matter.
        return json.dumps({"phase": str(self.phase), **facts, **own}, sort_keys=True)


def first_training(
    method: Mapping[str, Any],
    detector: Mapping[str, Any] | None = None,
    rewind_step: int = 0,
    config: TrainingConfig | None = None,
) -> Stage:
    """The stage of the first training; methods and detectors that say the same of themselves share it.

    method:      `Method.first_training`; empty for plain training.
    detector:    what decides when training stops early.
    rewind_step: the step whose weights a snapshot keeps; 0 for none.
    """
    decided: dict[str, Any] = {"method": dict(method)}
    if detector is not None:
        decided["detector"] = dict(detector)
    if rewind_step:
        decided["snapshot"] = rewind_step  # the checkpoint holds the snapshot, so that only equal steps can share it
    return Stage(FIRST, config, decided_by=decided)


def phase_of_cache(name: str) -> Phase:
    """The phase of a stage, read from its `cache_name`."""
    return Phase.parse(name.rpartition("-")[0])
