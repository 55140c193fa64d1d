"""`herd diff`: show what `herd up` would change and why, save it to a file, and compare a saved file with the hosts."""

from __future__ import annotations

import json
import os
import shlex
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from tempfile import mkstemp
from typing import TYPE_CHECKING

import click

from llamaherd.cli.common import (
    FAILED,
    UNUSABLE,
    fail,
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
from llamaherd.diagnostics.findings import InventoryError, UserError
from llamaherd.text.terminal import plain
from llamaherd.text.textfile import UnreadableError, read_bytes

if TYPE_CHECKING:
    from llamaherd.inventory.schema import Rig
    from llamaherd.pipeline.diff import Causes, SavedDiff, SavedDifference, SavedRig
    from llamaherd.pipeline.drift_metrics import MonitoredFleet
    from llamaherd.pipeline.preview import Preview
    from llamaherd.plan import Plan


def write_saved(path: Path, saved: SavedDiff) -> None:
    """Put it at `path` in one atomic step, for its owner alone. Raises UserError."""
    from llamaherd.pipeline.diff import SAVED_PREFIX, saved_diff_bytes

    data = saved_diff_bytes(saved, _save_command("RIG", path))
    try:
        target = path.resolve()  # through a link, the file that it leads to is replaced rather than the link
        if target.exists() and not _is_replaceable(target, SAVED_PREFIX):
            raise UserError(f"{path} is no saved diff, and is left as it is", "name another file, or remove that one")
        handle, part = mkstemp(".part", ".herd-", target.parent)  # of mode 0600
        try:
            with os.fdopen(handle, "wb") as stream:
                stream.write(data)
                stream.flush()
                os.fsync(handle)
            Path(part).replace(target)
        finally:
            Path(part).unlink(missing_ok=True)
    except (OSError, RuntimeError) as error:  # RuntimeError: links that lead to each other
        why = error.strerror if isinstance(error, OSError) else "its links lead nowhere"
        raise UserError(f"cannot write {path}: {why}", "check the folder and its mode") from None


def _is_replaceable(target: Path, begins: bytes) -> bool:
    """Whether it may be replaced: a slip of the fingers must not cost anybody an inventory."""
    if not target.is_file():
        return False
    with target.open("rb") as stream:
        return stream.read(len(begins)) in (begins, b"")


def read_saved_or_exit(path: Path) -> SavedDiff:
    """The saved diff at `path`; where there is none that can be used, a sentence ends the program."""
    from llamaherd.pipeline.diff import MOST_SAVED_BYTES, parse_saved_diff

    try:
        try:
            data = read_bytes(path, MOST_SAVED_BYTES)
        except UnreadableError as error:
            raise UserError(f"cannot read {path}: {error}", error.help) from None
        return parse_saved_diff(data, str(path), _save_command("", path))
    except UserError as error:
        fail(error, UNUSABLE)


def require_saved_or_exit(
    path: Path, saved: SavedDiff, planned: Mapping[str, tuple[Rig, Plan]], found: Mapping[str, Preview]
) -> None:
    """Nothing, where inventory and hosts are as they were saved; else what is not is said, and ends the program."""
    from llamaherd.pipeline.diff import compare_with_saved

    unreached = {name: each.unreached for name, each in found.items() if each.unreached}
    gone = [rig.rig for rig in saved.rigs if rig.rig not in planned]  # by `--only`, it has no such instance any more
    there = [rig for rig in saved.rigs if rig.rig in planned]
    differing = [each for rig in there if (each := compare_with_saved(rig, *planned[rig.rig], found[rig.rig]))]
    for name, why in unreached.items():
        say(f"{name}: {why}", err=True)
    for each in differing:
        if each.rig not in unreached:
            _show_difference(each, path, saved, found[each.rig].problems)
    if unreached or differing or gone:
        chosen = [word for name in saved.only or () for word in ("--only", shlex.quote(name))]
        again = _save_command(" ".join([*saved.names, *chosen]), path)
        say(f"nothing was changed: {path} does not say what would be done now", err=True)
        say(f"  help: look at what would change, and save that: `{again}`", err=True)
        sys.exit(FAILED)


def _show_difference(each: SavedDifference, path: Path, saved: SavedDiff, problems: Sequence[str]) -> None:
    from llamaherd import __version__

    if each.another_plan:
        of = f", which llamaherd {saved.llamaherd} made; this is {__version__}"
        other = of if saved.llamaherd != __version__ else ""
        say(f"{each.rig}: the inventory's plan is another than that of {path}{other}", err=True)
    for problem in problems:
        say(f"{each.rig}: {problem}", err=True)
    for change in each.new:
        say(f"{each.rig}: new since {path}: {change}", err=True)
    for change in each.gone:
        say(f"{each.rig}: gone since {path}: {change}", err=True)


def _save_command(rigs: str, path: Path) -> str:
    """The command that saves a diff there."""
    return " ".join(filter(None, ["herd diff", rigs, "--save", shlex.quote(str(path))]))


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
    from llamaherd.pipeline.diff import SavedDiff
    from llamaherd.pipeline.history import query_causes

    _whole_or_exit(rigs, only, metrics, tell=tell)
    watcher = _watcher_or_exit(inventory) if tell else None
    found: dict[str, SavedRig] = {}
    try:
        roles = roles_of(inventory)
        with looking_or_exit(inventory, rigs, only=only) as (planned, hosts):

            def more(name: str, each: Preview) -> tuple[Preview, Sequence[Causes], SavedRig]:
                causes = query_causes({name: planned[name]}, {name: each}, roles).get(name, ())
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
        write_saved(save, SavedDiff.of(shown, only))
        say(f"saved to {save}: `herd up --plan {shlex.quote(str(save))}` does this, if it is still so then", err=True)
    told = not (metrics or watcher) or _export_metrics(shown, metrics, watcher)
    if not told or any(each.unreached or each.problems for each in shown):
        sys.exit(FAILED)
    sys.exit(CHANGES if any(each.changes for each in shown) else 0)


def _whole_or_exit(rigs: Sequence[str], only: Sequence[str], metrics: Path | None, *, tell: bool) -> None:
    """End the program where figures would be of less than people take them for."""
    if only and (metrics or tell):
        raise click.UsageError("figures are of all that a rig is; leave out --only")
    if rigs and tell:
        raise click.UsageError("what is told is of the whole fleet; name no rig")


def _watcher_or_exit(inventory: Path | None) -> MonitoredFleet:
    """The rig that is to be told; a sentence ends the program where none is."""
    from llamaherd.pipeline.drift_metrics import monitored_fleet
    from llamaherd.pipeline.load import inventory_path, rigs

    path = inventory_path(inventory)
    try:
        found = monitored_fleet(path)
        found.require_all(rigs(path).rigs)
    except UserError as error:
        say(f"error: {error}", err=True)
    except InventoryError as error:
        show(error.findings)
    else:
        return found
    sys.exit(FAILED)


def _export_metrics(shown: Sequence[SavedRig], metrics: Path | None, watcher: MonitoredFleet | None) -> bool:
    """Whether figures of it are where they are wanted; why not is said."""
    from llamaherd.measure.report.export import write_text
    from llamaherd.pipeline.drift_metrics import deliver_metrics, metrics_text

    text = metrics_text(shown, int(time.time()))
    try:
        if metrics:
            write_text(metrics, text)
            say(f"written: {metrics}", err=True)
        if watcher:
            deliver_metrics(watcher.rig, text)
            say(f"told {watcher.rig.rig}, which watches the fleet", err=True)
    except UserError as error:  # of a host that cannot be reached, too
        say(f"error: {error}", err=True)
        return False
    return True


def _with_texts(rig: Rig, plan: Plan, found: Preview, causes: Sequence[Causes]) -> SavedRig:
    """What is shown of a rig, with how its files differ, which is asked now."""
    from llamaherd.host.remote import Remote, RemoteError
    from llamaherd.pipeline.diff import query_diffs, saved_rig

    try:
        return saved_rig(rig, plan, found, causes, query_diffs(Remote(rig.connect), found.stale), found.unreached)
    except RemoteError as error:
        return saved_rig(rig, plan, found, causes, {}, str(error))


def _show(name: str, found: Preview, causes: Sequence[Causes], texts: Mapping[str, str], unreached: str) -> None:
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
