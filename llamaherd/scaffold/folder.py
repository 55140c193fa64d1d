"""The folder of a fleet: what `herd init` writes there."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from llamaherd.inventory.inheritance import DEFAULTS
from llamaherd.inventory.json_schema import SCHEMAS, schema_text
from llamaherd.render import render
from llamaherd.scaffold.look import LookError

HERD_FOLDER = ".herd"
"""llamaherd's own folder in a fleet: it is brought up to date, while all other files are their owner's."""
EXAMPLE = "attic"
SUFFIXES = (".yaml", ".yml")


@dataclass(frozen=True)
class FileOutcome:
    """What became of a file: `written`, `kept` because one is there, or `unchanged` because it is the same."""

    file: Path
    what: Literal["written", "kept", "unchanged"]


def example_rig() -> str:
    """An annotated rig, to be changed into one's own."""
    return render("scaffold/example.yaml.j2", rig=EXAMPLE)


def holds_rigs(folder: Path) -> bool:
    """Whether there is a rig already, so that the example is not wanted any more. Raises LookError."""
    try:
        return folder.is_dir() and any(p.suffix in SUFFIXES and p.name != DEFAULTS for p in folder.iterdir())
    except OSError as error:
        raise LookError(f"cannot read {folder}: {error.strerror}", "name a folder that is yours") from None


def fleet_files(rigs: Mapping[str, str]) -> dict[str, str]:
    """The files of a fleet with these rigs, text by name of rig: text by path in the folder."""
    files = {
        name: render(f"scaffold/{name.removeprefix('.')}.j2")
        for name in ("inventory.py", "deploy.py", "defaults.yaml", "README.md", ".gitignore")
    }
    schemas = {f"{HERD_FOLDER}/{kind}.schema.json": schema_text(kind) for kind in SCHEMAS}
    return files | {f"{name}.yaml": text for name, text in rigs.items()} | schemas


def write_files(folder: Path, files: Mapping[str, str]) -> tuple[FileOutcome, ...]:
    """Write what is not there yet. Nothing of the owner's is overwritten. Raises LookError where a file cannot be."""
    return tuple(_write(folder, name, text) for name, text in files.items())


def _write(folder: Path, name: str, text: str) -> FileOutcome:
    file = folder / name
    if folder.exists() and not folder.is_dir():
        raise LookError(f"{folder} is no folder", "name one, or a name that is not taken: it is made")
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        if file.exists() or file.is_symlink():
            if file.read_text(encoding="utf-8", errors="replace") == text:
                return FileOutcome(file, "unchanged")
            if not name.startswith(f"{HERD_FOLDER}/"):
                return FileOutcome(file, "kept")
        file.write_text(text, encoding="utf-8")
    except OSError as error:
        raise LookError(f"cannot write {file}: {error.strerror}", "name a folder that you can write to") from None
    return FileOutcome(file, "written")
