"""What a criterion may look at: the network, its groups, and a few inputs with their labels.

How it looks is in `activations` (what flows into the next layers) and `unit_parameters` (what makes the units).
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from jaxtyping import Float, Int64
from torch import Tensor, nn

from splinecut.errors import InputError
from splinecut.moved import renamed
from splinecut.networks.groups.values import Groups
from splinecut.networks.inputs import Arguments, as_arguments, count

NO_GROUPS = Groups((), {}, (), {}, {}, {})  # of methods whose units are single weights


@dataclass(frozen=True)
class Evidence:
    """A network in the state it is judged in. `probe`: (samples, *input), or a tuple of the network's arguments.

    labels:        the classes of the probe, for criteria that need a loss.
    search_result: what the method's own `search` returned, if it has one.
    cache:         a folder where a long score keeps what it has measured, so that it resumes.
    """

    model: nn.Module
    groups: Groups
    probe: Float[Tensor, "samples *input"] | Arguments
    seed: int = 0
    labels: Int64[Tensor, " samples"] | None = None
    search_result: Any = None
    cache: Path | None = None

    @property
    def found(self) -> Any:
        """The former name of `search_result`."""
        warnings.warn("Evidence.found is now search_result; the old name goes in 0.3", DeprecationWarning, 2)
        return self.search_result

    @property
    def arguments(self) -> Arguments:
        """The probe as the arguments of a call."""
        return as_arguments(self.probe)

    @property
    def n_inputs(self) -> int:
        """How many samples the probe has."""
        return count(self.arguments)

    @property
    def images(self) -> Float[Tensor, "samples *input"]:
        """The probe of a network with one argument, for criteria that follow that one through the network."""
        first, *others = self.arguments
        if others or not isinstance(first, Tensor):
            raise InputError(
                f"this method needs a network with one argument, got a probe of {1 + len(others)}; use 'spline', "
                "which takes any, or a method that looks at weights only, such as 'l2'"
            )
        return first

    def labelled(self) -> tuple[Float[Tensor, "samples *input"], Int64[Tensor, " samples"]]:
        """The probe with its labels; refuses where they were not given."""
        if self.labels is None:
            raise InputError("this method looks at the loss and needs labels; pass labels= beside the example inputs")
        return self.images, self.labels


__getattr__ = renamed(
    __name__,
    {
        "readers": "splinecut.pruning.activations.consumer_layers",
        "unit_cuts": "splinecut.pruning.unit_parameters.unit_cuts",
    },
)
