"""The affine map of the region that holds a point: f(z) = A z + b for every z of that region.

The network is frozen in the state it has at x: every folding unit keeps the piece it is on, every maximum its
winner. What remains is one affine map of the whole input space. Its value at 0 is b, and one backward pass, batched
over the outputs, gives A. Derivatives are taken of the frozen network and not of the activations, so a point that
lies exactly on a cut belongs to the side that `> 0` names.
"""

from __future__ import annotations

from dataclasses import replace

import torch
from jaxtyping import Float
from torch import Tensor

from splinecut.errors import InputError
from splinecut.geometry.graph import Graph, Node, Parameters, Step, first_argmax, is_on, refuse_smooth


def local_affine(
    graph: Graph, x: Float[Tensor, " *input"]
) -> tuple[Float[Tensor, " outputs *input"], Float[Tensor, " outputs"]]:
    """(A, b) with f(z) = <A, z> + b on the region that holds x; outputs are flattened.

    Costs two forward passes and a backward pass on as many points as there are outputs.
    """
    if tuple(x.shape) != graph.input_shape:
        raise InputError(
            f"x must be one input of shape {graph.input_shape}, got {tuple(x.shape)}; leave out the batch axis"
        )
    refuse_smooth(graph)
    frozen = freeze(graph, x)
    n_outputs = frozen[frozen.output].size
    zeros = torch.zeros(n_outputs, *graph.input_shape, dtype=torch.float64, requires_grad=True)
    with torch.enable_grad():
        values = frozen.run(zeros).reshape(n_outputs, n_outputs)
        # Output i of copy i: one backward pass gives all rows. Outputs that ignore the input have gradient zero.
        (rows,) = torch.autograd.grad(values.diagonal().sum(), zeros, materialize_grads=True)
    return rows, values[0].detach()


def freeze(graph: Graph, x: Float[Tensor, " *input"]) -> Graph:
    """The graph with every fold and maximum replaced by the affine piece it is on at x."""
    double = graph.to(torch.float64)
    folding = [node for node in graph.nodes if node.role in ("fold", "max")]
    with torch.no_grad():
        values = double.trail(x.detach().double()[None], {name for node in folding for name in node.inputs})
    frozen = {node.name: _freeze(node, double.parameters, [values[name] for name in node.inputs]) for node in folding}
    nodes = tuple(
        replace(node, role="affine", apply=frozen[node.name]) if node.name in frozen else node for node in graph.nodes
    )
    return replace(double, nodes=nodes)


def _freeze(node: Node, parameters: Parameters, inputs: list[Tensor]) -> Step:
    return _frozen_max(node, inputs) if node.role == "max" else _frozen_fold(node, parameters, inputs[0])


def _frozen_fold(node: Node, parameters: Parameters, u: Float[Tensor, " 1 *units"]) -> Step:
    """slope * u + intercept of the piece each unit is on, read off two points of that (closed) piece."""
    low, high = piece_ends(u, node.kinks)
    at_low, at_high = node.apply(parameters, low), node.apply(parameters, high)
    slope = (at_high - at_low) / (high - low)
    intercept = at_low - slope * low
    return lambda _, value: slope * value + intercept


def piece_ends(u: Float[Tensor, " *units"], kinks: tuple[float, ...]) -> tuple[Tensor, Tensor]:
    """Two points of the piece each unit is on: the kinks around it, or one step beyond the outermost kink."""
    # Two points far apart on the piece: a difference quotient at u itself would cancel where u is near a kink.
    ends = torch.tensor([kinks[0] - 1.0, *kinks, kinks[-1] + 1.0], dtype=u.dtype)
    piece = sum((is_on(u, kink).long() for kink in kinks), start=torch.zeros_like(u, dtype=torch.long))
    return ends[piece], ends[piece + 1]


def _frozen_max(node: Node, inputs: list[Tensor]) -> Step:
    """The winner of each window, as a plain selection; of equal entries the first wins."""
    assert node.windows is not None
    windows = torch.from_numpy(node.windows)
    flat = torch.cat([value.flatten(1) for value in inputs], dim=1)[0]
    entries = torch.where(windows >= 0, flat[windows.clamp(min=0)], -torch.inf)
    winner = windows.gather(1, first_argmax(entries)[:, None])[:, 0]

    def select(_: Parameters, *values: Tensor) -> Tensor:
        return torch.cat([value.flatten(1) for value in values], dim=1)[:, winner].reshape(-1, *node.shape)

    return select
