"""The run of `herd plan`: print what `herd up` would change, save it, and compare a saved file with the hosts."""

from __future__ import annotations

import shlex
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import click

from llamaherd import __version__
from llamaherd.cli.common import (
    FAILED,
    UNUSABLE,
    echo,
    exit_on_error,
    fail,
    print_errors,
    write_output,
)
from llamaherd.cli.envelope import Envelope, print_envelope
from llamaherd.cli.rigs import inspecting_or_exit, print_changes, print_left_out, print_problems, roles_or_exit
from llamaherd.diagnostics.findings import InventoryError, UserError
from llamaherd.host.remote import Remote, RemoteError, as_they_come
from llamaherd.inventory.file_writer import write_atomically
from llamaherd.inventory.schema import Rig
from llamaherd.pipeline.diff import (
    MOST_SAVED_BYTES,
    SAVED_PREFIX,
    Causes,
    MonitoredFleet,
    SavedDiff,
    SavedDifference,
    SavedRig,
    compare_with_saved,
    deliver_metrics,
    metrics_text,
    monitored_fleet,
    parse_saved_diff,
    query_diffs,
    saved_diff_bytes,
    saved_rig,
)
from llamaherd.pipeline.history import query_causes
from llamaherd.pipeline.load import inventory_path, rigs
from llamaherd.pipeline.preview import Preview
from llamaherd.plan import Plan
from llamaherd.text.terminal import plain
from llamaherd.text.textfile import UnreadableError, read_bytes


def write_saved(path: Path, saved: SavedDiff) -> None:
    """Write a saved diff to `path` in one atomic step, readable by its owner alone. Raise UserError."""
    text = saved_diff_bytes(saved, _save_command("RIG", path)).decode()
    try:
        target = path.resolve()  # a link stays, and the file that it leads to is replaced
        if target.exists() and not _is_replaceable(target, SAVED_PREFIX):
            raise UserError(f"{path} exists and is not a saved diff", "choose another file, or remove this one")
        write_atomically(target, text, 0o600)
    except (OSError, RuntimeError) as error:  # RuntimeError: links that lead to each other
        why = error.strerror if isinstance(error, OSError) else "its links form a loop"
        raise UserError(f"cannot write {path}: {why}", "check the folder and its mode") from None


def _is_replaceable(target: Path, begins: bytes) -> bool:
    """Return whether a file is a saved diff or empty: a typing mistake must not overwrite an inventory."""
    if not target.is_file():
        return False
    with target.open("rb") as stream:
        return stream.read(len(begins)) in (begins, b"")


def read_saved_or_exit(path: Path) -> SavedDiff:
    """Return the saved diff at `path`. Print an error and end the program if it is unusable."""
    with exit_on_error(UNUSABLE):
        try:
            data = read_bytes(path, MOST_SAVED_BYTES)
        except UnreadableError as error:
            raise UserError(f"cannot read {path}: {error}", error.help) from None
        return parse_saved_diff(data, str(path), _save_command("", path))


def require_saved_or_exit(
    path: Path, saved: SavedDiff, planned: Mapping[str, tuple[Rig, Plan]], found: Mapping[str, Preview]
) -> None:
    """Compare a saved diff with inventory and hosts. Print the differences, if any, and end the program."""
    unreached = {name: each.unreached for name, each in found.items() if each.unreached}
    gone = [rig.rig for rig in saved.rigs if rig.rig not in planned]  # by `--only`: the rig lost that instance
    there = [rig for rig in saved.rigs if rig.rig in planned]
    differing = [each for rig in there if (each := compare_with_saved(rig, *planned[rig.rig], found[rig.rig]))]
    for name, why in unreached.items():
        echo(f"{name}: {why}", err=True)
    for each in differing:
        if each.rig not in unreached:
            _print_difference(each, path, saved, found[each.rig].problems)
    if unreached or differing or gone:
        chosen = [word for name in saved.only or () for word in ("--only", shlex.quote(name))]
        again = _save_command(" ".join([*saved.names, *chosen]), path)
        echo(f"nothing was changed: {path} is out of date", err=True)
        echo(f"  help: run `{again}` to review and save the current changes", err=True)
        sys.exit(FAILED)


def _print_difference(each: SavedDifference, path: Path, saved: SavedDiff, problems: Sequence[str]) -> None:
    if each.another_plan:
        by = f", which llamaherd {saved.llamaherd} wrote; this is {__version__}"
        version = by if saved.llamaherd != __version__ else ""
        echo(f"{each.rig}: the plan differs from the plan in {path}{version}", err=True)
    for problem in problems:
        echo(f"{each.rig}: {problem}", err=True)
    for change in each.new:
        echo(f"{each.rig}: new since {path}: {change}", err=True)
    for change in each.gone:
        echo(f"{each.rig}: gone since {path}: {change}", err=True)


def _save_command(rigs: str, path: Path) -> str:
    """Return the command that saves a diff to `path`."""
    return " ".join(filter(None, ["herd plan", rigs, "--save", shlex.quote(str(path))]))


