"""Finds residual branches that can be dropped: all that lies between a fork and the sum that closes it."""

from __future__ import annotations

from torch import Tensor, fx

from splinecut.networks.export import module_path, table_name
from splinecut.networks.groups.label_pass import LabelPass
from splinecut.networks.groups.values import Branch
from splinecut.networks.operators.table import BY_NAME


def branches(walk: LabelPass) -> tuple[Branch, ...]:
    """The branches of `walk`'s network, in the order they run; of two branches the one with fewer weights stays."""
    droppable = []
    for node in walk.program.graph.nodes:
        if node.op == "call_function" and table_name(node) == "add":
            droppable += _branch(walk, node)
    return tuple(_named(droppable))


def _branch(walk: LabelPass, total: fx.Node) -> list[Branch]:
    terms = [node for node in total.all_input_nodes if node in walk.depends]
    if len(terms) != 2 or not all(isinstance(node.meta["val"], Tensor) for node in terms):
        return []
    if terms[0].meta["val"].shape != terms[1].meta["val"].shape:
        return []
    behind = [_ancestors(walk, node) for node in terms]
    sides = [behind[0] - behind[1], behind[1] - behind[0]]
    if not behind[0] & behind[1]:
        return []
    keys = [_keys(walk, side) for side in sides]
    # The side with more weights is the branch, the other the shortcut.
    side, other = (0, 1) if _weight(walk, keys[0]) >= _weight(walk, keys[1]) else (1, 0)
    modules = _own_modules(walk, sides[side], total)
    if not keys[side] or modules is None or set(keys[side]) & set(keys[other]):
        return []
    place = module_path(total)
    return [Branch(place or total.name, modules, keys[side])]


def _ancestors(walk: LabelPass, node: fx.Node) -> set[fx.Node]:
    """The node and all it depends on that depends on the input."""
    seen, queue = set(), [node]
    while queue:
        node = queue.pop()
        if node not in seen and node in walk.depends:
            seen.add(node)
            queue += node.all_input_nodes
    return seen


def _keys(walk: LabelPass, side: set[fx.Node]) -> tuple[str, ...]:
    nodes = [source for node in side for source in node.all_input_nodes if source in walk.keys]
    names = {walk.keys[node] for node in nodes}
    return tuple(name for name, _ in walk.model.named_parameters() if name in names)


def _weight(walk: LabelPass, keys: tuple[str, ...]) -> int:
    parameters = dict(walk.model.named_parameters())
    return sum(parameters[key].numel() for key in keys)


def _own_modules(walk: LabelPass, side: set[fx.Node], total: fx.Node) -> tuple[str, ...] | None:
    """Paths of the modules that run in the branch and nowhere else; None where the branch is not made of such."""
    outside = {
        module_path(node) for node in walk.program.graph.nodes if node.op == "call_function" and node not in side
    }
    paths: dict[str, None] = {}
    for node in walk.program.graph.nodes:
        if node not in side:
            continue
        # Read from outside: without the branch someone else would miss its value.
        if set(node.users) - side - {total}:
            return None
        path = module_path(node)
        if path in outside or not path:
            # Between its own modules a branch may do what maps zeros to zeros: once they give zero, so does the branch.
            row = BY_NAME.get(table_name(node))
            if row is None or not row.keeps_zero:
                return None
        else:
            paths[path] = None
    # A parent module in the branch must not contain a module that runs outside of it.
    if any(other.startswith(f"{path}.") for path in paths for other in outside):
        return None
    return tuple(path for path in paths if not any(path.startswith(f"{other}.") for other in paths))


def _named(unnamed: list[Branch]) -> list[Branch]:
    """Names made unique: a block with several sums has several branches."""
    counts: dict[str, int] = {}
    result = []
    for branch in unnamed:
        counts[branch.name] = counts.get(branch.name, 0) + 1
        name = branch.name if counts[branch.name] == 1 else f"{branch.name}#{counts[branch.name]}"
        result.append(Branch(name, branch.modules, branch.keys))
    return result
