"""Recipes as TOML tables: find the file, read it, override keys, write one."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from splinecut.errors import InputError, unknown


def read(recipe: str | Path, overrides: Sequence[str] = ()) -> dict[str, Any]:
    """The tables of a recipe with `a.b=c` overrides; its name is that of the file where it gives none."""
    path = find(recipe)
    try:
        tables = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"cannot read recipe {path}: {error}") from None
    except tomllib.TOMLDecodeError as error:
        raise InputError(f"recipe {path} is not TOML: {error}") from None
    tables.setdefault("name", path.stem)
    for override in overrides:
        set_key(tables, override)
    return tables


def recipes_folder() -> Path:
    """The folder of the recipes that ship with splinecut: in the package, or beside its source."""
    package = Path(__file__).parent.parent
    inside = package / "recipes"
    return inside if inside.is_dir() else package.parent.parent / "recipes"


def shipped() -> dict[str, Path]:
    """Name -> file of each recipe that ships with splinecut."""
    return {file.stem: file for file in sorted(recipes_folder().glob("*.toml"))}


def find(recipe: str | Path) -> Path:
    """The file of `recipe`: a path, or the name of one that ships with splinecut."""
    path = Path(recipe)
    if path.is_file():
        return path
    names = shipped()
    if path.stem in names and path.parent in (Path(), Path("recipes")):
        return names[path.stem]
    raise unknown("recipe", str(recipe), names, "or give the path of a TOML file")


def set_key(tables: dict[str, Any], override: str) -> None:
    """Writes one `a.b=c` into the tables; `c` is TOML, or plain text where it does not parse as TOML."""
    key, equals, text = override.partition("=")
    if not equals or not key.strip():
        raise InputError(f"expected key=value, got {override!r}; for example --set training.epochs=3")
    try:
        value = tomllib.loads(f"x = {text}")["x"]
    except tomllib.TOMLDecodeError:
        value = text
    put(tables, key.strip(), value)


def put(tables: dict[str, Any], key: str, value: Any) -> None:
    """Writes `value` at the dotted `key`; `model = "vgg16"` on the way becomes `model = { name = "vgg16" }`.

    As in TOML, a part that contains dots is quoted: `sweep.over."data.name"`.
    """
    *parents, last = _parts(key)
    for parent in parents:
        inner = tables.get(parent, {})
        tables[parent] = inner = {"name": inner} if isinstance(inner, str) else inner
        if not isinstance(inner, dict):
            raise InputError(f"cannot set {key!r}: {parent!r} is a value, not a table")
        tables = inner
    tables[last] = value


def _parts(key: str) -> list[str]:
    part = r'(?:"[^"]+"|[^."]+)'
    if not re.fullmatch(rf"{part}(?:\.{part})*", key):
        raise InputError(f"expected a dotted key such as training.epochs, got {key!r}")
    return [piece.strip('"') for piece in re.findall(part, key)]


def toml_text(tables: dict[str, Any]) -> str:
    """The tables as TOML, lists of numbers on one line; refuses None inside them."""
    import tomli_w

    _without_none(tables, "")
    # Strings have no line breaks in tomli-w's output, so this never reaches into one.
    one_line = r" = \[\n((?:    [-+.\w]+,\n)+)\]"
    return re.sub(one_line, lambda m: f" = [{' '.join(m[1].split())[:-1]}]", tomli_w.dumps(tables))


def _without_none(value: Any, key: str) -> None:
    """Refuses None inside an option: TOML has no null."""
    if value is None:
        raise InputError(f"{key} is None, which a recipe cannot say; leave it out, or give a value")
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for name, each in inner:
        _without_none(each, f"{key}.{name}" if key else str(name))
