"""The table of pruning methods, one row each, written by hand; and methods from elsewhere, by path or as values."""

from __future__ import annotations

from collections.abc import Mapping
from importlib.metadata import entry_points
from typing import Any

from splinecut.errors import InputError, unknown
from splinecut.object_loading import load_object
from splinecut.pruning.budget import Budget
from splinecut.pruning.method import Method
from splinecut.pruning.methods.channels.baselines import L2, Random
from splinecut.pruning.methods.channels.boundary import BoundaryKinks
from splinecut.pruning.methods.channels.csgd.method import CentripetalSGD
from splinecut.pruning.methods.channels.early_bird import EarlyBirdTicket
from splinecut.pruning.methods.channels.gal.method import GAL
from splinecut.pruning.methods.channels.gdp import GlobalDynamic
from splinecut.pruning.methods.channels.legr import LeGR
from splinecut.pruning.methods.channels.metapruning.method import MetaPruning
from splinecut.pruning.methods.channels.sfp import SoftFilters
from splinecut.pruning.methods.channels.slimming import Slimming, SlimmingIterative
from splinecut.pruning.methods.channels.spline import Spline
from splinecut.pruning.methods.channels.thinet import ThiNet
from splinecut.pruning.methods.weights.magnitude import Lottery, Magnitude
from splinecut.pruning.methods.weights.random_masks import ErdosRenyiKernel, Uniform
from splinecut.pruning.methods.weights.rigl import Rigl
from splinecut.pruning.methods.weights.sensitivity import Grasp, Snip
from splinecut.pruning.methods.weights.synflow import Synflow
from splinecut.pruning.options import check_options

METHODS: dict[str, type[Method]] = {
    "boundary": BoundaryKinks,
    "csgd": CentripetalSGD,
    "early-bird": EarlyBirdTicket,
    "erk": ErdosRenyiKernel,
    "gal": GAL,
    "gdp": GlobalDynamic,
    "grasp": Grasp,
    "l2": L2,
    "legr": LeGR,
    "lottery": Lottery,
    "magnitude": Magnitude,
    "metapruning": MetaPruning,
    "random": Random,
    "rigl": Rigl,
    "sfp": SoftFilters,
    "slimming": Slimming,
    "slimming-iterative": SlimmingIterative,
    "snip": Snip,
    "spline": Spline,
    "synflow": Synflow,
    "thinet": ThiNet,
    "uniform": Uniform,
}

ENTRY_POINTS = "splinecut.methods"  # the group under which installed packages offer methods by name


def method_class(name: str) -> type[Method]:
    """The method of that name: in the catalogue, at "package.module:Class", or offered by an installed package."""
    if name in METHODS:
        return METHODS[name]
    if ":" in name:
        return _checked(name, load_object(name, "method"))
    offered = {point.name: point for point in entry_points(group=ENTRY_POINTS)}
    if name in offered:
        return _checked(name, offered[name].load())
    raise unknown("method", name, [*METHODS, *offered], remedy="or your own package.module:Class")


def method_name(kind: type[Method]) -> str:
    """The name under which tickets and records know a method: the catalogue's, or where its class stands."""
    names = (name for name, each in METHODS.items() if each is kind)
    return next(names, f"{kind.__module__}:{kind.__qualname__}")


def resolve_method(
    method: str | type[Method] | Method, options: Mapping[str, Any] | None = None, budget: Budget | None = None
) -> tuple[str, Method]:
    """(name, method) of a name, a class or a value; options are those of a name or class, a value has its own.

    Where the method ranks by scope and its options do not say which, the budget's scope is its own.
    """
    options = options or {}
    if isinstance(method, Method):
        if options:
            raise InputError(f"options of {method!r} are its fields, got also {', '.join(options)}; set them there")
        return method_name(type(method)), method
    if isinstance(method, type) and issubclass(method, Method):
        name, kind = method_name(method), method
    elif isinstance(method, str):
        name, kind = method, method_class(method)
    else:
        raise InputError(f"method must be a name, a Method or a class of one, got {method!r}")
    check_options(name, kind, options)
    scope = {"scope": budget.scope} if budget is not None and kind.scope_option else {}
    return name, kind(**{**scope, **options})


def _checked(name: str, kind: Any) -> type[Method]:
    if not (isinstance(kind, type) and issubclass(kind, Method)):
        raise InputError(f"{name} must be a class derived from splinecut.pruning.Method, got {kind!r}")
    return kind
