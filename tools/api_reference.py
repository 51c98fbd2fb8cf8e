"""The API reference, from docstrings and signatures: `python -m tools.api_reference > docs/api.md`."""

from __future__ import annotations

import importlib
import inspect
import re
from collections.abc import Iterator
from dataclasses import is_dataclass
from types import FunctionType
from typing import Any

import splinecut

OPENING = """# API reference

Generated from the docstrings by `python -m tools.api_reference > docs/api.md`. Shapes stand in the annotations:
`Float[Tensor, "units inputs"]` is a float tensor of that many rows and columns, and `*input` is the shape of one input.
"""
WIDTH = 110  # characters of a signature that stays on one line
DEEPER: dict[
    str, dict[str, tuple[str, ...]]
] = {  # names that examples and recipes use beside `sc.*`: heading -> module -> names
    "Networks by name": {"splinecut.networks.models": ("build",)},
    "Data sets by name": {"splinecut.training.data": ("load", "DataSet")},
    "Pruning methods": {"splinecut.pruning.method": ("Method",)},
    "Records, frames and the report": {
        "splinecut.experiments.records": ("Record", "find"),
        "splinecut.experiments.film.frames": ("Frames", "Frame", "load"),
        "splinecut.experiments.film.build": ("build_frames",),
        "splinecut.report.build": ("write", "viewer"),
    },
}


def reference() -> str:
    """The whole reference as Markdown."""
    parts = [OPENING, "## `import splinecut as sc`\n"]
    for name in sorted(splinecut.__all__, key=str.casefold):
        if not name.startswith("_"):
            parts += _entry(f"sc.{name}", getattr(splinecut, name))
    for heading, modules in DEEPER.items():
        parts.append(f"## {heading}\n")
        for module, names in modules.items():
            room = importlib.import_module(module)
            for name in names:
                parts += _entry(f"{module}.{name}", getattr(room, name))
    return "\n".join(parts).rstrip("\n") + "\n"


def _entry(name: str, thing: Any) -> Iterator[str]:
    """Heading, signature and docstring of one name, and of a class's own methods below it."""
    yield f"### `{name}`\n"
    if not _is_error(thing):
        yield _code(_signature(name.rpartition(".")[2], thing))
    yield _text(thing)
    if inspect.isclass(thing) and not _is_error(thing):
        for own, member in _members(thing):
            yield _code(f".{own}" if isinstance(member, property) else f".{_signature(own, member)}")
            yield _text(member)


def _members(kind: type) -> list[tuple[str, Any]]:
    """The methods and properties a class defines itself and documents, in the order of the source."""
    members = []
    for name, member in vars(kind).items():
        bare = member.__func__ if isinstance(member, classmethod | staticmethod) else member
        if not name.startswith("_") and isinstance(bare, FunctionType | property) and inspect.getdoc(bare):
            members.append((name, bare))
    return members


def _is_error(thing: Any) -> bool:
    return inspect.isclass(thing) and issubclass(thing, Exception)


def _signature(name: str, thing: Any) -> str:
    """The call as one would write it, without `self`, annotations as in the source; a long one has a line for each."""
    signature = inspect.signature(thing)
    shown = [_parameter(each) for each in signature.parameters.values() if each.name not in ("self", "cls")]
    result = signature.return_annotation
    gives = "" if result in (inspect.Signature.empty, None, "None") else f" -> {result}"
    short = f"{name}({', '.join(shown)}){gives}"
    return short if len(short) <= WIDTH else "\n".join([f"{name}(", *(f"    {each}," for each in shown), f"){gives}"])


def _parameter(each: inspect.Parameter) -> str:
    star = "*" if each.kind is each.VAR_POSITIONAL else "**" if each.kind is each.VAR_KEYWORD else ""
    has_default = each.default is not each.empty
    if each.annotation is not each.empty and not isinstance(each.annotation, str):
        return each.name + " = ..." * has_default  # pydantic's own view of a field says more about pydantic than of it
    kind = "" if each.annotation is each.empty else f": {each.annotation}"
    default = "..." if "factory" in repr(each.default) else getattr(each.default, "__name__", repr(each.default))
    return f"{star}{each.name}{kind}" + f" = {default}" * has_default


def _text(thing: Any) -> str:
    """The docstring; its indented parts are formulas, lists of arguments or examples and keep their shape."""
    written = inspect.getdoc(thing)
    if not written or (is_dataclass(thing) and written.startswith(f"{getattr(thing, '__name__', '')}(")):
        return ""
    first, *others = written.split("\n\n")
    return "\n\n".join([_prose(first), *map(_block, others)]) + "\n"


def _block(block: str) -> str:
    is_shaped = re.match(r"\s|[\w*, ]{1,40}:\s", block) or "\n " in block
    return _code(block).rstrip("\n") if is_shaped else _prose(block)


def _prose(text: str) -> str:
    """Markdown reads <A, z> as a tag; between backticks it does not."""
    parts = text.split("`")
    return "`".join(part.replace("<", "&lt;") if number % 2 == 0 else part for number, part in enumerate(parts))


def _code(text: str) -> str:
    return f"```text\n{text}\n```\n"


if __name__ == "__main__":
    print(reference(), end="")
