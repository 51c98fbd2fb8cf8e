"""Names and module paths of 0.1 that its documentation showed: they still work, with a warning, for one release."""

from __future__ import annotations

import functools
import importlib
import sys
import warnings
from collections.abc import Callable, Mapping, Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any, ParamSpec, TypeVar

Parameters = ParamSpec("Parameters")
Result = TypeVar("Result")

MOVED = {  # path in 0.1 -> path now
    "splinecut.experiments.filming": "splinecut.experiments.film.build",
    "splinecut.experiments.frames": "splinecut.experiments.film.frames",
    "splinecut.experiments.takes": "splinecut.experiments.film.snapshots",
    "splinecut.experiments.workers": "splinecut.experiments.sweep.jobs",
    "splinecut.geometry.pictures": "splinecut.geometry.plotting",
    "splinecut.geometry.sides": "splinecut.geometry.graph",
    "splinecut.geometry.soft": "splinecut.geometry.soft_codes",
    "splinecut.networks.units": "splinecut.networks.groups.values",
    "splinecut.pruning.bench": "splinecut.pruning.engine.context",
    "splinecut.pruning.catalogue": "splinecut.pruning.methods.catalogue",
    "splinecut.pruning.densities": "splinecut.pruning.methods.weights.random_masks",
    "splinecut.pruning.driver": "splinecut.pruning.engine.driver",
    "splinecut.report.assembly": "splinecut.report.build",
    "splinecut.training.plan": "splinecut.training.config",
    "splinecut.training.start": "splinecut.training.initialization",
}


class _Moved(MetaPathFinder, Loader):
    """Finds a module under its old path and gives the module at its new one, so that both are the same object.

    A finder rather than a file for every old path: packages show what they hold today and nothing else.
    """

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        return ModuleSpec(name, self) if name in MOVED else None

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        new = MOVED[spec.name]
        warnings.warn(f"{spec.name} is now {new}; the old path goes in 0.3", DeprecationWarning, stacklevel=2)
        module = importlib.import_module(new)
        self._spec = module.__spec__
        return module

    def exec_module(self, module: ModuleType) -> None:
        """Nothing to run: the module was imported under its new path, whose spec it keeps."""
        module.__spec__ = self._spec


def install() -> None:
    """Lets Python ask for moved modules once it has found nothing at a path."""
    if not any(isinstance(finder, _Moved) for finder in sys.meta_path):
        sys.meta_path.append(_Moved())


def renamed(module: str, names: Mapping[str, str]) -> Callable[[str], Any]:
    """A module's `__getattr__` for changed names: old -> new, with the module if that is another one."""

    def find(name: str) -> Any:
        if name not in names:
            raise AttributeError(f"module {module!r} has no attribute {name!r}")
        warnings.warn(
            f"{module}.{name} is now {names[name]}; the old name goes in 0.3", DeprecationWarning, stacklevel=2
        )
        home, _, new = names[name].rpartition(".")
        return getattr(importlib.import_module(home or module), new)

    return find


def renamed_arguments(**names: str) -> Callable[[Callable[Parameters, Result]], Callable[Parameters, Result]]:
    """Lets a function take keyword arguments by their old names as well: old="new"."""

    def wrap(function: Callable[Parameters, Result]) -> Callable[Parameters, Result]:
        @functools.wraps(function)
        def call(*args: Parameters.args, **kwargs: Parameters.kwargs) -> Result:
            for old in kwargs.keys() & names.keys():
                new = names[old]
                warnings.warn(
                    f"{function.__qualname__}({old}=) is now {new}=; the old name goes in 0.3",
                    DeprecationWarning,
                    stacklevel=2,
                )
                kwargs[new] = kwargs.pop(old)
            return function(*args, **kwargs)

        return call

    return wrap
