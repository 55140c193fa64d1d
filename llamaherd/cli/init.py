"""`herd`'s commands that make a fleet's folder and its schemas: init, schema."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from llamaherd.cli.common import FAILED, say


@click.command()
@click.argument("folder", metavar="DIR", type=click.Path(path_type=Path))
@click.option("--from", "host", metavar="HOST", help="Look at this host and write its rig; `local` is this machine.")
@click.option("--user", help="With --from: who logs in. Default: what SSH would take.")
@click.option("--port", type=click.IntRange(1, 65535), default=22, show_default=True, help="With --from: SSH's port.")
@click.option("--name", help="With --from: what the rig is called. Default: after its host.")
def init(folder: Path, host: str | None, user: str | None, port: int, name: str | None) -> None:
    """Make DIR a fleet of its own, with an example rig, or with one from a look at a host.

    What is there already is left as it is. The look is one SSH connection that changes nothing.

    \b
    Examples:
      herd init ~/fleet                             an example to change
      herd init ~/fleet --from duo.lan --user tom   a rig with duo's cards, cores and memory
      herd init ~/fleet --from local --name attic   this machine
    """
    from llamaherd.host.remote import RemoteError
    from llamaherd.inventory.schema import LOCAL
    from llamaherd.scaffold import (
        EXAMPLE,
        LookError,
        example_rig,
        fleet_files,
        holds_rigs,
        look,
        reached,
        rig_name,
        rig_yaml,
        write,
    )

    rigs: dict[str, str] = {}
    try:
        if host is None and not holds_rigs(folder):
            rigs[EXAMPLE] = example_rig()
        if host is not None:
            connect = reached(LOCAL if host == "local" else host, user, port)
            rig_name(name, host)  # a name that will not do is said before the host is asked
            say(f"asking {'this machine' if host == 'local' else host}", err=True)
            seen = look(connect)
            rig = rig_name(name, seen.name or host)
            rigs[rig] = rig_yaml(seen, rig, connect)
        outcomes = write(folder, fleet_files(rigs))
    except (LookError, RemoteError) as error:
        say(f"error: {error.message}\n  help: {error.help}", err=True)
        sys.exit(FAILED)
    for outcome in outcomes:
        say(f"{outcome.what:9}  {outcome.file}")
    for rig in rigs:
        say(f"next: read {folder / rig}.yaml, then run `herd -i {folder} check`", err=True)


@click.command()
@click.argument("kind", type=click.Choice(["rig", "defaults"]), default="rig")
def schema(kind: str) -> None:
    """Print the JSON Schema of a rig's file, or of defaults.yaml, for editors.

    \b
    Examples:
      herd schema > rig.schema.json
      herd schema defaults > defaults.schema.json
    """
    from llamaherd.inventory.json_schema import schema_text

    click.echo(schema_text(kind), nl=False)
