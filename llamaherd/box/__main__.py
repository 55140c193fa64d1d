"""`python -m llamaherd.box`, as scripts/box calls it."""

from llamaherd.box.cli import main

main(prog_name="scripts/box")
