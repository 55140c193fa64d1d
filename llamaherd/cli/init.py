"""`herd init`: create a fleet folder, with a rig from an inspection of its host, or with an example."""

from __future__ import annotations

from pathlib import Path

import click


@click.command()
@click.argument("folder", metavar="[DIR]", required=False, type=click.Path(path_type=Path))
@click.option(
    "--from", "host", metavar="[USER@]HOST", help="Inspect this host and write its rig; `local` is this machine."
)
@click.option("--user", help="With --from: the SSH user. Default: as SSH is configured.")
@click.option("--port", type=click.IntRange(1, 65535), help="With --from: the SSH port. Default: as SSH is configured.")
@click.option("--name", help="With --from: the name of the rig. Default: the name in --from.")
@click.option("--example", metavar="NAME", help="Write this example instead: duo, household or another.")
def init(
    folder: Path | None, host: str | None, user: str | None, port: int | None, name: str | None, example: str | None
) -> None:
    """Create a fleet folder with a first rig.

    The rig is an example or, with --from, describes an existing host, with the largest model of a few known ones that
    fits its GPU. Existing files are kept. HOST is a name, an address, or a `Host` of ~/.ssh/config. The inspection is
    one SSH connection and changes nothing. If the host's key is unknown, `ssh` shows its fingerprint and prompts you.
    A host with fewer than four cores gets the programs that the engine's authors have built, if they run there.
    If DIR has results of `herd tune` on the same GPUs with as many cores, the rig's file contains the best settings as
    a comment.

    Without DIR, the files are written to the fleet folder that you are in, or to the current folder if it is empty.

    \b
    Examples:
      herd init --from tom@duo.lan                  a rig with duo's hardware
      herd init ~/fleet --from local --name attic   this machine
      herd init ~/fleet                             an example to edit
      herd init ~/fleet --example household         two rigs with a gateway
    """
    from llamaherd.cli.fleet_folder import FirstRig, create_fleet  # late: the help needs none of it

    if host is not None and example is not None:
        raise click.UsageError("--from and --example both write the first rig; leave out one of them")
    create_fleet(folder, FirstRig(host, user, port, name, example))
