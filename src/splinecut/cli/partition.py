"""`splinecut partition`: the exact partition of a network on a slice, as data (.npz) with a picture, or as a page."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from splinecut.cli.inputs import read_rows, with_weights
from splinecut.cli.options import DataDir
from splinecut.errors import InputError, unknown

if TYPE_CHECKING:
    from torch import Tensor, nn

    from splinecut.geometry.partition import Partition
    from splinecut.geometry.slices import Slice

SLICES = "square:HALF_WIDTH | span:I,J | through:I,J,K (rows of the recipe's test images, or of --points)"


def partition(
    model: Annotated[
        str, typer.Argument(help="A recipe (name or TOML file), a model by name, or package.module:factory.")
    ],
    slice_: Annotated[str, typer.Option("--slice", help=SLICES)] = "square:1",
    out: Annotated[
        Path,
        typer.Option("--output", "-o", metavar="FILE", help=".npz with a picture beside it, or .html to zoom into."),
    ] = Path("partition.npz"),
    picture: Annotated[str, typer.Option(help="png, svg, pdf or none.")] = "png",
    fill: Annotated[str, typer.Option(help="Colours of regions: pastel, class, value or none.")] = "pastel",
    margin: Annotated[
        float | None, typer.Option(help="Distance of the window's edge from the points it spans.")
    ] = None,
    weights: Annotated[
        Path | None, typer.Option(metavar="FILE", help="State dict of the model, .safetensors or .pt.")
    ] = None,
    untrained: Annotated[bool, typer.Option("--untrained", help="Use a recipe's network before training.")] = False,
    points: Annotated[
        Path | None, typer.Option(metavar="FILE", help=".npy file of inputs for span and through.")
    ] = None,
    runs: Annotated[Path, typer.Option(metavar="FOLDER", help="Where the recipe's run folder is.")] = Path("runs"),
    data_dir: DataDir = None,
    max_regions: Annotated[int, typer.Option(help="Stop with an error beyond this many regions.")] = 5_000_000,
) -> None:
    """Cut a slice of a network's input space into its exact regions; write them and draw them."""
    from splinecut.api import subdivide
    from splinecut.geometry.plotting import FILLS

    if fill not in (*FILLS, "none"):
        raise unknown("fill", fill, (*FILLS, "none"))
    if picture not in ("png", "svg", "pdf", "none"):
        raise unknown("picture", picture, ("png", "svg", "pdf", "none"))
    network, inputs = _network(model, weights, untrained, points, runs, data_dir)
    region = _slice(slice_, margin, inputs, _input_shape(network, inputs))
    result = subdivide(network.eval(), region, max_regions)
    files = [out]
    if out.suffix == ".html":
        from splinecut.experiments.film.build import single_frame
        from splinecut.report.build import viewer

        viewer(single_frame(model, network, result, {"slice": slice_}), out)
    else:
        result.save(out)
    if picture != "none" and out.suffix != ".html":
        files.append(out.with_suffix(f".{picture}"))
        result.plot(files[-1], fill=None if fill == "none" else FILLS[fill])
    _show(result, files)


def _network(
    model: str, weights: Path | None, untrained: bool, points: Path | None, runs: Path, data_dir: Path | None
) -> tuple[nn.Module, Callable[[list[int]], Tensor] | None]:
    """The network, and a way to its inputs by row number (None where there are none)."""
    from splinecut.experiments import building, recipes, runner, spec
    from splinecut.networks import models

    given = _rows_of_file(points) if points is not None else None
    if not (Path(model).suffix == ".toml" or model in recipes.shipped()):
        network = models.build(model, seed=0)
        return (with_weights(network, weights) if weights is not None else network), given
    experiment = spec.load(model)
    dataset = runner.load_data(experiment, data_dir)
    network = building.build_model(experiment, dataset)
    trained = runs / experiment.folder / "model.safetensors"
    if weights is None and not untrained and not trained.is_file():
        raise InputError(f"no trained weights at {trained}; run `splinecut run {model}` first, or pass --untrained")
    if weights is not None or not untrained:
        network = with_weights(network, weights or trained)
    return network, given or dataset.test.examples


def _rows_of_file(path: Path) -> Callable[[list[int]], Tensor]:
    rows = read_rows(path)

    def take(chosen: list[int]) -> Tensor:
        if max(chosen) >= len(rows):
            raise InputError(f"{path} has {len(rows)} rows, got row {max(chosen)}; count from 0")
        return rows[chosen]

    return take


def _input_shape(network: nn.Module, inputs: Callable[[list[int]], Tensor] | None) -> tuple[int, ...]:
    own = getattr(network, "input_shape", None)
    if own is not None:
        return tuple(own)
    if inputs is not None:
        return tuple(inputs([0])[0].shape)
    raise InputError("the model does not say which inputs it takes; give it an `input_shape`, or pass --points")


def _slice(
    text: str, margin: float | None, inputs: Callable[[list[int]], Tensor] | None, shape: tuple[int, ...]
) -> Slice:
    """The slice that `kind:numbers` describes."""
    from splinecut.geometry.slices import Slice

    kind, _, rest = text.partition(":")
    wanted = {"square": 1, "span": 2, "through": 3}
    if kind not in wanted:
        raise unknown("slice", kind, wanted, f"write {SLICES}")
    try:
        numbers = [float(number) if kind == "square" else int(number) for number in rest.split(",")]
    except ValueError:
        numbers = []
    if len(numbers) != wanted[kind] or min(numbers) < 0:
        raise InputError(f"expected --slice {SLICES}, got {text!r}")
    if kind == "square":
        if len(shape) != 1:
            raise InputError(f"square needs inputs that are vectors, got {shape}; use span:I,J or through:I,J,K")
        return Slice.square(numbers[0], dim=shape[0])
    if inputs is None:
        raise InputError(f"{kind} needs inputs to refer to; give a recipe, or --points with a .npy file")
    chosen = inputs([int(number) for number in numbers])
    options = {} if margin is None else {"margin": margin}
    return Slice.span(*chosen, **options) if kind == "span" else Slice.through(*chosen, **options)


def _show(result: Partition, files: list[Path]) -> None:
    """The facts of a partition as a table, with the units that shape the decision most."""
    from rich.table import Table

    from splinecut.cli.screen import screen

    line, bends = result.boundary(), result.kinks()
    facts = Table(show_header=False)
    facts.add_row("regions", f"{len(result):,}")
    facts.add_row("vertices", f"{len(result.vertices):,}")
    facts.add_row("smallest, largest area", f"{result.areas.min():.3g}, {result.areas.max():.3g}")
    facts.add_row("decision boundary", f"{len(line):,} segments, length {line.lengths.sum():.4g}")
    facts.add_row("kinks", f"{len(bends):,} made by {len(bends.per_unit()):,} units")
    for (layer, unit), count in sorted(bends.per_unit().items(), key=lambda item: -item[1])[:3]:
        facts.add_row("", f"{count:,} by unit {unit} of {result.layers[layer].name}")
    console = screen()
    console.print(facts)
    for file in files:
        console.print(f"wrote {file}", soft_wrap=True)
