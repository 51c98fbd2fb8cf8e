"""The command line: one module per command, which parses arguments, calls the library and prints the result.

What computes, trains or writes files belongs in the packages below; shared options are in `options`, and what is
printed is laid out in `printing`, `screen` and `text_tables`.
"""

from __future__ import annotations


def main() -> None:
    """Runs the command line; typer is imported here, so that importing the package stays fast."""
    from splinecut.cli.app import main

    main()
