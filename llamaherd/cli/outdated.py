"""`herd outdated`: show the locked and the newest version of each engine, image and model."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from llamaherd.cli.common import counted, echo, inventory_option, json_option, read_or_exit, rigs_argument
from llamaherd.cli.envelope import Envelope, print_envelope

if TYPE_CHECKING:
    from llamaherd.lock.newest import Version


@click.command()
@rigs_argument
@inventory_option
@json_option
@click.pass_obj
def outdated(inventory: Path | None, rigs: tuple[str, ...], as_json: bool) -> None:
    """Show locked and newest versions of engines, images and models.

    A tag such as b11434 or v0.33.0 is compared with the newest tag of its kind, a branch with its newest commit, and a
    model with the files of its revision. Changes nothing. `herd upgrade` moves to the newest versions.

    \b
    Exit codes:
      0  the versions are printed, also if some are newer or unknown
      2  wrong usage, or an unusable inventory

    \b
    Examples:
      herd outdated
      herd outdated duo --json
    """
    from llamaherd.cli.newest import newest_of_fleet  # late: the help needs none of it

    fleet = read_or_exit(lambda: newest_of_fleet(inventory, rigs))
    if as_json:
        rows = [{"rig": rig, "versions": [_as_json(each) for each in found]} for rig, found in fleet.by_rig.items()]
        print_envelope(Envelope(True, rows))
        return
    if not fleet.versions:
        echo("nothing is locked that could be newer; `herd lock` locks what the inventory declares")
        return
    print_versions(fleet.versions)
    if newer := [each.name for each in fleet.versions if each.newer]:
        echo(f"{counted(len(newer), 'newer version')}: herd upgrade {' '.join(dict.fromkeys(newer))}")


def print_versions(versions: tuple[Version, ...]) -> None:
    """Print a table of versions: newer ones are marked, and a failed query is the text of its row."""
    head = ("name", "kind", "locked", "newest")
    rows = [(each.name, each.kind, each.locked, each.newest or "unknown") for each in versions]
    widths = [max(len(row[column]) for row in (head, *rows)) for column in range(len(head))]
    for row, each in zip((head, *rows), (None, *versions), strict=True):
        line = "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True))
        mark = "" if each is None or not each.newer else "newer"
        echo(f"{line}  {mark or (each.error if each else '')}".rstrip(), fit=True)


def _as_json(version: Version) -> dict[str, object]:
    return {
        "kind": version.kind,
        "names": list(version.names),
        "locked": version.locked,
        "newest": version.newest or None,
        "newer": version.newer,
        "move_to": version.move_to,
        "error": version.error or None,
    }
