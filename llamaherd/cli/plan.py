"""`herd`'s commands that touch no host, or change none: check, plan, lock."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from llamaherd.cli.common import (
    FAILED,
    UNUSABLE,
    inventory_option,
    json_option,
    plans,
    rigs_argument,
    say,
    show,
    usable,
)
from llamaherd.diagnostics.findings import Finding, shown

if TYPE_CHECKING:
    from llamaherd.inventory.schema import Rig
    from llamaherd.lock import Lock
    from llamaherd.pipeline.engine_estimate import Asked
    from llamaherd.plan import Plan

UNREAD = frozenset({"LH001", "LH005"})
"""Codes of what could not be read at all."""


@click.command()
@click.argument("paths", metavar="[PATH]...", nargs=-1, type=click.Path(path_type=Path))
@inventory_option
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
    from llamaherd.pipeline.load import examined, inventory_path
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
        told = [finding.as_json() for finding in shown(findings)]
        click.echo(json.dumps({"ok": ok, "findings": told, "total": len(findings)}))
    else:
        show(findings)
        for text in suggested:
            say(f"\nIn an inventory, that is:\n\n{text}")
        counted = [_counted(rigs, "rig")] if rigs or not recipes else []
        counted += [_counted(recipes, "recipe")] if recipes else []
        say(", ".join([*counted, _counted(len(findings), "finding")]))
    if not ok:
        sys.exit(UNUSABLE if any(finding.code in UNREAD for finding in findings) else FAILED)


def _counted(number: int, what: str) -> str:
    return f"{number} {what}{'s' if number != 1 else ''}"


@click.command()
@rigs_argument
@click.option("--ask", is_flag=True, help="Also ask the engines on the rigs what they take. Changes nothing there.")
@inventory_option
@json_option
@click.pass_obj
def plan(inventory: Path | None, rigs: tuple[str, ...], ask: bool, as_json: bool) -> None:
    """Show exactly what would be on each host. Touches no host, but for --ask.

    With --ask, every build of llama.cpp that is on its rig says what its servers take: of the model there, or of its
    header, which is fetched and brought. For a moment that needs RAM for a recurrent model's state. Exit codes: 0 all
    that can be said was said, 1 a host could not be asked, 2 the inventory cannot be used.

    \b
    Examples:
      herd plan               every rig, for reading
      herd plan box --json    one rig, for machines
      herd plan box --ask     and what its engines say of memory
    """
    from llamaherd.pipeline.describe import show_plan

    planned = plans(inventory, rigs)
    said, unreached = _asked(inventory, planned) if ask else ({}, False)
    if as_json:
        click.echo(
            json.dumps(
                {
                    name: each.model_dump(mode="json") | ({"engine_memory": _as_json(said[name])} if ask else {})
                    for name, (_, each) in planned.items()
                }
            )
        )
    else:
        for name, (_, each) in planned.items():
            say(show_plan(each, said.get(name)))
    if unreached:
        sys.exit(FAILED)


def _asked(inventory: Path | None, planned: Mapping[str, tuple[Rig, Plan]]) -> tuple[dict[str, Asked], bool]:
    """What the engines on the rigs say, by rig; and whether a rig could not be asked, which is said at once."""
    from llamaherd.host.remote import Remote, RemoteError
    from llamaherd.pipeline.engine_estimate import ask
    from llamaherd.pipeline.load import inventory_path, read_lock

    lock = usable(lambda: read_lock(inventory_path(inventory)))
    said: dict[str, Asked] = {}
    unreached = False
    for name, (rig, each) in planned.items():
        say(f"asking {name}", err=True)
        try:
            said[name] = ask(rig, each, lock, Remote(rig.connect))
        except RemoteError as error:
            say(f"{name}: {error}", err=True)
            said[name] = dict.fromkeys((instance.name for instance in each.instances), error.message)
            unreached = True
    return said, unreached


def _as_json(said: Asked) -> dict[str, Any]:
    """By instance: the estimate, or why there is none."""
    return {
        name: {"unknown": each} if isinstance(each, str) else each.model_dump(mode="json")
        for name, each in said.items()
    }


@dataclass(frozen=True)
class Written:
    """A lock that is in its file now, and whether that changed the file."""

    lock: Lock
    changed: bool

    def __str__(self) -> str:
        new = self.lock
        parts = {"engine": new.engines, "image": new.images, "model": new.models, "file": new.files}
        holds = ", ".join(_counted(len(part), what) for what, part in parts.items() if part) or "nothing that moves"
        return f"{'written' if self.changed else 'unchanged'}, {holds}"


def _locked(path: Path, target: Path, upgrade: tuple[str, ...], findings: list[Finding]) -> Written | None:
    """Read, resolve and write, while no other run does; adds to `findings`. None if an error is among them.

    Raises LockError.
    """
    from llamaherd.lock import held, write
    from llamaherd.lock.resolve.resolve import lock_fleet, places
    from llamaherd.pipeline.load import declared, read_lock

    def tell(text: str) -> None:
        say(text, err=True)

    with held(target, tell):
        survey = usable(lambda: declared(path))
        old = usable(lambda: read_lock(path))
        where = places(survey.documents, path)
        outcome = usable(lambda: lock_fleet(survey.fleet, old, where, tell, upgrade, whole=path.is_dir()))
        findings += outcome.findings
        return Written(outcome.lock, write(target, outcome.lock)) if outcome.ok else None


@click.command()
@click.option(
    "--upgrade",
    metavar="NAME",
    multiple=True,
    help="Resolve this engine, image or model anew, by its name in the inventory; `all` for everything. Repeatable.",
)
@inventory_option
@json_option
@click.pass_obj
def lock(inventory: Path | None, upgrade: tuple[str, ...], as_json: bool) -> None:
    """Resolve what moves to what it stands for now, and write that to herd.lock, to be reviewed and committed.

    Engines' tags and branches become commits, images' tags digests, models' revisions commits with every file's size
    and sha256, and with what sizing needs of their headers. What is locked stays as it is; what no rig declares any
    more goes, when the inventory is a folder. The hub is the one in HF_ENDPOINT. Exit codes: 0 the lock is as the
    inventory wants it, 1 something could not be resolved and nothing was written, 2 the inventory cannot be used.

    \b
    Examples:
      herd lock                   what is new
      herd lock --upgrade main    and what the engine `main` stands for by now
    """
    from llamaherd.lock import LockError
    from llamaherd.pipeline.load import inventory_path, lock_path

    path = inventory_path(inventory)
    target = lock_path(path)
    findings: list[Finding] = []
    written: Written | None = None
    try:
        written = _locked(path, target, upgrade, findings)
    except LockError as error:
        findings.append(Finding(error.code, error.place, error.message, error.help))
    ok, changed = written is not None, written is not None and written.changed
    if as_json:
        told = {"findings": [finding.as_json() for finding in shown(findings)], "total": len(findings)}
        click.echo(json.dumps({"ok": ok, "changed": changed, "lock": str(target), **told}))
    else:
        show(findings)
        say(f"{target}: {written}" if written else f"{target}: not written")
    if not ok:
        sys.exit(FAILED)
