"""`herd lock`: what names that move stand for now, written down."""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import click

from llamaherd.cli.common import (
    FAILED,
    complete_rigs,
    counted,
    inventory_option,
    json_option,
    lock_wait_option,
    say,
    show,
    usable_or_exit,
)
from llamaherd.diagnostics.findings import Finding, to_print

if TYPE_CHECKING:
    from llamaherd.lock import Lock
    from llamaherd.lock.resolve.resolve import LockOutcome


@dataclass(frozen=True)
class WrittenLock:
    """A lock that is in its file now, and whether that changed the file."""

    lock: Lock
    changed: bool

    def __str__(self) -> str:
        new = self.lock
        parts = {"engine": new.engines, "image": new.images, "model": new.models, "file": new.files}
        holds = ", ".join(counted(len(part), what) for what, part in parts.items() if part) or "nothing that moves"
        return f"{'written' if self.changed else 'unchanged'}, {holds}"


def _locked(path: Path, target: Path, upgrade: tuple[str, ...], findings: list[Finding]) -> WrittenLock | None:
    """Read, resolve and write, while no other run does; adds to `findings`. None if an error is among them.

    Raises LockError.
    """
    from llamaherd.lock import lock_held, write_lock

    with lock_held(target, _tell):
        outcome = _resolved(path, upgrade)
        findings += outcome.findings
        return WrittenLock(outcome.lock, write_lock(target, outcome.lock)) if outcome.ok else None


def _resolved(path: Path, upgrade: tuple[str, ...]) -> LockOutcome:
    """The lock that an inventory wants. Ends the program where that cannot be read."""
    from llamaherd.lock.resolve.resolve import lock_fleet, value_places
    from llamaherd.pipeline.load import declared, read_lock

    survey = usable_or_exit(lambda: declared(path))
    old = usable_or_exit(lambda: read_lock(path))
    where = value_places(survey.documents, path)
    return usable_or_exit(
        lambda: lock_fleet(survey.fleet, old, where, _tell, upgrade, whole=path.is_dir(), own=survey.own)
    )


def _newer(path: Path, upgrade: tuple[str, ...]) -> Lock:
    """The lock as it would be. Ends the program where something cannot be resolved."""
    outcome = _resolved(path, upgrade)
    show(outcome.findings)
    if not outcome.ok:
        sys.exit(FAILED)
    return outcome.lock


def _tell(text: str) -> None:
    say(text, err=True)


@click.command()
@click.option(
    "--upgrade",
    metavar="NAME",
    multiple=True,
    help="Resolve this engine, image or model anew, by its name in the inventory; `all` for everything. Repeatable.",
)
@click.option(
    "--try",
    "rig",
    metavar="RIG",
    shell_complete=complete_rigs,
    help="Write nothing: measure on this rig what --upgrade would make of its servers.",
)
@click.option("-y", "--yes", is_flag=True, help="With --try: do not ask before servers are stopped for it.")
@lock_wait_option
@inventory_option
@json_option
@click.pass_obj
def lock(
    inventory: Path | None,
    upgrade: tuple[str, ...],
    rig: str | None,
    yes: bool,
    lock_wait: int,
    as_json: bool,
) -> None:
    """Resolve what moves to what it stands for now.

    It is written to herd.lock, to be reviewed and committed. Engines' tags and branches become commits, images' tags
    digests, models' revisions commits with every file's size and sha256, and with what sizing needs of their headers.
    What is locked stays as it is; what no rig declares any more goes, when the inventory is a folder. The hub is the
    one in HF_ENDPOINT. Exit codes: 0 the lock is as the inventory wants it, 1 something could not be resolved and
    nothing was written, 2 the inventory cannot be used.

    With --try, what is newer is built and fetched on a rig, and each of its units is measured by it beside what serves,
    in blocks, as by a `gate`. What serves is stopped meanwhile and comes back; it is served as before afterwards. The
    exit code is 1 where one costs more than its gate allows (3 % of writing, 5 % of reading, where it has none).

    \b
    Examples:
      herd lock                             what is new
      herd lock --upgrade main              and what the engine `main` stands for by now
      herd lock --upgrade main --try duo    how fast that is on `duo`, before it is locked
    """
    from llamaherd.lock import LockError
    from llamaherd.pipeline.load import inventory_path, lock_path, rigs

    if rig is not None:
        from llamaherd.cli.lock_try import refuse_try, try_lock

        refuse_try(upgrade, as_json=as_json)
        path = inventory_path(inventory)
        usable_or_exit(lambda: rigs(path, (rig,)))
        newer = _newer(path, upgrade)
        try_lock(inventory, path, newer, rig, yes=yes, lock_wait=lock_wait)
        return
    path = inventory_path(inventory)
    target = lock_path(path)
    findings: list[Finding] = []
    written: WrittenLock | None = None
    try:
        written = _locked(path, target, upgrade, findings)
    except LockError as error:
        findings.append(error.finding)
    ok, changed = written is not None, written is not None and written.changed
    if as_json:
        told = {"findings": [finding.as_json() for finding in to_print(findings)], "total": len(findings)}
        click.echo(json.dumps({"ok": ok, "changed": changed, "lock": str(target), **told}))
    else:
        show(findings)
        say(f"{target}: {written}" if written else f"{target}: not written")
    if not ok:
        sys.exit(FAILED)
