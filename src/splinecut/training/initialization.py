"""Where a network starts from, as a frozen value: random weights, or weights trained for something else first."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field, model_validator

from splinecut.moved import renamed
from splinecut.training.config import Frozen, Optimizer, Schedule, TrainingConfig

ADVERSARIAL = TrainingConfig(  # the authors': plain SGD, no augmentation, at most 350 epochs
    epochs=350,
    batch_size=128,
    optimizer=Optimizer(lr=0.1, momentum=0.0, weight_decay=0.0),
    schedule=Schedule(milestones=(150, 250)),
    augment=False,
)
LAYERWISE = TrainingConfig(  # the authors': 50 epochs a layer, a fifth of the rate every 15
    epochs=50,
    batch_size=128,
    optimizer=Optimizer(lr=0.1, weight_decay=5e-4),
    schedule=Schedule(milestones=(15, 30, 45), gamma=0.2),
)
PLANS = {"adversarial": ADVERSARIAL, "layerwise": LAYERWISE, "layerwise-rotation": LAYERWISE}


class Initialization(Frozen):
    """The weights that a training begins with.

    kaiming             as the network is built
    adversarial         fitted to random labels of the training images, `copies` of each with values zeroed
    layerwise           one layer after another, each under a head that names the class
    layerwise-rotation  the same without labels: the head names by how much the image was turned

    What `plan` leaves out is the authors' of each, not that of an ordinary training.
    """

    name: Literal["kaiming", "adversarial", "layerwise", "layerwise-rotation"] = "kaiming"
    copies: Annotated[int, Field(ge=1)] = 1  # adversarial
    zeroed: Annotated[float, Field(ge=0, lt=1)] = 0.1  # adversarial: share of the values of an image
    plan: TrainingConfig | None = None

    @property
    def is_trained(self) -> bool:
        """Whether the weights have to be trained for."""
        return self.name in PLANS

    @model_validator(mode="before")
    @classmethod
    def _with_the_authors_plan(cls, given: Any) -> Any:
        if not isinstance(given, dict) or given.get("name") not in PLANS:
            return given
        plan = given.get("plan")
        if plan is not None and not isinstance(plan, dict):
            return given
        return {**given, "plan": merge_tables(PLANS[given["name"]].model_dump(), plan or {})}

    @model_validator(mode="after")
    def _no_foreign_options(self) -> Initialization:
        foreign = {"copies", "zeroed"} if self.name != "adversarial" else set()
        foreign |= {"plan"} if not self.is_trained else set()
        for key in sorted(foreign & self.model_fields_set):
            if getattr(self, key) != type(self).model_fields[key].default:
                raise ValueError(f"{key} is not an option of start {self.name}; leave it out")
        return self


def merge_tables(table: dict[str, Any], more: dict[str, Any]) -> dict[str, Any]:
    """`table` with `more` written over it, table by table."""
    both = {key for key, value in more.items() if isinstance(value, dict) and isinstance(table.get(key), dict)}
    return {**table, **more, **{key: merge_tables(table[key], more[key]) for key in both}}


__getattr__ = renamed(__name__, {"Start": "Initialization"})
