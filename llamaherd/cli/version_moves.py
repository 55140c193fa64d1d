"""The run of `herd upgrade`: move versions in the inventory and in the lock, measure gated servers, and apply."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from llamaherd.cli.apply import UpOptions, run_up
from llamaherd.cli.common import FAILED, UNUSABLE, echo, exit_on_error, fail, print_findings, read_or_exit
from llamaherd.cli.file_edits import confirm_write, print_edit, resolved_lock_or_exit, write_edits
from llamaherd.cli.lock import try_lock
from llamaherd.cli.newest import NewestVersions, newest_of_fleet
from llamaherd.diagnostics.findings import Edit, UserError, nearest
from llamaherd.inventory.exact_edits import value_edit, with_edits
from llamaherd.inventory.file_writer import FileEdit, text_of
from llamaherd.inventory.schema import Rig
from llamaherd.inventory.yaml_file import Document
from llamaherd.lock import Lock
from llamaherd.lock.git_refs import moved_version
from llamaherd.lock.newest import Version
from llamaherd.pipeline.fleet_files import Survey, survey_fleet, survey_fleet_file
from llamaherd.pipeline.load import inventory_folder


@dataclass(frozen=True)
class UpgradeOptions:
    """The options of `herd upgrade`."""

    inventory: Path | None
    names: tuple[str, ...]
    yes: bool
    dry_run: bool
    no_try: bool
    no_apply: bool
    lock_wait: int


def run_upgrade(run: UpgradeOptions) -> None:
    """Move versions and apply them. End the program if a step fails, or the user does not confirm."""
    fleet = read_or_exit(lambda: newest_of_fleet(run.inventory, ()))
    moves = _chosen(run, fleet)
    if not moves:
        return
    with exit_on_error(FAILED):
        edits = file_edits(fleet, moves)
        _print_moves(moves, edits)
        if run.dry_run:
            return
        texts = {edit.file: edit.new for edit in edits}
        survey, lock = _checked(fleet, moves, texts)
        confirm_write(run.yes, "Upgrade?")
        rigs = tuple(name for name, versions in fleet.by_rig.items() if any(each in moves for each in versions))
        for name in () if run.no_try else rigs:
            if _is_gated(survey.fleet.rigs[name], [each for each in moves if each in fleet.by_rig[name]]):
                try_lock(run.inventory, fleet.path, lock, name, yes=True, lock_wait=run.lock_wait, texts=texts)
        write_edits(fleet.path, edits, fleet.lock, lock)
    echo(f"{', '.join([*(str(edit.file) for edit in edits), 'herd.lock'])}: written", err=True)
    if not run.no_apply and rigs:
        run_up(UpOptions(run.inventory, rigs, yes=run.yes, locked=True, lock_wait=run.lock_wait))


def _chosen(run: UpgradeOptions, fleet: NewestVersions) -> tuple[Version, ...]:
    """Return the versions to move. Print why others stay, and end the program for an unknown name."""
    known = {name for each in fleet.versions for name in each.names}
    for name in run.names:
        if name not in known:
            message = f"`{name[:80]}` is no locked engine, image or model, or it never moves"
            fail(UserError(message, nearest(name, known)), UNUSABLE)
    named = [each for each in fleet.versions if not run.names or {*each.names} & {*run.names}]
    for each in named:
        if each.error:
            echo(f"{each.name}: {each.error}", err=True)
        elif run.names and not each.newer:
            echo(f"{each.name}: {each.locked} is the newest version")
    moves = tuple(each for each in named if each.newer)
    if run.names and any(each.error for each in named):
        sys.exit(FAILED)
    if not moves and not run.names:
        echo("everything is at its newest version")
    return moves


def file_edits(fleet: NewestVersions, moves: Sequence[Version]) -> tuple[FileEdit, ...]:
    """Return the changes of files in which refs and tags move. Raise UserError."""
    edits = {edit.place: edit for move in moves if move.move_to for edit in _edits(fleet, move, move.move_to)}
    by_file: dict[Path, list[Edit]] = {}
    for place in sorted(edits):
        by_file.setdefault(place.file, []).append(edits[place])
    return tuple(FileEdit(file, old := text_of(file), with_edits(old, each)) for file, each in by_file.items())


def _edits(fleet: NewestVersions, move: Version, new: str) -> Iterator[Edit]:
    """Yield the edits of a version's move: of a ref or an image, and of `flags` of the same version."""
    for name, rig in fleet.survey.fleet.rigs.items():
        document = fleet.survey.documents[name]
        for engine_name, engine in rig.engines.items():
            above, source = ("engines", engine_name), engine.source
            if source and source.ref and (source.git, source.ref) == move.key:
                old, key = source.ref, engine.version_key
            elif engine.image and engine.image == move.key:
                old, key = engine.image, ("image",)
            else:
                continue
            yield _edit(document, (*above, *key), new)
            if engine.flags and (flags := moved_version(engine.flags, _tag(old), _tag(new))):
                yield _edit(document, (*above, "flags"), flags)
    chat = fleet.survey.own.gateway.chat if fleet.survey.own and fleet.survey.own.gateway else None
    of_fleet = survey_fleet_file(inventory_folder(fleet.path)).document
    if chat and chat.image == move.key and of_fleet:
        yield _edit(of_fleet, ("gateway", "chat", "image"), new)


def _edit(document: Document, path: tuple[str, ...], new: str) -> Edit:
    """Return the edit that writes a text, in the quotes of the old one. Raise UserError if it changes other data."""
    for edit in value_edit(document, path, new):
        quote = edit.old[0] if edit.old[0] in "'\"" else ""
        return replace(edit, new=f"{quote}{new}{quote}")
    place = document.value(path)
    raise UserError(f"{place} is written in a way that cannot be changed by itself", f"write `{new}` there")


def _tag(name: str) -> str:
    """Return the tag of an image; a ref is one itself."""
    return name.rpartition(":")[2]


def _print_moves(moves: Sequence[Version], edits: Sequence[FileEdit]) -> None:
    width = max(len(each.name) for each in moves)
    for each in moves:
        echo(f"{each.name.ljust(width)}  {each.locked} → {each.newest}")
    for edit in edits:
        print_edit(edit)


def _checked(fleet: NewestVersions, moves: Sequence[Version], texts: dict[Path, str]) -> tuple[Survey, Lock]:
    """Return the inventory and the lock with the new versions. End the program if one of them has an error."""
    survey = survey_fleet(fleet.path, fleet.lock, texts=texts)
    # Refs and tags that moved are new names; all else is resolved again under its name.
    again = tuple(name for each in moves if each.move_to is None for name in each.names)
    lock = resolved_lock_or_exit(fleet.path, survey, fleet.lock, again) if survey.ok else fleet.lock
    survey = survey_fleet(fleet.path, lock, texts=texts)
    if not survey.ok:
        print_findings([each for each in survey.findings if each.severity == "error"], texts=texts)
        echo("the inventory has errors with the new versions; nothing was written", err=True)
        sys.exit(FAILED)
    return survey, lock


def _is_gated(rig: Rig, moves: Sequence[Version]) -> bool:
    """Return whether a server with a gate gets one of the new versions."""
    engines = {name for each in moves if each.kind != "model" for name in each.names}
    models = {name for each in moves if each.kind == "model" for name in each.names}
    return any(
        each.gate is not None and (each.engine in engines or each.model in models) for each in rig.instances.values()
    )
