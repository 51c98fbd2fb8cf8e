"""Costs of a run: every forward and backward pass is charged to a named phase, in FLOPs, seconds and joules.

There are two totals. `paper` is what the paper counts: 3 x forward FLOPs x images for training passes
(a backward costs two forwards), nothing for validating, probing, scoring or searching. `full` is all that was
executed, by the same rule of three. Multiply and add count as two. Neither gives credit for single weights that are
zero, since dense kernels multiply by them all the same; `sparse` is `full` for an ideal machine that does not, in
training passes.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Literal

from splinecut.errors import InputError

TRAIN = 3  # forwards' worth of FLOPs in one forward and backward pass
FORWARD = 1

_PHASE = re.compile(r"(.+?)(?:-(\d+(?:\.\d+)?(?:e-\d+)?))?(?:: (.+))?")
_ON_PRUNED = (
    "calibrate",
    "reinitialise",
    "retrain",
    "test",
)  # kinds of phase on the network after its last cut


@dataclass(frozen=True)
class Phase:
    """What a cost is charged to: `round-2: validate` is the part `validate` of the second `round`.

    Its string names ledger entries and checkpoint folders. Only this class writes or parses it.

    kind:  "train", "retrain", "round", "search", or a method's own, such as "pruning-net".
    index: a number in digits, such as "2" of round-2 or "0.5" of centripetal-0.5; empty for none.
    part:  work beside the training passes, such as "validate" or "teacher"; empty for the passes themselves.
    """

    kind: str
    index: str = ""
    part: str = ""

    def __post_init__(self) -> None:
        match = _PHASE.fullmatch(str(self))
        if match is None or match.groups("") != (self.kind, self.index, self.part):
            # Otherwise a stored ledger would be read back as another phase than it was written for.
            raise InputError(
                f"{str(self)!r} does not read back as kind {self.kind!r}, index {self.index!r}, part {self.part!r}; "
                "use Phase.parse"
            )

    def __str__(self) -> str:
        index, part = f"-{self.index}" if self.index else "", f": {self.part}" if self.part else ""
        return f"{self.kind}{index}{part}"

    @classmethod
    def parse(cls, text: str | Phase) -> Phase:
        """The phase that `text` names; a phase is returned as it is."""
        if isinstance(text, Phase):
            return text
        match = _PHASE.fullmatch(text)
        if match is None:
            raise InputError(f"a phase needs a name, got {text!r}; use one such as 'search'")
        return cls(*match.groups(""))

    @property
    def network(self) -> Literal["dense", "between", "pruned"]:
        """Which network the phase works on; rounds work on networks between the dense and the pruned one."""
        if self.kind in _ON_PRUNED:
            return "pruned"
        return "between" if self.kind == "round" else "dense"

    def with_part(self, part: str) -> Phase:
        """A part of this phase; "" gives the phase that a part belongs to."""
        return replace(self, part=part)


@dataclass(frozen=True)
class Charge:
    """What one phase has cost so far. FLOPs are exact integers; `joules` is None if unmeasured.

    `spared_flops` are those of `flops` that multiplied by weights held at zero.
    """

    flops: int = 0
    paper_flops: int = 0
    images: int = 0
    seconds: float = 0.0
    joules: float | None = None
    spared_flops: int = 0

    @property
    def sparse_flops(self) -> int:
        """What an ideal sparse machine would execute."""
        return self.flops - self.spared_flops

    def __add__(self, other: Charge) -> Charge:
        joules = None if self.joules is None and other.joules is None else (self.joules or 0) + (other.joules or 0)
        return Charge(
            self.flops + other.flops,
            self.paper_flops + other.paper_flops,
            self.images + other.images,
            self.seconds + other.seconds,
            joules,
            self.spared_flops + other.spared_flops,
        )


@dataclass
class Ledger:
    """Phase name -> Charge, in order of first use."""

    phases: dict[str, Charge] = field(default_factory=dict)

    def charge(
        self,
        phase: Phase | str,
        forward_flops: int,
        images: int,
        passes: int = TRAIN,
        in_paper: bool | None = None,
        seconds: float = 0.0,
        spared_flops: int = 0,
    ) -> None:
        """Charges `images` passes of `passes` x `forward_flops` (one image's forward) to `phase`.

        `in_paper` says whether the paper would count them; unless told, it counts training passes only.
        `spared_flops` are those of one image's whole pass that multiply by weights held at zero.
        """
        counted = passes == TRAIN if in_paper is None else in_paper
        flops = passes * forward_flops * images
        spared = spared_flops * images
        self._add(phase, Charge(flops, flops if counted else 0, images, seconds, spared_flops=spared))

    def spend(self, phase: Phase | str, seconds: float = 0.0, joules: float | None = None) -> None:
        """Adds time and measured energy to `phase`."""
        self._add(phase, Charge(seconds=seconds, joules=joules))

    def _add(self, phase: Phase | str, charge: Charge) -> None:
        name = str(phase)
        self.phases[name] = self.phases.get(name, Charge()) + charge

    @property
    def total(self) -> Charge:
        """All phases added up; `.flops` is the `full` total, `.paper_flops` and `.sparse_flops` the other two."""
        return sum(self.phases.values(), Charge())

    def __iter__(self) -> Iterator[tuple[str, Charge]]:
        return iter(self.phases.items())

    def to_dict(self) -> dict[str, Any]:
        """Plain numbers, for a record or a checkpoint."""
        return {name: asdict(charge) for name, charge in self.phases.items()}

    @property
    def stages(self) -> frozenset[Phase]:
        """All phases, each with its parts as one."""
        return frozenset(Phase.parse(name).with_part("") for name in self.phases)

    def only(self, phases: Collection[Phase]) -> Ledger:
        """The charges of these phases and of their parts."""
        return Ledger({name: charge for name, charge in self if Phase.parse(name).with_part("") in phases})

    @classmethod
    def from_dict(cls, phases: Mapping[str, Mapping[str, Any]]) -> Ledger:
        """The ledger that `to_dict` wrote."""
        return cls({name: Charge(**charge) for name, charge in phases.items()})

    def without_time(self) -> dict[str, Any]:
        """What must be equal between two runs of the same work: everything but seconds and joules."""
        return {name: asdict(replace(c, seconds=0.0, joules=None)) for name, c in self.phases.items()}


class UncountedLedger(Ledger):
    """A ledger for what the paper leaves out: everything is charged in full, nothing as the paper counts."""

    def _add(self, phase: Phase | str, charge: Charge) -> None:
        super()._add(phase, replace(charge, paper_flops=0))
