"""`herd check`: report mistakes in an inventory or in a recipe, and fix those whose fix is certain."""

from __future__ import annotations

import shlex
import shutil
import stat
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import click

from llamaherd.cli.common import (
    FAILED,
    UNUSABLE,
    counted,
    declared_rigs,
    echo,
    fail,
    inventory_option,
    json_option,
    print_findings,
)
from llamaherd.cli.envelope import Envelope, print_envelope
from llamaherd.diagnostics.excerpt import MOST_COLUMNS, counted_severities, excerpt
from llamaherd.diagnostics.findings import Finding, UserError
from llamaherd.inventory.exact_edits import with_fixes
from llamaherd.inventory.file_writer import report_write_errors, write_atomically
from llamaherd.inventory.yaml_file import UNREADABLE
from llamaherd.pipeline.discovery import SUFFIXES
from llamaherd.pipeline.load import examined, inventory_folder, inventory_path
from llamaherd.pipeline.rules import NO_INVENTORY
from llamaherd.recipes import further_checks, is_recipe, understand
from llamaherd.recipes.suggestions import inventory_fragment
from llamaherd.text.textfile import lines_of

UNREAD = frozenset({UNREADABLE.code, NO_INVENTORY.code})
"""Codes of files that cannot be read at all."""
_MOST_ROUNDS = 20
"""How often fixes are applied: a file that becomes readable may have further mistakes."""


@dataclass
class Checked:
    """The findings of paths, their recipes as parts of a rig, and the numbers of rigs and recipes."""

    findings: list[Finding] = field(default_factory=list)
    suggested: list[tuple[Path, str]] = field(default_factory=list)
    others: list[tuple[str, ...]] = field(default_factory=list)
    """Commands of other programs that check more of a recipe."""
    rigs: int = 0
    recipes: int = 0

    @property
    def ok(self) -> bool:
        """Return whether there is no error."""
        return not any(finding.severity == "error" for finding in self.findings)

    @property
    def exit_code(self) -> int:
        """Return the exit code: a file that cannot be read is graver than other errors."""
        if self.ok:
            return 0
        return UNUSABLE if any(finding.code in UNREAD for finding in self.findings) else FAILED

    @property
    def summary(self) -> str:
        """Return the last line: what was found, in how many files; for no finding, what was read."""
        if not self.findings:
            parts = [counted(self.rigs, "rig")] if self.rigs or not self.recipes else []
            return ", ".join([*parts, *([counted(self.recipes, "recipe")] if self.recipes else []), "0 findings"])
        files = len({finding.place.file for finding in self.findings})
        fixable = sum(bool(finding.edits) for finding in self.findings)
        can = f"; {fixable:,} can be fixed by --fix" if fixable else ""
        return f"{counted_severities(self.findings)} in {counted(files, 'file')}{can}"


@click.command()
@click.argument("paths", metavar="[PATH]...", nargs=-1, type=click.Path(path_type=Path))
@click.option("--fix", is_flag=True, help="Apply the fixes that are certain, and check again.")
@inventory_option
@json_option
@click.pass_obj
def check(inventory: Path | None, paths: tuple[Path, ...], fix: bool, as_json: bool) -> None:
    """Report mistakes in an inventory or in a recipe. Connects to no host.

    A PATH is a rig's YAML file, a folder of them, the name of a rig, or a recipe: a script that starts a server, a
    unit, a Quadlet, a Dockerfile, a Compose file, an Ansible play, a preset file, a config.yaml of llama-swap, a
    .wslconfig.

    --fix corrects what has one certain fix, such as a key with one wrong letter or a missing space after a colon. It
    keeps comments and everything else, and prints each changed line.

    Exit codes: 0 no errors, perhaps warnings; 1 errors; 2 a file cannot be read.

    \b
    Examples:
      herd check                      the inventory
      herd check --fix                the same, and correct what is certain
      herd check duo                  one rig, by its name
      herd check ~/fleet/duo.yaml     one rig, by its file
      herd check start.sh             a recipe: mistakes, and the same as a rig
    """
    given = [_existing(path, inventory_path(inventory)) for path in paths] or [inventory_path(inventory)]
    checked = _check_paths(given)
    fixed: list[Finding] = []
    for _ in range(_MOST_ROUNDS if fix else 0):
        if not (done := _apply_fixes(checked.findings, quiet=as_json)):
            break
        fixed += done
        checked = _check_paths(given)
    if as_json:
        _print_json(checked, fixed if fix else None)
    else:
        _print_text(checked, fixed if fix else None)
    sys.exit(checked.exit_code)


