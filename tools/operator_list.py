"""Which operators networks are made of, and which row of the operator table serves each: docs/operators.md.

    python -m tools.operator_list            # compare with what is stored, and say what differs
    python -m tools.operator_list --write    # after a change of the table, of our models, or of torch

Operators of each network are stored in tests/data/operators.json: torchvision is no dependency, and where it is not
installed what it gave last stays.
"""

from __future__ import annotations

import importlib
import json
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from splinecut.networks.export import export, table_name
from splinecut.networks.models import build
from splinecut.networks.models.activations import ACTIVATIONS
from splinecut.networks.operators.table import BY_NAME, op_of

ROOT = Path(__file__).parents[1]
DATA = ROOT / "tests" / "data" / "operators.json"
PAGE = ROOT / "docs" / "operators.md"

OURS: dict[str, dict[str, Any]] = {
    "mlp": {},
    "convnet": {"preset": "digits"},
    "alexnet": {"width": 0.1},
    "vgg16": {"width": 0.1},
    "preresnet11": {"width": 0.25},
    "cifar_resnet8": {"width": 0.25},
    "resnet18": {"width": 0.1},
    "resnet50": {"width": 0.1},
}
"""Our models -> options that make them small; all activations of ours go through `mlp` (see `ours`)."""

TORCHVISION: dict[str, tuple[int, dict[str, Any]]] = {
    "alexnet": (64, {}),
    "convnext_tiny": (32, {}),
    "densenet121": (32, {}),
    "efficientnet_b0": (32, {}),
    "efficientnet_v2_s": (32, {}),
    "googlenet": (32, {"init_weights": False, "aux_logits": False}),
    "inception_v3": (80, {"init_weights": False, "aux_logits": False}),
    "maxvit_t": (224, {}),
    "mnasnet0_5": (32, {}),
    "mobilenet_v2": (32, {}),
    "mobilenet_v3_small": (32, {}),
    "regnet_x_400mf": (32, {}),
    "regnet_y_400mf": (32, {}),
    "resnet18": (32, {}),
    "resnext50_32x4d": (32, {}),
    "shufflenet_v2_x0_5": (32, {}),
    "squeezenet1_1": (32, {}),
    "swin_t": (32, {}),
    "swin_v2_t": (32, {}),
    "vgg11_bn": (32, {}),
    "vit_b_32": (32, {"image_size": 32}),
    "wide_resnet50_2": (32, {}),
}
"""torchvision's classifiers, one or two of each family -> (side of the image, options)."""


def operators(model: nn.Module, x: Tensor) -> list[str]:
    """The operators of the exported network that give tensors, under the names of the table."""
    nodes = export(model.eval(), (x,), any_batch=False).graph.nodes
    calls = [node for node in nodes if node.op == "call_function" and hasattr(node.target, "_schema")]
    return sorted({table_name(node) for node in calls})


def ours() -> dict[str, list[str]]:
    """Operators of the models of this package."""
    named = {f"splinecut {name}": _of(build(name, seed=0, **options)) for name, options in OURS.items()}
    return named | {f"splinecut mlp with {name}": _of(build("mlp", activation=name, seed=0)) for name in ACTIVATIONS}


def _of(model: nn.Module) -> list[str]:
    return operators(model, torch.zeros(2, *model.input_shape))  # type: ignore[misc]


def torchvisions(names: Iterable[str] = tuple(TORCHVISION)) -> dict[str, list[str]]:
    """Operators of torchvision's classifiers of these names; empty where torchvision is not installed."""
    models = _torchvision_models()
    if models is None:
        return {}
    by_model = {}
    for name in names:
        side, options = TORCHVISION[name]
        make: Callable[..., nn.Module] = getattr(models, name)
        by_model[f"torchvision {name}"] = operators(make(weights=None, **options), torch.zeros(2, 3, side, side))
    return by_model


def _torchvision_models() -> Any:
    try:
        return importlib.import_module("torchvision.models")
    except ImportError:
        return None
    except RuntimeError:  # its compiled operators fit another build of torch; classifiers need none of them
        global _stub
        _stub = torch.library.Library("torchvision", "DEF")
        for name in ("nms", "qnms"):
            _stub.define(f"{name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
        for module in [name for name in sys.modules if name.partition(".")[0] == "torchvision"]:
            del sys.modules[module]
        return importlib.import_module("torchvision.models")


_stub: Any = None  # a library of operators lives as long as this


def geometry_of(name: str) -> str:
    """What geometry makes of an operator."""
    row = BY_NAME.get(name)
    if row is not None and row.read is not None:
        return f"read as `{op_of(name)}`"
    return "smooth: codes only" if row is not None and row.smooth is not None else "refused"


def groups_of(name: str) -> str:
    """What channel groups make of an operator."""
    row = BY_NAME.get(name)
    return f"`{row.couple.__name__}`" if row is not None and row.couple is not None else "its units are left uncut"


def page(by_network: dict[str, list[str]]) -> str:
    """docs/operators.md: a row for every operator that some network has."""
    users: dict[str, list[str]] = {}
    for network, names in sorted(by_network.items()):
        for name in names:
            users.setdefault(name, []).append(network)
    lines = [
        "# Operators",
        "",
        "Every aten operator that `torch.export` gives for our models and for torchvision's classifiers (one or two of",
        "each family), and what the row of `networks/operators/table.py` that serves it says. Geometry refuses by name",
        "what it has no reader for. Units that meet an operator without a rule are left uncut, which",
        "`Groups.left_whole` says. Operators that depend on nothing but constants and sizes are computed once.",
        "",
        "Written by `python -m tools.operator_list --write`.",
        "",
        "| operator | geometry | groups: rule | networks |",
        "|---|---|---|---|",
    ]
    for name in sorted(users):
        shown = f"{users[name][0]} and {len(users[name]) - 1} more" if len(users[name]) > 1 else users[name][0]
        lines.append(f"| `{name}` | {geometry_of(name)} | {groups_of(name)} | {shown} |")
    return "\n".join(lines) + "\n"


def stored() -> dict[str, list[str]]:
    """Operators of each network, as last written."""
    return json.loads(DATA.read_text(encoding="utf-8")) if DATA.exists() else {}


def main() -> int:
    operators = {**stored(), **torchvisions(), **ours()}
    text = json.dumps(operators, indent=1, sort_keys=True) + "\n"
    if "--write" in sys.argv[1:]:
        DATA.write_text(text, encoding="utf-8")
        PAGE.write_text(page(operators), encoding="utf-8")
    is_same = operators == stored() and PAGE.read_text(encoding="utf-8") == page(operators)
    print("operators as stored" if is_same else "operators differ from what is stored; look, then write them")
    return 0 if is_same else 1


if __name__ == "__main__":
    sys.exit(main())
