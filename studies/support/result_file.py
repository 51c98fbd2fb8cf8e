"""How a study leaves its result: one JSON with the command, date and versions beside the numbers, and figures."""

from __future__ import annotations

import math
import shlex
from argparse import Namespace
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from importlib.machinery import ModuleSpec
from pathlib import Path
from typing import Any

from splinecut.experiments.run_folder import commit, versions
from splinecut.files import write_atomically, write_json


def write(
    path: Path, program: ModuleSpec | str | None, asked: Namespace, result: dict[str, Any], first: Sequence[str] = ()
) -> None:
    """Writes a result with the command that gives it again, and prints where it is; `first`: options without a name.

    program: a module's `__spec__`, or the path of a script from the project's root.
    """
    name = program if isinstance(program, str) else program.name if program else "?"
    facts = {
        "command": command(name, vars(asked), first),
        "date": datetime.now(UTC).date().isoformat(),
        "commit": commit(),
        "versions": versions(),
    }
    write_json(path, {**facts, **_without_nan(result)})
    print(f"wrote {path}")


def _without_nan(value: Any) -> Any:
    """The same with null for what is not a number, such as the interval around one seed's value."""
    if isinstance(value, dict):
        return {key: _without_nan(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_without_nan(inner) for inner in value]
    return None if isinstance(value, float) and math.isnan(value) else value


def command(program: str, options: Mapping[str, Any], first: Sequence[str] = ()) -> str:
    """What to type from the project's root; where data lie is left to the reader, and where runs were kept is too."""
    words = ["python" if program.endswith(".py") else "python -m", program, *(str(options[key]) for key in first)]
    for key, value in options.items():
        if key in (*first, "runs") or value is None or value is False or value == []:
            continue
        if value is True:
            words.append(f"--{key.replace('_', '-')}")
            continue
        given = "DATA" if key == "data_dir" else f"results/{value.name}" if isinstance(value, Path) else value
        given = " ".join(_quoted(each) for each in (given if isinstance(given, list | tuple) else [given]))
        words.append(f"--{key.replace('_', '-')} {given}")
    return " ".join(words)


def _quoted(word: object) -> str:
    return shlex.quote(str(word))


@contextmanager
def figure(path: Path, size: tuple[float, float], columns: int = 1, rows: int = 1) -> Iterator[Any]:
    """Axes to draw on (an array for several columns or rows); written to `path`, by its suffix, when the block ends.

    Written without a date and with fixed ids, so the same numbers give the same file.
    """
    from matplotlib import rc_context
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    with rc_context({"svg.hashsalt": path.stem, "svg.fonttype": "none"}):
        drawn = Figure(size, layout="constrained")
        FigureCanvasAgg(drawn)
        axes = drawn.subplots(rows, columns)
        for each in drawn.axes:
            each.spines[["top", "right"]].set_visible(False)
        yield axes
        metadata = {"Date": None} if path.suffix == ".svg" else None
        write_atomically(path, lambda file: drawn.savefig(file, metadata=metadata, dpi=150))
    print(f"wrote {path}")
