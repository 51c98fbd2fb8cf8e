"""`splinecut demo`: three routes to a network that reads digits, and what each one costs."""

from __future__ import annotations

from pathlib import Path

from rich.console import Console

from splinecut.commands.tables import show_routes
from splinecut.experiments import runner, spec
from splinecut.experiments.records import Record
from splinecut.training.progress import Watch

ROUTES = {
    "dense": "train the whole network",
    "train, prune, retrain": "train it, cut it to half of its FLOPs, refit, train again",
    "early bird": "stop when the partition has settled, cut, refit, train",
}


def demo(out: Path, device: str) -> dict[str, Record]:
    """Runs the three routes (finished ones are read) and prints how they compare."""
    console = Console()
    routes: dict[str, Record] = {}
    base = spec.load("demo-digits")
    for name, about in ROUTES.items():
        console.print(f"[bold]{name}[/bold]: {about}", highlight=False)
        routes[name] = runner.run(_route(base, name), out, device=device, watch=Watch())
    show_routes("Handwritten digits, one small ConvNet, three routes", routes)
    drawn = routes["early bird"].pruning
    assert drawn is not None
    console.print(
        f"The early bird was drawn after epoch {drawn['drawn_epoch']} of {base.training.epochs}; "
        f"half of the FLOPs were cut and the rest refitted. Records: {out}",
        highlight=False,
    )
    return routes


def _route(base: spec.Experiment, name: str) -> spec.Experiment:
    changes: dict[str, object] = {"name": f"{base.name}-{name.replace(', ', '-').replace(' ', '-')}"}
    if name == "dense":
        changes |= {"method": None, "detector": None}
    elif name != "early bird":
        changes |= {"detector": None}
    return base.model_copy(update=changes)
