"""`herd history`: list the releases of each host."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import click

from llamaherd.cli.common import FAILED, echo, inventory_option, json_option, read_or_exit
from llamaherd.cli.rigs import rigs_argument
from llamaherd.host.remote import RemoteError
from llamaherd.pipeline.history import query_pasts
from llamaherd.pipeline.load import inventory_path
from llamaherd.pipeline.load import rigs as declared_rigs
from llamaherd.pipeline.release import Release


@click.command()
@rigs_argument
@inventory_option
@json_option
@click.pass_obj
def history(inventory: Path | None, rigs: tuple[str, ...], as_json: bool) -> None:
    """List the releases of each host.

    Each `herd up` that changes something writes a numbered release on the host: its time, its user, the commit of the
    inventory, the changes, and whether they failed. `herd rollback` restores a release.

    \b
    Examples:
      herd history               the whole fleet
      herd history duo --json    one rig, as JSON
    """
    fleet = read_or_exit(lambda: declared_rigs(inventory_path(inventory), rigs))
    values: list[dict[str, Any]] = []
    failed = False
    for name, past in query_pasts(fleet.rigs).items():
        if isinstance(past, RemoteError):
            failed = True
            echo(f"{name}: {past}", err=True)
            values.append({"rig": name, "releases": [], "error": str(past)})
            continue
        values.append({"rig": name, "releases": [_as_json(*each) for each in past.releases.items()]})
        if not as_json:
            _print_releases(name, past.releases)
    if as_json:
        click.echo(json.dumps({"rigs": values}))
    if failed:
        sys.exit(FAILED)


def _as_json(number: int, release: Release) -> dict[str, Any]:
    return {"number": number, **release.model_dump(mode="json")}


def _print_releases(name: str, releases: dict[int, Release]) -> None:
    if not releases:
        echo(f"{name}: no release yet; each `herd up` that changes something writes one")
    for number, release in releases.items():
        by = release.origin
        machine = f" on {by.machine}" if by.machine else ""
        commit = f" from commit {by.commit}" if by.commit else ""
        back = f", back to release {release.back_to}" if release.back_to else ""
        only = f", only {', '.join(release.only)}" if release.only else ""
        came = "failed" if release.failed else "done"
        at = release.at.replace("T", " ").replace("+00:00", " UTC")
        echo(f"{name} {number}: {came} at {at}, by {by.user}{machine}{commit}{only}{back}")
        for change in release.changes:
            echo(f"    {change}")
        for sentence in release.failed:
            echo(f"    failed: {sentence}")
