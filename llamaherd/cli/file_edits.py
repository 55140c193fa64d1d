"""Changes to files of the inventory: show the lines, confirm, and write the files with their lock."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from pathlib import Path

import click

from llamaherd.cli.common import FAILED, UNUSABLE, echo, fail, print_findings, report
from llamaherd.diagnostics.findings import UserError
from llamaherd.inventory.file_writer import FileEdit
from llamaherd.lock import Lock, LockError, lock_held, read_lock_file, write_lock
from llamaherd.lock.resolver import lock_fleet, value_places
from llamaherd.pipeline.fleet_files import Survey
from llamaherd.pipeline.load import inventory_folder, lock_path


def print_edit(edit: FileEdit) -> None:
    """Print the file and its changed lines."""
    echo(str(edit.file))
    for line in edit.lines():
        colour = {"+": "green", "-": "red"}.get(line[0])
        click.secho(f"  {line}", fg=colour)


def resolved_lock_or_exit(path: Path, survey: Survey, old: Lock, upgrade: tuple[str, ...] = ()) -> Lock:
    """Return the lock of a fleet. Print findings, and end the program if something cannot be resolved."""
    where, folder = value_places(survey.documents, path), inventory_folder(path).resolve()
    outcome = lock_fleet(survey.fleet, old, where, report, upgrade, folder=folder, whole=path.is_dir(), own=survey.own)
    print_findings(outcome.findings)
    if not outcome.ok:
        echo("nothing was written", err=True)
        sys.exit(FAILED)
    return outcome.lock


def write_edits(path: Path, edits: Iterable[FileEdit], old: Lock, new: Lock) -> bool:
    """Write files of the inventory and their lock. Return whether the lock changed.

    Raise UserError, also if the lock is no longer the old one: versions that another run locked meanwhile would be
    lost.
    """
    target = lock_path(path)
    try:
        with lock_held(target, report):
            if read_lock_file(target) != old:
                raise UserError(f"{target} was changed by another program meanwhile", "run the same command again")
            for edit in edits:
                edit.write()
            return write_lock(target, new)
    except LockError as error:
        raise UserError(error.message, error.help) from None


def confirm_write(yes: bool, question: str) -> None:
    """Prompt for confirmation, unless `yes`. End the program on a no, or if there is no terminal to prompt on."""
    if yes:
        return
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        fail(UserError("this needs a confirmation, and there is no terminal", "add --yes"), UNUSABLE)
    if not click.confirm(question, err=True):
        echo("nothing was written", err=True)
        sys.exit(FAILED)
