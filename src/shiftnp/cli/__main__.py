"""Runs the command line: `python -m shiftnp.cli`."""

from shiftnp.cli import main

main()
