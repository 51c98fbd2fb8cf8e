"""What a method runs with: the data, configuration, ledger and folder of one run, and how they are used.

Resumable: finished trainings load from their checkpoint; the cheap steps between them are recomputed.
"""

from __future__ import annotations

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
from splinecut.pruning.engine.search_cache import SearchCache, open_search_cache
from splinecut.pruning.engine.stages import Stage
from splinecut.pruning.evidence import NO_GROUPS, Evidence
from splinecut.pruning.weight_mask import apply_weight_mask
from splinecut.training import energy
from splinecut.training.data import DataSet
from splinecut.training.devices import SINGLE_PROCESS, Processes
from splinecut.training.hooks import ChargeEnergy, Hook, KeepBest
from splinecut.training.initialization import Initialization
from splinecut.training.ledger import FORWARD, Ledger, Phase, UncountedLedger
from splinecut.training.loop import train
from splinecut.training.pretraining import PHASE, pretraining_stages
from splinecut.training.progress import ConsoleProgress
from splinecut.training.seeding import generator

if TYPE_CHECKING:
    from splinecut.pruning.method import Method
    from splinecut.pruning.ticket import Ticket
    from splinecut.training.config import TrainingConfig


@dataclass(frozen=True)
class TrainingResult:
    """A trained network, its history (one row an epoch) and the weights of its best epoch."""

    model: nn.Module
    history: list[dict[str, Any]]
    best: KeepBest

    @property
    def steps(self) -> int:
        """Steps trained so far."""
        return int(self.history[-1]["step"]) if self.history else 0


