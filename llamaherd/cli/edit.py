"""`herd edit`: open the file of a rig in an editor, and check it before it is saved."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import click

from llamaherd.cli.common import (
    FAILED,
    UNUSABLE,
    complete_rigs,
    echo,
    exit_on_error,
    fail,
    hint_after_interrupt,
    inventory_option,
    print_findings,
    print_warnings_line,
    read_or_exit,
)
from llamaherd.diagnostics.findings import Finding, UserError, nearest
from llamaherd.inventory.file_writer import FileEdit, text_of

if TYPE_CHECKING:
    from llamaherd.lock import Lock

EDITORS = ("nano", "vim", "vi")
"""The editors to try if neither VISUAL nor EDITOR is set, the first that is installed."""


@click.command()
@click.argument("rig", required=False, metavar="[RIG|FILE]", shell_complete=complete_rigs)
@inventory_option
@click.pass_obj
def edit(inventory: Path | None, rig: str | None) -> None:
    """Open the file of a rig in an editor, and check it.

    The editor is VISUAL, else EDITOR, else nano, vim or vi. It opens a copy. If the copy has errors, `herd edit` prints
    them and offers to edit again or to discard the changes. The file is replaced in one step and keeps its mode. FILE
    is a file of the inventory folder, such as fleet.yaml.

    Exit codes: 0 saved, or unchanged; 1 discarded, or the editor failed; 2 wrong usage, or no such rig.

    \b
    Examples:
      herd edit                the only rig
      herd edit duo
      herd edit fleet.yaml
    """
    from llamaherd.pipeline.load import inventory_path, read_lock  # late: the help needs none of it

    path = inventory_path(inventory)
    with exit_on_error(UNUSABLE):
        file = read_or_exit(lambda: _file_of(path, rig))
        lock = read_or_exit(lambda: read_lock(path))
        draft = _new_draft(path, file)
    try:
        _edit_until_valid(draft, lock)
    except UserError as error:
        echo(f"your changes are in {draft.copy}", err=True)
        fail(error, FAILED)
    except (KeyboardInterrupt, click.Abort):
        hint_after_interrupt(f"your changes are in {draft.copy}")
        raise


@dataclass(frozen=True)
class _Draft:
    """A file of an inventory with its text, a copy that no other user can read, and the editor for it."""

    inventory: Path
    file: Path
    old: str
    copy: Path
    editor: list[str]

    def edited(self) -> str:
        """Run the editor, and return the text. Raise UserError."""
        try:
            code = subprocess.run([*self.editor, str(self.copy)], check=False).returncode
        except OSError as error:
            help_ = "set EDITOR to an editor that is installed"
            raise UserError(f"cannot run `{self.editor[0]}`: {error.strerror}", help_) from None
        if code:
            raise UserError(f"`{self.editor[0]}` ended with exit code {code}; nothing was saved", "run it again")
        return text_of(self.copy)

    def remove(self) -> None:
        """Remove the copy, and what the editor left next to it."""
        shutil.rmtree(self.copy.parent, ignore_errors=True)


def _new_draft(inventory: Path, file: Path) -> _Draft:
    """Return a draft of a file. Raise UserError if it cannot be read, or there is no editor."""
    old, editor = text_of(file), _editor()
    copy = Path(tempfile.mkdtemp(prefix="herd-edit-")) / file.name
    copy.write_text(old, encoding="utf-8")
    return _Draft(inventory, file, old, copy, editor)


def _edit_until_valid(draft: _Draft, lock: Lock) -> None:
    """Let the user edit until the inventory has no errors, and save. End the program if the changes are discarded."""
    while True:
        text = draft.edited()
        if text == draft.old:
            draft.remove()
            echo(f"{draft.file}: unchanged")
            return
        findings = _findings(draft, text, lock)
        errors = [each for each in findings if each.severity == "error"]
        if not errors:
            FileEdit(draft.file, draft.old, text).write()
            draft.remove()
            print_warnings_line(findings)
            echo(f"{draft.file}: saved; `herd plan` shows what `herd up` would change")
            return
        print_findings(errors, texts={draft.file: text})
        _edit_again_or_exit(draft)


def _findings(draft: _Draft, text: str, lock: Lock) -> list[Finding]:
    """Return the findings of an edited file, and those that it causes in other files."""
    from llamaherd.pipeline.fleet_files import survey_fleet

    before = {(each.code, each.message) for each in survey_fleet(draft.inventory, lock).findings}
    found = survey_fleet(draft.inventory, lock, texts={draft.file: text}).findings
    return [each for each in found if each.place.file == draft.file or (each.code, each.message) not in before]


def _edit_again_or_exit(draft: _Draft) -> None:
    """Prompt what to do with a text that has errors. End the program unless the user edits again."""
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        echo(f"{draft.file} was not saved: the inventory would have errors; your changes are in {draft.copy}", err=True)
        sys.exit(FAILED)
    choice = click.Choice(["edit", "discard"])
    if click.prompt("Edit again, or discard the changes?", type=choice, default="edit", err=True) == "edit":
        return
    draft.remove()
    echo(f"{draft.file}: unchanged", err=True)
    sys.exit(FAILED)


def _editor() -> list[str]:
    """Return the command of the editor. Raise UserError."""
    help_ = "set EDITOR, such as `EDITOR=nano`"
    for name in ("VISUAL", "EDITOR"):
        if value := os.environ.get(name, "").strip():
            try:
                return shlex.split(value)
            except ValueError:
                raise UserError(f"{name} has a quote that is not closed: `{value[:80]}`", help_) from None
    found = next((each for each in EDITORS if shutil.which(each)), None)
    if found is None:
        raise UserError(f"there is no editor: neither {', '.join(EDITORS[:-1])} nor {EDITORS[-1]} is installed", help_)
    return [found]


def _file_of(path: Path, name: str | None) -> Path:
    """Return the file of a rig, also if it has mistakes, or another file of the folder. Raise UserError."""
    from llamaherd.inventory.yaml_file import DEFAULTS
    from llamaherd.pipeline.discovery import SUFFIXES
    from llamaherd.pipeline.fleet_files import FLEET, read_rigs

    if path.is_file() and name is None:
        return path
    rigs = {name: document.file for name, document in read_rigs(path).documents.items()}
    folder = path if path.is_dir() else path.parent
    files = sorted(each for each in folder.iterdir() if each.suffix in SUFFIXES and each.is_file())
    named = {each.name: each for each in files}
    stems = {each.stem: each for each in files if each.name not in (FLEET, DEFAULTS)}
    known = {**named, **stems, **rigs}
    if name is None and len(stems) == 1:
        return next(iter(stems.values()))
    if name is None:
        raise UserError("the inventory has several rigs", f"name one of {', '.join(sorted({*stems, *rigs}))}")
    if name not in known:
        raise UserError(f"there is no rig or file `{name[:80]}` in {folder}", nearest(name, known))
    return known[name]
