"""The command line: `app` gathers the commands, one module each; they parse, call and print, and compute nothing."""

from __future__ import annotations


def main() -> None:
    """Runs the command line; typer is imported only now."""
    from splinecut.cli.app import main

    main()