@dataclass(frozen=True)
class Observer:
    """Looks at one training of a run: `hooks` join it, `finished` is called with the run and the result.

    decided_by: what the hooks add to a checkpoint, as plain JSON: only runs with the same can share the training.
    """

    hooks: Sequence[Hook]
    finished: Callable[[RunContext, TrainingResult], object]
    decided_by: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class RunContext:
    """What the driver and the methods need of a run.

    build:            seed -> an untrained network for the data.
    folder:           where trainings leave their checkpoints; None keeps nothing.
    shared:           where stages that several runs have in common leave theirs, each named by what decides it.
    cache_facts:      what decides a stage beside its own facts and the seed (model, data), as plain JSON.
    start:            what the untrained network is trained for before its first training.
    used_cache_names: names of the folders in `shared` that this run has needed so far.
    observers:        who looks at trainings, by the kind of their phase.
    """

    build: Callable[[int], nn.Module]
    dataset: DataSet
    plan: TrainingConfig
    seed: int = 0
    folder: Path | None = None
    shared: Path | None = None
    cache_facts: Mapping[str, Any] = field(default_factory=dict)
    device: torch.device = field(default_factory=lambda: torch.device("cpu"))
    processes: Processes = SINGLE_PROCESS
    progress: ConsoleProgress = field(default_factory=ConsoleProgress)
    ledger: Ledger = field(default_factory=Ledger)
    residual: str = "tied"
    refit: str | None = None
    probe_size: int = 512
    start: Initialization = field(default_factory=Initialization)
    used_cache_names: set[str] = field(default_factory=set)
    observers: Mapping[str, Observer] = field(default_factory=dict)

    @property
    def steps_per_epoch(self) -> int:
        return -(-len(self.dataset.train) // self.plan.batch_size)

    @property
    def dtype(self) -> torch.dtype:
        """Of weights and inputs."""
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
        # The whole permutation, then its head: a smaller probe is a part of a larger one, and labels match inputs.
        return torch.randperm(len(self.dataset.train), generator=generator(self.seed))[: size or self.probe_size]

    def evidence(self, model: nn.Module, method: Method, search_result: Any = None) -> Evidence:
        """What `method` may look at: `model`, its groups (of channels), a probe and its labels."""
        probe = self.probe().to(next(model.parameters()).dtype)
        groups = NO_GROUPS if method.units == "weights" else read_groups(model, probe, self.residual)
        return Evidence(model, groups, probe, self.seed, self.labels(), search_result)

    def flops(self, model: nn.Module) -> int:
        """FLOPs of one input's forward pass."""
        return cost.forward_flops(model, self.dataset.input_shape)

    def initial_model(self) -> nn.Module:
        """The network that the first training starts from; runs with the same `start` share its pretraining."""
        return self.pretrain(self.build(self.seed).to(self.device, self.dtype), self.start, PHASE, decided_by={})

    def pretrain(
        self, model: nn.Module, start: Initialization, phase: Phase, decided_by: Mapping[str, Any] | None = None
    ) -> nn.Module:
        """`model`, taken to `start` in place; each training on the way has checkpoints and a phase of its own."""
        # No unit is looked at yet: how residual streams are read must not keep runs from sharing these trainings.
        facts = {name: fact for name, fact in self.cache_facts.items() if name != "residual"}
        for step in pretraining_stages(start, model, self.dataset, self.seed):
            assert start.plan is not None
            config = start.plan.model_copy(update={"precision": self.plan.precision})
            there = replace(self, dataset=step.data, cache_facts=facts)
            there.train(step.model, Stage(step.phase(phase), config, decided_by=decided_by), step.hooks)
        return model

    def train(self, model: nn.Module, stage: Stage | Phase | str, hooks: Sequence[Hook] = ()) -> TrainingResult:
        """Train `model` in place, with checkpoints of its own, and charge the phase of `stage`.

        `context.train(model, "search")` trains by the run's own configuration, for this run alone. With
        `Stage.decided_by` and a folder for shared stages, the first run to need the stage trains, the others read its
        result, and all are charged the same.
        """
        stage = self._training(stage)
        observer = self.observers.get(stage.phase.kind)
        if observer is not None:
            hooks = [*hooks, *observer.hooks]
            decided = None if stage.decided_by is None else {**stage.decided_by, **observer.decided_by}
            stage = replace(stage, decided_by=decided)
        result = self._train(model, stage, hooks)
        if observer is not None:
            observer.finished(self, result)
        return result

    def _training(self, stage: Stage | Phase | str) -> Stage:
        stage = stage if isinstance(stage, Stage) else Stage(Phase.parse(stage))
        return stage if stage.config is not None else replace(stage, config=self.plan)

    def _train(self, model: nn.Module, stage: Stage, hooks: Sequence[Hook]) -> TrainingResult:
        assert stage.config is not None
        best = KeepBest()
        folder = self.folder / "checkpoints" / str(stage.phase) if self.folder else None
        holding: AbstractContextManager[object] = nullcontext()
        # Under torchrun each process would wait for the lock of another, which waits for it in the first reduction.
        if stage.decided_by is not None and self.shared is not None and self.processes.world == 1:
            folder = self._shared_folder(stage)
            # Two runs in one folder would write each other's checkpoints; the second waits and then reads the result.
            holding = locked(folder, wait=True)
        ledger = self.ledger if stage.in_paper else UncountedLedger(self.ledger.phases)
        with holding, energy.Meter(self.device) as meter:
            history = train(
                model,
                self.dataset,
                stage.config,
                seed=self.seed,
                device=self.device,
                ledger=ledger,
                phase=stage.phase,
                # Energy after the method's hooks: what they did in an epoch is in its joules.
                hooks=(best, *hooks, ChargeEnergy(meter), *([self.progress] if self.processes.is_main else [])),
                checkpoints=folder,
                processes=self.processes,
                say=self.progress.message if self.processes.is_main else None,
                start_step=stage.start_step,
            )
        self.ledger.phases = ledger.phases  # a resumed training has put back the ledger of its checkpoint
        return TrainingResult(model, history, best)

    def _shared_folder(self, stage: Stage) -> Path:
        """The folder of a shared stage; noted, since its cost may have been executed by another run."""
        assert self.shared is not None
        name = stage.cache_name(self.cache_facts, self.seed)
        self.used_cache_names.add(name)
        return self.shared / name

    def search_cache(self, phase: Phase | str, decided_by: Mapping[str, Any]) -> AbstractContextManager[SearchCache]:
        """Where a search that is no training stores its evaluations; runs that share trainings share these too.

        decided_by: what decides them beside the run's own facts.
        """
        stage = Stage(Phase.parse(phase), decided_by=decided_by)
        if self.shared is not None:
            return open_search_cache(self._shared_folder(stage), self.ledger)
        name = stage.cache_name(self.cache_facts, self.seed)
        return open_search_cache(self.folder / "checkpoints" / name if self.folder else None, self.ledger)

    def apply(self, model: nn.Module, ticket: Ticket) -> nn.Module:
        """`model` cut by `ticket` and refitted, at a charge; a ticket of single weights sets them to zero in place."""
        if ticket.kind == "weights":
            apply_weight_mask(model, ticket.keep)
            return model
        is_uncut = all(kept.all() for kept in ticket.keep.values())
        refit = None if is_uncut else self.refit  # nothing was removed, so there is nothing to correct
        probe = self.probe() if refit == "least_squares" else None
        smaller = apply.cut(model, ticket, refit=refit, probe=probe)
        if probe is not None:
            # Twice the dense network: the cut one runs at full size beside it, removed units read with weight zero.
            self.ledger.charge(Phase("refit"), 2 * self.flops(model), len(probe), FORWARD)
        return smaller


__getattr__ = renamed(__name__, {"Bench": "RunContext", "Trained": "TrainingResult"})
