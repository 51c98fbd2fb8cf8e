"""Tables of text, and how they are written: aligned, as Markdown, CSV or LaTeX."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class TextTable:
    """Headings and rows of cells; the first `n_words` columns are words, the others numbers.

    The first `n_fixed` columns identify a row and are repeated in every part of a table that is split.
    """

    headings: Sequence[str]
    rows: Sequence[Sequence[str]]
    n_words: int = 1
    caption: str = ""
    n_fixed: int = 1


def text(sheet: TextTable) -> str:
    """Aligned columns, as wide as they are: a pipe or a pager does not fold them."""
    table = [sheet.headings, *sheet.rows]
    widths = [max(len(row[column]) for row in table) for column in range(len(sheet.headings))]
    lines = [_aligned(row, widths, sheet.n_words) for row in table]
    rule = "  ".join("-" * width for width in widths)
    return "\n".join([lines[0], rule, *lines[1:], *([sheet.caption] if sheet.caption else [])]) + "\n"


def _aligned(row: Sequence[str], widths: Sequence[int], n_words: int) -> str:
    cells = [
        cell.ljust(width) if number < n_words else cell.rjust(width)
        for number, (cell, width) in enumerate(zip(row, widths, strict=True))
    ]
    return "  ".join(cells).rstrip()


def markdown(sheet: TextTable) -> str:
    """A pipe table; a cell cannot break out of it."""
    rule = ["---" if number < sheet.n_words else "---:" for number in range(len(sheet.headings))]
    lines = [sheet.headings, rule, *sheet.rows]
    escaped = [[cell.replace("\\", "\\\\").replace("|", "\\|").replace("\n", " ") for cell in line] for line in lines]
    table = "\n".join(f"| {' | '.join(line)} |" for line in escaped)
    return table + (f"\n\n{sheet.caption}" if sheet.caption else "") + "\n"


def comma_separated(sheet: TextTable) -> str:
    """CSV as spreadsheets read it; the caption is left out."""
    out = io.StringIO()
    csv.writer(out, lineterminator="\n").writerows([sheet.headings, *sheet.rows])
    return out.getvalue()


_LATEX = {"\\": r"\textbackslash{}", "±": r"$\pm$", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}"}
_LATEX |= {sign: f"\\{sign}" for sign in "&%$#_{}"}


def latex(sheet: TextTable) -> str:
    """A booktabs tabular."""
    columns = "l" * sheet.n_words + "r" * (len(sheet.headings) - sheet.n_words)
    head, *body = (" & ".join(map(_escaped, row)) + r" \\" for row in [sheet.headings, *sheet.rows])
    note = [f"% {sheet.caption}"] if sheet.caption else []
    lines = [*note, rf"\begin{{tabular}}{{{columns}}}", r"\toprule", head, r"\midrule", *body]
    return "\n".join([*lines, r"\bottomrule", r"\end{tabular}"]) + "\n"


def _escaped(cell: str) -> str:
    return re.sub(r"[\\±~^&%$#_{}]", lambda match: _LATEX[match.group()], cell)


FORMATS: dict[str, Callable[[TextTable], str]] = {
    "text": text,
    "markdown": markdown,
    "csv": comma_separated,
    "latex": latex,
}
