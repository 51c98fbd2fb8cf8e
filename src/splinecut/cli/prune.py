"""`splinecut prune`: prune a network of the user's to a budget and save it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from splinecut.cli.inputs import read_rows, with_weights
from splinecut.cli.options import DataDir
from splinecut.errors import InputError

if TYPE_CHECKING:
    from torch import Tensor, nn

    from splinecut.pruning.ticket import Ticket


BATCH = 128  # inputs that go through a network at once to compare outputs


def prune(
    model: Annotated[str, typer.Argument(help="A model by name, or your own as package.module:factory.")],
    weights: Annotated[Path, typer.Option(metavar="FILE", help="Its weights: a state dict, .safetensors or .pt.")],
    keep: Annotated[float, typer.Option(help="Fraction to keep.")] = 0.5,
    of: Annotated[str, typer.Option(help="Fraction of what: channels, weights or flops.")] = "channels",
    scope: Annotated[str, typer.Option(help="global, layer or stage.")] = "global",
    floor: Annotated[int, typer.Option(help="Minimum number of units kept in every layer.")] = 1,
    method: Annotated[str, typer.Option(help="See `splinecut list methods`.")] = "spline",
    set_: Annotated[
        list[str] | None,
        typer.Option("--set", help="model.KEY=VALUE for the factory, method.KEY=VALUE for the method."),
    ] = None,
    residual: Annotated[
        str | None, typer.Option(help="auto, tied, select or inner; default: the method's own.")
    ] = None,
    refit: Annotated[str, typer.Option(help="least_squares, fold or none.")] = "least_squares",
    probe: Annotated[
        Path | None, typer.Option(metavar="FILE", help=".npy file of a few hundred training inputs.")
    ] = None,
    data: Annotated[str | None, typer.Option(help="Data set whose training images are used as probe.")] = None,
    data_dir: DataDir = None,
    out: Annotated[Path, typer.Option("--output", "-o", metavar="FILE", help="The pruned network.")] = Path(
        "pruned.safetensors"
    ),
    onnx: Annotated[Path | None, typer.Option(metavar="FILE", help="Also export the pruned network to ONNX.")] = None,
) -> None:
    """Prune a trained network to a budget; writes the smaller network and its ticket."""
    from splinecut.networks import models, surgery
    from splinecut.pruning.apply import cut
    from splinecut.pruning.budget import Budget
    from splinecut.pruning.draw_ticket import draw

    options = _options(set_ or [])
    network = with_weights(models.build(model, **options["model"]), weights).eval()
    inputs = _probe(network, probe, data, data_dir)
    budget = Budget(keep, of, scope, floor)  # type: ignore[arg-type]
    ticket = draw(network, inputs, method, budget=budget, residual=residual, **options["method"])
    smaller = cut(network, ticket, refit=None if refit == "none" else refit, probe=inputs)
    surgery.save(smaller, out)
    files = [out, ticket.save(out.with_suffix(".ticket.json"))]
    if onnx is not None:
        from splinecut.integrations.onnx import export

        export(smaller, inputs[:2], onnx)
        files.append(onnx)
    _show(ticket, network, smaller, inputs, files)


def _options(given: list[str]) -> dict[str, dict[str, Any]]:
    """The tables that `model.a=1` and `method.b=2` describe."""
    from splinecut.experiments.recipes import set_key

    tables: dict[str, Any] = {"model": {}, "method": {}}
    for override in given:
        if override.partition(".")[0] not in tables:
            raise InputError(f"expected model.KEY=VALUE or method.KEY=VALUE, got {override!r}")
        set_key(tables, override)
    return tables


def _probe(network: nn.Module, file: Path | None, name: str | None, data_dir: Path | None) -> Tensor:
    import torch

    from splinecut.training.data import load
    from splinecut.training.seeding import generator

    like = next(network.parameters())
    if file is not None:
        return read_rows(file).to(like.dtype)
    if name is None:
        raise InputError("give inputs the network is used on: --probe FILE.npy, or --data NAME")
    dataset = load(name, data_dir)
    rows = torch.randperm(len(dataset.train), generator=generator(0))[:512]
    return dataset.train.examples(rows).to(like.dtype)


def _show(ticket: Ticket, network: nn.Module, smaller: nn.Module, inputs: Tensor, files: list[Path]) -> None:
    from rich.table import Table

    from splinecut.cli.screen import screen
    from splinecut.networks import cost
    from splinecut.networks.latency import latency

    shape = tuple(inputs.shape[1:])
    table = Table(title=f"{ticket.method}: {ticket.budget}")
    for column in ("", "before", "after", "share"):
        table.add_column(column, justify="left" if not column else "right")
    kept = ticket.achieved
    rows = [("channels", kept.of, kept.kept)]
    rows += [
        ("parameters", cost.parameters(network), cost.parameters(smaller)),
        ("FLOPs", cost.forward_flops(network, shape), cost.forward_flops(smaller, shape)),
    ]
    for name, before, after in rows:
        table.add_row(name, f"{before:,}", f"{after:,}", f"{after / before:.1%}")
    times = [1000 * latency(net, shape) for net in (network, smaller)]
    table.add_row("latency, ms", f"{times[0]:.2f}", f"{times[1]:.2f}", f"{times[1] / times[0]:.1%}")
    console = screen()
    console.print(table)
    if (damage := _damage(network, smaller, inputs)) is not None:
        console.print(damage)
    assert ticket.groups is not None
    for name, reason in ticket.groups.left_whole.items():
        console.print(f"left whole: {name}, {reason}")
    for file in files:
        console.print(f"wrote {file}", soft_wrap=True)


def _damage(network: nn.Module, smaller: nn.Module, inputs: Tensor) -> str | None:
    """How the outputs on the probe changed, in one line; None where the outputs are not one tensor.

    Classifiers, (n, classes) with two classes or more, are compared by the class they choose; others by
    |cut - dense| / |dense|.
    """
    import torch

    with torch.no_grad():
        pairs = [(network(batch), smaller(batch)) for batch in inputs.split(BATCH)]
    if not all(isinstance(output, torch.Tensor) for pair in pairs for output in pair):
        return None
    dense, cut = (torch.cat(outputs) for outputs in zip(*pairs, strict=True))
    if dense.ndim == 2 and dense.shape[1] >= 2:
        share = (dense.argmax(1) == cut.argmax(1)).double().mean().item()
        return f"agrees with the dense network on {100 * share:.1f} % of {len(inputs)} inputs (the probe)"
    error = ((cut - dense).double().norm() / dense.double().norm().clamp_min(1e-300)).item()
    return f"differs from the dense network by {100 * error:.1f} % of its output on {len(inputs)} inputs (the probe)"
