"""The console of the commands, and tables fitted to its width without folding numbers."""

from __future__ import annotations

import re
from collections.abc import Sequence

from rich.console import Console
from rich.table import Table

from splinecut.cli.text_tables import TextTable

NARROWEST = 16  # characters that a column of words is folded to, at the least, to make room for numbers
AT_LEAST = 2  # columns of numbers for which words are folded; further ones come if there is room


def screen(stderr: bool = False) -> Console:
    """A console without markup: `[sweep]` and `:key:` in names and paths are printed as they are."""
    return Console(markup=False, emoji=False, highlight=False, stderr=stderr)


def fitted(text: TextTable, console: Console, first: Sequence[int]) -> tuple[Table, int]:
    """The table with as many columns of numbers as fit the terminal, and how many are left out.

    `first` are columns by importance, of those after `made.n_fixed`, which always stand; the others follow in their
    order. Cells with numbers are never folded, words are if need be.
    """
    wanted = [*first, *(i for i in range(text.n_fixed, len(text.headings)) if i not in first)]
    shown = list(range(text.n_fixed))
    widest = _widest(text, [*shown, *wanted[:AT_LEAST]], console)
    for column in wanted:
        if _fits(_table(text, [*shown, column], widest), console):
            shown.append(column)
    return _table(text, sorted(shown), widest), len(text.headings) - len(shown)


def stacked(text: TextTable, console: Console) -> list[Table]:
    """All columns, in as many tables below each other as the terminal is too narrow for; each begins with the names."""
    fixed, left = list(range(text.n_fixed)), list(range(text.n_fixed, len(text.headings)))
    tables = []
    while left:
        n = len(left)
        while n > 1 and not _fits(_table(text, [*fixed, *left[:n]], NARROWEST), console):
            n -= 1
        shown, left = [*fixed, *left[:n]], left[n:]
        tables.append(_table(text, shown, _widest(text, shown, console)))
    return tables


def _widest(text: TextTable, columns: Sequence[int], console: Console) -> int:
    """How wide a column of words may be for these columns to fit, as far as that can be had."""
    widest = max((len(cell) for row in text.rows for cell in row), default=0)
    while widest > NARROWEST and not _fits(_table(text, columns, widest), console):
        widest -= 1
    return widest


def _fits(table: Table, console: Console) -> bool:
    return console.measure(table, options=console.options.update(max_width=10_000)).maximum <= console.width


def _table(text: TextTable, columns: Sequence[int], widest: int) -> Table:
    """Some columns of a sheet; words are folded to `widest` characters, headings to the width of the cells below."""
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    for column in columns:
        if column < text.n_words:
            table.add_column(text.headings[column], max_width=widest, overflow="fold")
        else:
            room = max(len(part) for part in [*text.headings[column].split(), *(row[column] for row in text.rows)])
            table.add_column(_folded(text.headings[column], room), justify="right", no_wrap=True)
    for row in text.rows:
        table.add_row(*(_folded(row[i], widest) if i < text.n_words else row[i] for i in columns))
    return table


def _folded(text: str, width: int) -> str:
    """A text on as many lines as it takes, broken after spaces and hyphens: names of runs have no spaces."""
    lines = [""]
    for part in re.split(r"(?<=[- ])", text):
        if lines[-1] and len((lines[-1] + part).rstrip()) > width:
            lines.append("")
        lines[-1] += part
    return "\n".join(line.rstrip() for line in lines)
