"""`herd diff`: what `herd up` would change, and why."""

from __future__ import annotations

import json
import shlex
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import click

from llamaherd.cli.common import (
    FAILED,
    UNUSABLE,
    inventory_option,
    json_option,
    looking_or_exit,
    only_option,
    rigs_argument,
    roles_of,
    say,
    show,
    show_changes,
    show_left,
)
from llamaherd.cli.saved import write
from llamaherd.diagnostics.findings import InventoryError, UserError
from llamaherd.text.terminal import plain

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from llamaherd.inventory.schema import Rig
    from llamaherd.pipeline.drift import Causes
    from llamaherd.pipeline.drift_tell import Watching
    from llamaherd.pipeline.outlook import Outlook
    from llamaherd.pipeline.saved import SavedRig
    from llamaherd.plan import Plan

CHANGES = 2
COLOURS = {"+": "green", "-": "red", "@": "cyan"}


def _for_an_exporter(_context: click.Context, _parameter: click.Parameter, value: Path | None) -> Path | None:
    """A file that an exporter reads; so no other file is written over by a slip of the fingers."""
    if value is not None and value.suffix != ".prom":
        raise click.BadParameter("exporters read files whose names end with .prom")
    return value


@click.command()
@rigs_argument
@inventory_option
@json_option
@only_option
@click.option("--save", type=click.Path(path_type=Path), metavar="FILE", help="Save it for `herd up --plan FILE`.")
@click.option(
    "--metrics",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE.prom",
    callback=_for_an_exporter,
    help="Write figures of it, for the textfile collector of Prometheus' exporter.",
)
@click.option("--tell", is_flag=True, help="Give these figures to the rig that watches the fleet.")
@click.pass_obj
def diff(
    inventory: Path | None,
    rigs: tuple[str, ...],
    as_json: bool,
    only: tuple[str, ...],
    save: Path | None,
    metrics: Path | None,
    tell: bool,
) -> None:
    """Show what `herd up` would change, and why. Changes nothing.

    Every change comes with its reason; of files of ours that have another text, a unified diff. What follows only from
    a change itself, as a restart that a new build brings, shows once that is made. Exit codes: 0 all is as planned, 2
    there are changes, 1 the inventory cannot be used, or a host cannot be asked or cannot become as planned.

    With `--only` it is about an instance, such as `chat`, or a role, such as `power`. One line counts what else there
    is.

    With `--save` it is written to a file, too: `herd up --plan FILE` makes it so, if all is still as it was then.

    With `--tell`, Prometheus learns how many changes there are: one file is written, on the rig that watches. People
    are told of drift, as far as `fleet.yaml` says `monitoring: {drift: true}`. `herd monitoring timer` has it done each
    night.

    \b
    Examples:
      herd diff                       the whole fleet
      herd diff duo --json            one rig, for machines
      herd diff --only chat           one instance, with what it needs
      herd diff --save monday.json    to be carried out later
      herd diff --tell                for Prometheus, which tells people of drift
    """
    from llamaherd.host.remote import as_they_come
    from llamaherd.pipeline.history_ask import ask_causes
    from llamaherd.pipeline.saved import SavedDiff

    _whole_or_exit(rigs, only, metrics, tell=tell)
    watcher = _watcher_or_exit(inventory) if tell else None
    found: dict[str, SavedRig] = {}
    try:
        roles = roles_of(inventory)
        with looking_or_exit(inventory, rigs, only=only) as (planned, hosts):

            def more(name: str, each: Outlook) -> tuple[Outlook, Sequence[Causes], SavedRig]:
                causes = ask_causes({name: planned[name]}, {name: each}, roles).get(name, ())
                return each, causes, _with_texts(*planned[name], each, causes)

            for name, (each, causes, saved) in as_they_come(hosts.begin(planned, roles, more)):
                found[name] = saved
                if not as_json:
                    _show(name, each, causes, saved.diffs, saved.unreached)
    except SystemExit as ended:
        sys.exit(FAILED if ended.code == UNUSABLE else ended.code)  # 2 says that there are changes
    shown = [found[name] for name in planned]
    if as_json:
        click.echo(json.dumps({"rigs": [each.shown() for each in shown]} | ({"only": only} if only else {})))
    if save:
        write(save, SavedDiff.of(shown, only))
        say(f"saved to {save}: `herd up --plan {shlex.quote(str(save))}` does this, if it is still so then", err=True)
    told = not (metrics or watcher) or _told(shown, metrics, watcher)
    if not told or any(each.unreached or each.problems for each in shown):
        sys.exit(FAILED)
    sys.exit(CHANGES if any(each.changes for each in shown) else 0)


def _whole_or_exit(rigs: Sequence[str], only: Sequence[str], metrics: Path | None, *, tell: bool) -> None:
    """End the program where figures would be of less than people take them for."""
    if only and (metrics or tell):
        raise click.UsageError("figures are of all that a rig is; leave out --only")
    if rigs and tell:
        raise click.UsageError("what is told is of the whole fleet; name no rig")


def _watcher_or_exit(inventory: Path | None) -> Watching:
    """The rig that is to be told; a sentence ends the program where none is."""
    from llamaherd.pipeline.drift_tell import watching
    from llamaherd.pipeline.load import inventory_path, rigs

    path = inventory_path(inventory)
    try:
        found = watching(path)
        found.require_all(rigs(path).rigs)
    except UserError as error:
        say(f"error: {error}", err=True)
    except InventoryError as error:
        show(error.findings)
    else:
        return found
    sys.exit(FAILED)


def _told(shown: Sequence[SavedRig], metrics: Path | None, watcher: Watching | None) -> bool:
    """Whether figures of it are where they are wanted; why not is said."""
    from llamaherd.pipeline.drift_figures import figures
    from llamaherd.pipeline.drift_tell import tell
    from llamaherd.report.written import write as write_text

    text = figures(shown, int(time.time()))
    try:
        if metrics:
            write_text(metrics, text)
            say(f"written: {metrics}", err=True)
        if watcher:
            tell(watcher.rig, text)
            say(f"told {watcher.rig.rig}, which watches the fleet", err=True)
    except UserError as error:  # of a host that cannot be reached, too
        say(f"error: {error}", err=True)
        return False
    return True


def _with_texts(rig: Rig, plan: Plan, found: Outlook, causes: Sequence[Causes]) -> SavedRig:
    """What is shown of a rig, with how its files differ, which is asked now."""
    from llamaherd.host.remote import Remote, RemoteError
    from llamaherd.pipeline.diff import ask_diffs
    from llamaherd.pipeline.saved import saved_rig

    try:
        return saved_rig(rig, plan, found, causes, ask_diffs(Remote(rig.connect), found.stale), found.unreached)
    except RemoteError as error:
        return saved_rig(rig, plan, found, causes, {}, str(error))


def _show(name: str, found: Outlook, causes: Sequence[Causes], texts: Mapping[str, str], unreached: str) -> None:
    for sentence in (*found.problems, *filter(None, [unreached])):
        say(f"{name}: {sentence}", err=True)
    if found.as_planned and not unreached:
        say(f"{name}: as planned")
    if found.changes:
        show_changes(name, found, causes)
    for text in texts.values():
        for line in text.splitlines():
            click.secho(f"    {plain(line)}", fg=COLOURS.get(line[:1]))
    show_left(name, found)
