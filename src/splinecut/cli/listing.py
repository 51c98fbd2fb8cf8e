"""`splinecut list`: the models, data sets, methods and recipes that can be named."""

from __future__ import annotations

from typing import Annotated

import typer

from splinecut.errors import unknown


def list_(kind: Annotated[str, typer.Argument(help="models, data, methods or recipes")]) -> None:
    """List the available models, data sets, pruning methods or recipes."""
    from rich.table import Table

    from splinecut.cli.screen import screen

    table = Table(box=None, pad_edge=False, show_header=False)
    for row in _listing(kind):
        table.add_row(*row)
    screen().print(table)


def _listing(kind: str) -> list[tuple[str, ...]]:
    """The rows that `splinecut list KIND` prints."""
    if kind == "recipes":
        from splinecut.experiments import recipes

        return [(name, recipes.read(path).get("description", "")) for name, path in recipes.shipped().items()]
    if kind == "models":
        from splinecut.networks.models import MODELS, describe

        return [(name, describe(name)) for name in MODELS]
    if kind == "data":
        from splinecut.training.data import DATA

        return list(DATA.items())
    if kind == "methods":
        from splinecut.pruning.methods.catalogue import METHODS

        return [(name, kind.units, kind.state, kind.reference) for name, kind in METHODS.items()]
    raise unknown("listing", kind, ("models", "data", "methods", "recipes"))
