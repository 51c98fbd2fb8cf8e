"""The page's ES modules joined into the one script that a self-contained page can run."""

from __future__ import annotations

import re
from pathlib import Path

_IMPORT = re.compile(r'^import \{(?:\s*\w+,)*\s*\w*\s*\} from "\./(\w+\.js)";\n', re.MULTILINE)
_EXPORT = re.compile(r"^export (?=(?:async function|function|class|const|let) )", re.MULTILINE)
_OTHER = re.compile(r"^(?:import|export)\b.*|\bimport\(.*", re.MULTILINE)
_COMMENT = re.compile(r"/\*.*?\*/|//[^\n]*", re.DOTALL)


def bundle(folder: Path, entry: str = "main.js") -> str:
    """The text of one module that does what `entry` and all that it imports do: each file once, after those it imports.

    A page opened from a disk cannot import: browsers refuse to load modules over file://, and an import map of data:
    URLs needs a policy under which any data: URL may run. So imports decide the order of the files, and go.
    All files then share one scope, in which two equal top-level names are a syntax error; that a file uses only what it
    imports is for the type checker to see. Cycles, and imports other than `import { a, b } from "./file.js";`, are
    refused.
    """
    texts: dict[str, str] = {}

    def visit(name: str, path: tuple[str, ...]) -> None:
        if name in path:
            raise ValueError(f"scripts import each other: {' -> '.join((*path, name))}")
        if name in texts:
            return
        text = (folder / name).read_text(encoding="utf-8")
        for imported in _IMPORT.findall(text):
            visit(imported, (*path, name))
        texts[name] = _EXPORT.sub("", _IMPORT.sub("", text))
        if left := _OTHER.search(_COMMENT.sub("", texts[name])):
            raise ValueError(
                f'{name}: expected `import {{ a, b }} from "./file.js";` or `export` of one declaration, got {left[0]}'
            )

    visit(entry, ())
    return "".join(f"\n// ----- {name}\n{text}" for name, text in texts.items())