CHANGES = 2
"""The exit code if there are changes."""
COLOURS = {"+": "green", "-": "red", "@": "cyan"}


@dataclass(frozen=True)
class PlanOptions:
    """The options of `herd plan`."""

    inventory: Path | None
    rigs: tuple[str, ...]
    as_json: bool = False
    only: tuple[str, ...] = ()
    save: Path | None = None
    metrics: Path | None = None
    tell: bool = False
    verbose: bool = False


def run_plan(run: PlanOptions) -> None:
    """Print the changes, save and deliver them, and end the program with its exit code."""
    _check_scope(run)
    watcher = _watcher_or_exit(run.inventory) if run.tell else None
    try:
        found = _compare_rigs(run)
    except SystemExit as ended:
        sys.exit(FAILED if ended.code == UNUSABLE else ended.code)  # 2 means that there are changes
    if run.as_json:
        ok = not any(each.unreached or each.problems for each in found)
        print_envelope(Envelope(ok, [each.shown() for each in found], {"only": run.only}))
    if run.save:
        write_saved(run.save, SavedDiff.of(found, run.only))
        again = f"herd up --plan {shlex.quote(str(run.save))}"
        echo(f"saved to {run.save}: `{again}` applies it, if nothing changes until then", err=True)
    delivered = not (run.metrics or watcher) or _export_metrics(found, run.metrics, watcher)
    if not delivered or any(each.unreached or each.problems for each in found):
        sys.exit(FAILED)
    sys.exit(CHANGES if any(each.changes for each in found) else 0)


def _check_scope(run: PlanOptions) -> None:
    """Raise UsageError if metrics would cover less than their names promise."""
    if run.only and (run.metrics or run.tell):
        raise click.UsageError("metrics cover the whole rig; leave out --only")
    if run.rigs and run.tell:
        raise click.UsageError("--tell covers the whole fleet; name no rig")


def _compare_rigs(run: PlanOptions) -> list[SavedRig]:
    """Return the diff of each rig; without `--json`, print each as soon as it is known."""
    found: dict[str, SavedRig] = {}
    roles = roles_or_exit(run.inventory)
    with inspecting_or_exit(run.inventory, run.rigs, only=run.only) as (planned, hosts):

        def explain(name: str, each: Preview) -> tuple[Preview, Sequence[Causes], SavedRig]:
            causes = query_causes({name: planned[name]}, {name: each}, roles).get(name, ())
            return each, causes, _with_texts(run, *planned[name], each, causes)

        for name, (each, causes, saved) in as_they_come(hosts.begin(planned, roles, explain)):
            found[name] = saved
            if not run.as_json:
                _print_rig(run, name, each, causes, saved)
    return [found[name] for name in planned]


def _watcher_or_exit(inventory: Path | None) -> MonitoredFleet:
    """Return the rig that runs monitoring. Print an error and end the program if there is none."""
    path = inventory_path(inventory)
    try:
        found = monitored_fleet(path)
        found.require_all(rigs(path).rigs)
    except UserError as error:
        fail(error, FAILED)
    except InventoryError as error:
        print_errors(error.findings)
        sys.exit(FAILED)
    return found


def _export_metrics(shown: Sequence[SavedRig], metrics: Path | None, watcher: MonitoredFleet | None) -> bool:
    """Write and deliver the metrics. Print an error and return False if that fails."""
    text = metrics_text(shown, int(time.time()))
    try:
        if metrics:
            write_output(metrics, text)
            echo(f"written: {metrics}", err=True)
        if watcher:
            deliver_metrics(watcher.rig, text)
            echo(f"sent the metrics to {watcher.rig.rig}, which runs monitoring", err=True)
    except UserError as error:  # also of a host that cannot be reached
        echo(f"error: {error}", err=True)
        return False
    return True


def _with_texts(run: PlanOptions, rig: Rig, plan: Plan, found: Preview, causes: Sequence[Causes]) -> SavedRig:
    """Return the changes of a rig; where they are needed, with unified diffs of files, which are read from the host."""
    if not (run.verbose or run.as_json or run.save):
        return saved_rig(rig, plan, found, causes, {}, found.unreached)
    try:
        return saved_rig(rig, plan, found, causes, query_diffs(Remote(rig.connect), found.stale), found.unreached)
    except RemoteError as error:
        return saved_rig(rig, plan, found, causes, {}, str(error))


def _print_rig(run: PlanOptions, name: str, found: Preview, causes: Sequence[Causes], saved: SavedRig) -> None:
    print_problems(name, found, saved.unreached)
    for note in found.notes:
        echo(f"{name}: {note}", err=True)
    if found.as_planned and not saved.unreached:
        echo(f"{name}: up to date")
    if found.changes:
        print_changes(name, found, causes, verbose=run.verbose)
    for text in saved.diffs.values() if run.verbose else ():
        for line in text.splitlines():
            click.secho(f"    {plain(line)}", fg=COLOURS.get(line[:1]))
    print_left_out(name, found)
