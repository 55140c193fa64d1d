"""`herd`'s commands that touch no host: check, plan, lock."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import click

from llamaherd.cli.common import FAILED, UNUSABLE, json_option, plans, rigs_argument, show, usable
from llamaherd.findings import Finding

UNREAD = frozenset({"LH001", "LH005"})
"""Codes of what could not be read at all."""


@click.command()
@click.argument("paths", metavar="[PATH]...", nargs=-1, type=click.Path(path_type=Path))
@json_option
@click.pass_obj
def check(inventory: Path | None, paths: tuple[Path, ...], as_json: bool) -> None:
    """Say everything that is wrong with an inventory, or with a recipe. Touches no host.

    A PATH is a rig's YAML file, a folder of them, or what one pastes from elsewhere: a script that starts a server, a
    Compose file, a .wslconfig. Exit codes: 0 nothing wrong (there may be warnings), 1 errors, 2 something cannot be
    read.

    \b
    Examples:
      herd check                      the inventory
      herd check ~/fleet/duo.yaml     one rig
      herd check start.sh             a recipe: what is wrong, and how a rig says the same
    """
    from llamaherd.planning import examined, inventory_path
    from llamaherd.recipes import is_recipe, understand
    from llamaherd.recipes.suggest import fragment

    findings: list[Finding] = []
    suggested: list[str] = []
    rigs = recipes = 0
    for path in paths or (inventory_path(inventory),):
        if is_recipe(path):
            recipe = understand(path)
            findings += recipe.findings
            suggested += [fragment(path, recipe.servers)] if recipe.servers else []
            recipes += 1
        else:
            fleet, found = examined(path)
            findings += found
            rigs += len(fleet.rigs)
    ok = not any(finding.severity == "error" for finding in findings)
    if as_json:
        click.echo(json.dumps({"ok": ok, "findings": [finding.as_json() for finding in findings]}))
    else:
        show(findings)
        for text in suggested:
            click.echo(f"\nIn an inventory, that is:\n\n{text}")
        counted = [f"{rigs} rigs"] if rigs or not recipes else []
        counted += [f"{recipes} recipes"] if recipes else []
        click.echo(f"{', '.join(counted)}, {len(findings)} findings")
    if not ok:
        sys.exit(UNUSABLE if any(finding.code in UNREAD for finding in findings) else FAILED)


@click.command()
@rigs_argument
@json_option
@click.pass_obj
def plan(inventory: Path | None, rigs: tuple[str, ...], as_json: bool) -> None:
    """Show exactly what would be on each host. Touches no host.

    \b
    Examples:
      herd plan               every rig, for reading
      herd plan box --json    one rig, for machines
    """
    from llamaherd.show import show_plan

    planned = plans(inventory, rigs)
    if as_json:
        click.echo(json.dumps({name: plan.model_dump(mode="json") for name, (_, plan) in planned.items()}))
        return
    for _, each in planned.values():
        click.echo(show_plan(each))


@click.command()
@click.pass_obj
def lock(inventory: Path | None) -> None:
    """Resolve the models' hub names to commits, files and hashes, and write them to herd.lock.

    What is locked already stays as it is; what no rig declares any more goes, when the inventory is a folder. The hub
    is the one in HF_ENDPOINT.
    """
    from llamaherd import hub
    from llamaherd import lock as locks
    from llamaherd.planning import inventory_path, lock_path, read_lock
    from llamaherd.planning import rigs as declared_rigs

    path = inventory_path(inventory)
    fleet = usable(lambda: declared_rigs(path))
    old = usable(lambda: read_lock(path))
    wanted = sorted(
        {(m.hf, m.revision, m.files) for rig in fleet.rigs.values() for m in rig.models.values() if m.hf is not None}
    )
    models = []
    for repo, revision, files in wanted:
        known = old.find(repo, revision, files)
        if known is None:
            click.echo(f"asking the hub for {repo} at {revision}, {files}", err=True)
            try:
                known = hub.resolve(repo, revision, files)
            except hub.HubError as error:
                click.secho(f"error: {error.message}\n  help: {error.help}", err=True)
                sys.exit(FAILED)
        models.append(known)
    if path.is_file():  # the other rigs beside it share its lock
        models += [model for model in old.models if model not in models]
    changed = locks.write(lock_path(path), locks.Lock(models=tuple(models)))
    click.echo(f"{lock_path(path)}: {'written' if changed else 'unchanged'}, {len(models)} models")
