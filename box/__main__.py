"""`python -m box`, as scripts/box calls it."""

from box.cli import main

main(prog_name="scripts/box")
