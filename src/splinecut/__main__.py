"""`python -m splinecut` is the command line."""

from splinecut.cli.app import main

main()
