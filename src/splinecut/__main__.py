"""`python -m splinecut` is the command line."""

from splinecut.cli import main

main()