def _print_json(checked: Checked, fixed: Sequence[Finding] | None) -> None:
    fixable = sum(bool(finding.edits) for finding in checked.findings)
    done = None if fixed is None else [finding.as_json() for finding in fixed]
    data = {"total": len(checked.findings), "fixable": fixable, "fixed": done}
    print_envelope(Envelope(checked.ok, data=data, findings=checked.findings))


def _print_text(checked: Checked, fixed: Sequence[Finding] | None) -> None:
    print_findings(checked.findings, err=False, fixing=True)
    for path, text in checked.suggested:
        echo(f"\nThe same in an inventory, which `herd import {shlex.quote(str(path))}` writes:\n\n{text}")
    others = [shlex.join(command) for command in checked.others if shutil.which(command[0])]
    for command in others:
        echo(f"\nThe rest of the file is checked by `{command}`.")
    if others or (checked.findings and not checked.suggested):
        echo("")
    before = f"{len(fixed):,} fixed, " if fixed else "nothing to fix, " if fixed is not None else ""
    echo(f"{before}{checked.summary}")


def _apply_fixes(findings: Iterable[Finding], *, quiet: bool) -> list[Finding]:
    """Write the fixes of findings into their files, print each, and return those findings. Raise UserError."""
    by_file: dict[Path, list[Finding]] = {}
    for finding in findings:
        if finding.edits:
            by_file.setdefault(finding.edits[0].place.file, []).append(finding)
    done: list[Finding] = []
    for file, found in by_file.items():
        target = file.resolve()
        with report_write_errors():
            before = target.read_bytes().decode()
            edited = with_fixes(before, found)
            if edited.done:
                write_atomically(target, edited.text, stat.S_IMODE(target.stat().st_mode))
        if not quiet:
            _print_fixed(edited.done, before, edited.text)
        done += edited.done
    return done


def _existing(path: Path, inventory: Path) -> Path:
    """Return a path; for a rig's name, the file of that name in the inventory."""
    named = [inventory_folder(inventory) / f"{path}{suffix}" for suffix in SUFFIXES]
    if not path.exists() and path.name == str(path):
        return next((file for file in named if file.is_file()), path)
    rig, _, instance = str(path).partition("/")
    if not path.exists() and instance and not path.suffix and rig in declared_rigs(inventory):
        what = f"`{path}` is no file: rigs are checked with all their instances"
        fail(UserError(what, f"write `herd check {rig}`"), UNUSABLE)
    return path


_MOST_LINES = 3
"""The most changed lines that are printed of one fix."""


def _print_fixed(done: Iterable[Finding], before: str, after: str) -> None:
    """Print what was fixed: each finding, and its first lines before and after the fix."""
    old, new = (lines_of(text) for text in (before, after))
    for finding in done:
        echo(f"{finding.place}: fixed {finding.code}: {finding.message}")
        places = list(dict.fromkeys(edit.place.line for edit in finding.edits))
        for number in places[:_MOST_LINES]:
            for sign, lines in (("-", old), ("+", new)):
                if shown := excerpt(lines, number, 1, MOST_COLUMNS):
                    echo(f"  {number} {sign} {shown.text}")
        if (left := len(places) - _MOST_LINES) > 0:
            echo(f"  and {counted(left, 'more line')}")
        echo("")


def _check_paths(paths: Iterable[Path]) -> Checked:
    """Return the findings of paths."""
    checked = Checked()
    for path in paths:
        if is_recipe(path):
            recipe = understand(path)
            checked.findings += recipe.findings
            fragment = inventory_fragment(path, recipe.servers)
            checked.suggested += [(path, fragment)] if fragment else []
            checked.others += further_checks(path)
            checked.recipes += 1
        else:
            fleet, found = examined(path)
            checked.findings += found
            checked.rigs += len(fleet.rigs)
    return checked
