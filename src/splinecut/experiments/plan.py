"""What a recipe alone decides, settled once: `plan(experiment)` resolves method, budget, recovery, refit and stages.

Everything that runs an experiment reads its plan: the runner, the scheduler of a sweep, and its workers, to which it is
pickled. `experiments.building` makes the network and the context of a run from it.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from typing import Any

from splinecut.errors import InputError
from splinecut.experiments.spec import Experiment
from splinecut.pruning.budget import Budget
from splinecut.pruning.detection_rules import DETECTION_RULES
from splinecut.pruning.engine.stages import Stage, first_training
from splinecut.pruning.method import Method, Recovery
from splinecut.pruning.methods.catalogue import resolve_method
from splinecut.training.ledger import Phase
from splinecut.training.pretraining import PHASE as PRETRAINING


@dataclass(frozen=True)
class Plan:
    """An experiment and what it means: no method, budget or recovery is resolved a second time.

    residual: how residual streams are read, the experiment's or the method's way.
    refit:    what follows a cut; None for nothing.
    stages:   pretraining, first training and search, as far as the recipe has them. Rounds and retraining are not among
              them: how many there are and where they start is known only after the first training.
    """

    experiment: Experiment
    method: Method | None = None
    budget: Budget | None = None
    recovery: Recovery | None = None
    residual: str = "tied"
    refit: str | None = None
    stages: tuple[Stage, ...] = ()

    def facts(self, data: Any) -> dict[str, Any]:
        """What decides all stages of the run beside the seed and their own facts; `data` identifies the data set.

        Names shared folders (`Stage.cache_name`), so keys appear only in runs that need them.
        """
        experiment = self.experiment
        facts = {"model": experiment.model.model_dump(mode="json"), "data": data}
        if self.method and self.budget and self.method.first_training(self.budget):
            facts["residual"] = self.residual  # a first training of its own may look at units
        if experiment.start.is_trained:
            facts["initial weights"] = experiment.start.model_dump(mode="json")
        return facts

    def schedule_keys(self) -> frozenset[str]:
        """Of the stages that other runs may share; two runs with a key in common need the same result."""
        facts = {**self.facts(self.experiment.data.model_dump(mode="json")), "seed": self.experiment.seed}
        early = {name: fact for name, fact in facts.items() if name != "residual"}  # as in `RunContext.pretrain`
        return frozenset(
            stage.schedule_key(early if stage.phase == PRETRAINING else facts)
            for stage in self.stages
            if stage.decided_by is not None
        )


def plan(experiment: Experiment | Plan) -> Plan:
    """The plan of an experiment; raises InputError for an unknown method, option or budget. A plan is its own."""
    if isinstance(experiment, Plan):
        return experiment
    if experiment.method is None:
        residual, refit = experiment.residual or "tied", _refit(experiment.refit or "none")
        return Plan(experiment, residual=residual, refit=refit, stages=_stages(experiment))
    method, budget = method_and_budget(experiment)
    recovery = recovery_of(experiment, method)
    residual, refit = experiment.residual or method.residual, _refit(experiment.refit or method.refit)
    stages = _stages(experiment, method, budget, recovery)
    return Plan(experiment, method, budget, recovery, residual, refit, stages)


def _refit(name: str) -> str | None:
    return None if name == "none" else name


def _stages(
    experiment: Experiment,
    method: Method | None = None,
    budget: Budget | None = None,
    recovery: Recovery | None = None,
) -> tuple[Stage, ...]:
    start, training, stages = experiment.start, experiment.training, []
    if start.is_trained and start.plan is not None:
        config = start.plan.model_copy(update={"precision": training.precision})
        stages.append(Stage(PRETRAINING, config, decided_by={}))
    if method is None or budget is None or recovery is None:
        first = _filmed(experiment, first_training({}, config=training))
        # A dense run that a detector stops keeps its training to itself: `decided_by` does not name the detector.
        return (*stages, replace(first, decided_by=None) if experiment.detector else first)
    detector = _detector_facts(experiment)
    if method.trains_first:
        rewind_step = recovery.step if recovery.weights == "rewind" else 0
        first = first_training(method.first_training(budget), detector, rewind_step, training)
        stages.append(_filmed(experiment, first))
    if type(method).search is not Method.search:
        assert experiment.method is not None
        # Without the budget: several budgets share what a search measures.
        decided = {"search": experiment.method.model_dump(mode="json"), "detector": detector}
        stages.append(Stage(Phase("search"), training, decided_by=decided))
    return tuple(stages)


def _filmed(experiment: Experiment, stage: Stage) -> Stage:
    """`stage` as a film decides it: its checkpoints hold the weights at the steps of the film."""
    if experiment.film is None:
        return stage
    return replace(stage, decided_by={**(stage.decided_by or {}), "film": sorted(set(experiment.film.steps))})


def _detector_facts(experiment: Experiment) -> dict[str, Any] | None:
    """What a recipe says of `EarlyBird.facts`; the size of the probe also depends on the data."""
    spec = experiment.detector
    if spec is None:
        return None
    rule = DETECTION_RULES[spec.rule].with_overrides(spec.threshold, spec.window)
    return {**spec.model_dump(mode="json"), **asdict(rule)}


def method_and_budget(experiment: Experiment) -> tuple[Method, Budget]:
    """The method and the budget an experiment asks for; an unknown name, option or unit is an InputError."""
    assert experiment.method is not None
    spec = experiment.budget
    own = experiment.method.options.get("scope", spec.scope)
    if "scope" in spec.model_fields_set and own != spec.scope:
        raise InputError(
            f"one scope decides the selection, got method.scope = {own!r} and budget.scope = {spec.scope!r}; "
            "leave one of them out"
        )
    budget = Budget(**{**spec.model_dump(), "scope": own})
    method = resolve_method(experiment.method.name, experiment.method.options, budget)[1]
    if method.units == "weights":
        if "of" in spec.model_fields_set and spec.of != "weights":
            raise InputError(
                f"{experiment.method.name} removes single weights, so its budget is one of weights, "
                f"got budget.of = {spec.of!r}; leave it out"
            )
        budget = replace(budget, of="weights")
    return method, budget


def recovery_of(experiment: Experiment, method: Method) -> Recovery:
    """What follows the cut: the method's own way, where the experiment does not say otherwise."""
    own, spec = method.recovery, experiment.retrain
    weights = spec.weights or own.weights
    if spec.start.is_trained and (weights != "reinit" or method.units == "weights"):
        raise InputError(
            f'retrain.start = "{spec.start.name}" is for fresh weights of a cut network, got {weights} '
            f"{method.units} of {experiment.method.name if experiment.method else 'no method'}; "
            'use a method that cuts channels and retrain.weights = "reinit"'
        )
    length = spec.length or own.length
    if spec.epochs is not None and (length != "full" or own.step):
        raise InputError(
            f"retrain.epochs = {spec.epochs} is how long a full retraining takes, got "
            f'retrain.length = "{length}"{f" from step {own.step}" if own.step else ""}; leave one of them out'
        )
    return Recovery(length, weights, own.step, spec.start, spec.epochs)
