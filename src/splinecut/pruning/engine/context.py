"""Where a method works: the data, plan, ledger and folder of one run, and how they are used.

Every training has checkpoints of its own, so a run can be entered again after a kill: a training that has ended
gives its result at once, and what lies between trainings follows from the weights and is simply done again.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from jaxtyping import Float, Int64
from torch import Tensor, nn

from splinecut.locking import locked
from splinecut.moved import renamed
from splinecut.networks import cost
from splinecut.networks.groups.read import groups as read_groups
from splinecut.pruning import apply
from splinecut.pruning.engine.search_cache import SearchCache, UncountedLedger, open_search_cache
from splinecut.pruning.evidence import NO_GROUPS, Evidence
from splinecut.pruning.weight_mask import apply_weight_mask
from splinecut.training import energy
from splinecut.training.data import DataSet
from splinecut.training.devices import SINGLE_PROCESS, Processes
from splinecut.training.hooks import Hook, TrainState
from splinecut.training.initialization import Initialization
from splinecut.training.ledger import FORWARD, Ledger
from splinecut.training.loop import train
from splinecut.training.pretraining import PHASE, pretraining_stages
from splinecut.training.progress import ConsoleProgress
from splinecut.training.seeding import generator

if TYPE_CHECKING:
    from splinecut.pruning.method import Method
    from splinecut.pruning.ticket import Ticket
    from splinecut.training.config import TrainingConfig


class KeepBest(Hook):
    """Holds the weights of the epoch with the best validation accuracy (regression: loss); the earlier wins ties."""

    name = "best"

    def __init__(self) -> None:
        self.epoch = 0
        self.value = float("-inf")
        self.weights: dict[str, Tensor] = {}

    def after_epoch(self, state: TrainState) -> bool:
        row = state.history[-1]
        accuracy, loss = row.get("validation_accuracy"), row.get("validation_loss")
        value = accuracy if accuracy is not None else -loss if loss is not None else None
        if value is not None and value > self.value:
            self.epoch, self.value = state.epoch, value
            self.weights = {name: tensor.detach().clone() for name, tensor in state.model.state_dict().items()}
        return False

    def state(self) -> dict[str, Any]:
        return {"epoch": self.epoch, "value": self.value if self.epoch else None, "weights": self.weights}

    def restore(self, state: dict[str, Any]) -> None:
        if state["epoch"]:
            self.epoch, self.value, self.weights = state["epoch"], state["value"], state["weights"]


class ChargeEnergy(Hook):
    """Charges the joules of each epoch to the phase, so that they are in the checkpoint like everything else."""

    def __init__(self, meter: energy.Meter) -> None:
        self.meter, self.charged = meter, 0.0

    def after_epoch(self, state: TrainState) -> bool:
        if self.meter.joules is not None:
            state.ledger.spend(state.phase, joules=self.meter.joules - self.charged)
            self.charged = self.meter.joules
        return False


@dataclass(frozen=True)
class TrainingResult:
    """A network after a training, and what was learnt on the way."""

    model: nn.Module
    history: list[dict[str, Any]]
    best: KeepBest

    @property
    def steps(self) -> int:
        """Steps trained so far."""
        return int(self.history[-1]["step"]) if self.history else 0


@dataclass(frozen=True)
class RunContext:
    """What the driver and the methods need of a run.

    build:  seed -> an untrained network for the data.
    folder: where trainings leave their checkpoints; None keeps nothing.
    shared: where trainings that several runs have in common leave theirs, named by what decides them.
    facts:  what decides a training beside the plan and the seed (model, data), as plain JSON; names shared ones.
    start:  what the untrained network is trained for before its first training.
    used:   names of the folders in `shared` that this run has needed so far.
    """

    build: Callable[[int], nn.Module]
    dataset: DataSet
    plan: TrainingConfig
    seed: int = 0
    folder: Path | None = None
    shared: Path | None = None
    facts: Mapping[str, Any] = field(default_factory=dict)
    device: torch.device = field(default_factory=lambda: torch.device("cpu"))
    processes: Processes = SINGLE_PROCESS
    progress: ConsoleProgress = field(default_factory=ConsoleProgress)
    ledger: Ledger = field(default_factory=Ledger)
    residual: str = "tied"
    refit: str | None = None
    probe_size: int = 512
    start: Initialization = field(default_factory=Initialization)
    used: set[str] = field(default_factory=set)

    @property
    def steps_per_epoch(self) -> int:
        return -(-len(self.dataset.train) // self.plan.batch_size)

    @property
    def dtype(self) -> torch.dtype:
        """Of the plan's weights and inputs."""
        return torch.float64 if self.plan.precision == "float64" else torch.float32

    def probe(self, size: int | None = None) -> Float[Tensor, "samples *input"]:
        """`size` training inputs, drawn by the seed, as the network sees them."""
        return self.dataset.train.examples(self._rows(size), self.device).to(self.dtype)

    def labels(self, size: int | None = None) -> Int64[Tensor, " samples"] | None:
        """The classes of the inputs that `probe` gives; None for regression."""
        if self.dataset.task != "classification":
            return None
        return self.dataset.train.targets[self._rows(size)].to(self.device)

    def _rows(self, size: int | None) -> Tensor:
        return torch.randperm(len(self.dataset.train), generator=generator(self.seed))[: size or self.probe_size]

    def evidence(self, model: nn.Module, method: Method, found: Any = None) -> Evidence:
        """What `method` may look at: `model`, its groups (of channels), a probe and its labels."""
        probe = self.probe().to(next(model.parameters()).dtype)
        groups = NO_GROUPS if method.units == "weights" else read_groups(model, probe, self.residual)
        return Evidence(model, groups, probe, self.seed, self.labels(), found)

    def flops(self, model: nn.Module) -> int:
        """FLOPs of one input's forward pass."""
        return cost.forward_flops(model, self.dataset.input_shape)

    def initial_model(self) -> nn.Module:
        """The network that the first training starts from; runs with the same start share the way there."""
        return self.pretrain(self.build(self.seed).to(self.device, self.dtype), self.start, PHASE, decided_by={})

    def pretrain(
        self, model: nn.Module, start: Initialization, phase: str, decided_by: Mapping[str, Any] | None = None
    ) -> nn.Module:
        """`model`, taken to `start` in place; each training on the way has checkpoints and a phase of its own."""
        for lesson in pretraining_stages(start, model, self.dataset, self.seed):
            assert start.plan is not None
            plan = start.plan.model_copy(update={"precision": self.plan.precision})
            facts = {name: fact for name, fact in self.facts.items() if name != "residual"}  # no unit is looked at yet
            there = replace(self, dataset=lesson.data, facts=facts)
            there.train(lesson.model, lesson.phase(phase), lesson.hooks, plan, decided_by=decided_by)
        return model

    def train(
        self,
        model: nn.Module,
        phase: str,
        hooks: Sequence[Hook] = (),
        plan: TrainingConfig | None = None,
        start_step: int = 0,
        decided_by: Mapping[str, Any] | None = None,
        in_paper: bool = True,
    ) -> TrainingResult:
        """Trains `model` by the plan, with checkpoints of its own, and charges it to `phase`.

        decided_by: what decides this training beside the context's own facts; given, and with a place for shared
        trainings, the first run to need it trains and the others read its result, and are charged the same.
        in_paper:  whether the paper counts this training; it does not count those that only search.
        """
        best = KeepBest()
        plan = plan or self.plan
        folder = self.folder / "checkpoints" / phase if self.folder else None
        is_shared = decided_by is not None and self.shared is not None and self.processes.world == 1
        if is_shared:
            folder = self._shared_folder(phase, plan, start_step, decided_by or {})
        holding = locked(folder, wait=True) if is_shared and folder is not None else nullcontext()
        ledger = self.ledger if in_paper else UncountedLedger(self.ledger.phases)
        with holding, energy.Meter(self.device) as meter:
            history = train(
                model,
                self.dataset,
                plan,
                seed=self.seed,
                device=self.device,
                ledger=ledger,
                phase=phase,
                hooks=(best, *hooks, ChargeEnergy(meter), *([self.progress] if self.processes.is_main else [])),
                checkpoints=folder,
                processes=self.processes,
                say=self.progress.message if self.processes.is_main else None,
                start_step=start_step,
            )
        self.ledger.phases = ledger.phases
        return TrainingResult(model, history, best)

    def _shared_folder(self, phase: str, plan: TrainingConfig, start_step: int, by: Mapping[str, Any]) -> Path:
        return self._common(self._named(phase, {"plan": plan.model_dump(mode="json"), "start": start_step, **by}))

    def _common(self, name: str) -> Path:
        """A folder among the shared ones; noted, since what is in it was perhaps done by another run."""
        assert self.shared is not None
        self.used.add(name)
        return self.shared / name

    def _named(self, phase: str, by: Mapping[str, Any]) -> str:
        both = self.facts.keys() & by.keys()
        assert all(self.facts[key] == by[key] for key in both), f"two facts of one name: {sorted(both)}"
        facts = {"phase": phase, "seed": self.seed, **self.facts, **by}
        return f"{phase}-{hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()[:16]}"

    def search_cache(self, phase: str, by: Mapping[str, Any]) -> AbstractContextManager[SearchCache]:
        """Where a search that is no training keeps its answers; `by`: what decides them beside the context's own facts.

        Runs that share their trainings share these too.
        """
        name = self._named(phase, by)
        if self.shared is not None:
            return open_search_cache(self._common(name), self.ledger)
        return open_search_cache(self.folder / "checkpoints" / name if self.folder else None, self.ledger)

    def apply(self, model: nn.Module, ticket: Ticket) -> nn.Module:
        """The cut network, refitted as the context says and charged for it; removed single weights are set to zero."""
        if ticket.kind == "weights":
            apply_weight_mask(model, ticket.keep)
            return model
        is_whole = all(kept.all() for kept in ticket.keep.values())
        refit = None if is_whole else self.refit  # where nothing leaves nothing is to be made good
        probe = self.probe() if refit == "least_squares" else None
        smaller = apply.cut(model, ticket, refit=refit, probe=probe)
        if probe is not None:
            for network in (model, smaller):
                self.ledger.charge("refit", self.flops(network), len(probe), FORWARD)
        return smaller


__getattr__ = renamed(__name__, {"RunContext": "RunContext", "Trained": "TrainingResult"})
