"""`herd diff`: what `herd up` would change, and why."""

from __future__ import annotations

import json
import sys
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from llamaherd.cli.common import (
    FAILED,
    UNUSABLE,
    inventory_option,
    json_option,
    outlooks_or_exit,
    rigs_argument,
    roles_of,
    say,
    show_changes,
)
from llamaherd.text.terminal import plain

if TYPE_CHECKING:
    from collections.abc import Sequence

    from llamaherd.pipeline.drift import Causes
    from llamaherd.pipeline.outlook import Outlook

CHANGES = 2
COLOURS = {"+": "green", "-": "red", "@": "cyan"}


@click.command()
@rigs_argument
@inventory_option
@json_option
@click.pass_obj
def diff(inventory: Path | None, rigs: tuple[str, ...], as_json: bool) -> None:
    """Show what `herd up` would change, and why. Changes nothing.

    Every change comes with its reason; of files of ours that have another text, a unified diff. What follows only from
    a change itself, as a restart that a new build brings, shows once that is made. Exit codes: 0 all is as planned, 2
    there are changes, 1 the inventory cannot be used, or a host cannot be asked or cannot become as planned.

    \b
    Examples:
      herd diff               the whole fleet
      herd diff duo --json    one rig, for machines
    """
    from llamaherd.host.remote import Remote, RemoteError
    from llamaherd.pipeline.diff import ask_diffs
    from llamaherd.pipeline.history_ask import ask_causes

    try:
        planned, found = outlooks_or_exit(inventory, rigs)
    except SystemExit as ended:
        sys.exit(FAILED if ended.code == UNUSABLE else ended.code)  # 2 says that there are changes
    causes = ask_causes(planned, found, roles_of(inventory))
    values = []
    failed = changed = False
    for name, each in found.items():
        rig, _ = planned[name]
        texts: dict[str, str] = {}
        unreached = each.unreached
        try:
            texts = ask_diffs(Remote(rig.connect), each.stale)
        except RemoteError as error:
            unreached = str(error)
        failed = failed or bool(unreached or each.problems)
        changed = changed or bool(each.changes)
        values.append(_as_json(name, each, causes.get(name, ()), texts, unreached))
        if not as_json:
            _show(name, each, causes.get(name, ()), texts, unreached)
    if as_json:
        click.echo(json.dumps({"rigs": values}))
    sys.exit(FAILED if failed else CHANGES if changed else 0)


def _as_json(
    name: str, found: Outlook, causes: Sequence[Causes], texts: dict[str, str], unreached: str
) -> dict[str, Any]:
    return {
        "rig": name,
        "changes": [
            {"action": each.action, "kind": each.kind, "name": each.name, "reasons": each.reasons}
            | ({"away": asdict(each.away)} if each.away else {})
            | (asdict(causes[number]) if causes else {})
            for number, each in enumerate(found.changes)
        ],
        "diffs": texts,
        "problems": found.problems,
        "unreached": unreached,
    }


def _show(name: str, found: Outlook, causes: Sequence[Causes], texts: dict[str, str], unreached: str) -> None:
    for sentence in (*found.problems, *filter(None, [unreached])):
        say(f"{name}: {sentence}", err=True)
    if found.as_planned and not unreached:
        say(f"{name}: as planned")
    if found.changes:
        show_changes(name, found, causes)
    for text in texts.values():
        for line in text.splitlines():
            click.secho(f"    {plain(line)}", fg=COLOURS.get(line[:1]))
