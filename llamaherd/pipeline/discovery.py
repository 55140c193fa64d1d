"""The fleet folder that a command is run in: the current folder, or the nearest folder above it that is one."""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

from llamaherd.inventory.yaml_file import DEFAULTS

INVENTORY = Path("inventory")
"""The inventory if no fleet folder is found and HERD_INVENTORY is not set."""

SUFFIXES = (".yaml", ".yml")
MARKS = (".herd/rig.schema.json", "herd.lock")
"""Files that only a fleet folder has: `herd init` writes the first, and `herd lock` the second."""

_RIG = re.compile(rb"""(?m)^(?:\{[ \t]*)?["']?rig["']?[ \t]*:""")
"""The key of a rig's name, at the top level of a YAML file."""
_RECIPE = re.compile(rb"""(?m)^services[ \t]*:|^models[ \t]*:(?s:.)*^[ \t]+cmd[ \t]*:""")
"""The keys of a Compose file, and of a config.yaml of llama-swap."""
_MOST_BYTES, _MOST_FILES, _MOST_ENTRIES, _MOST_FOLDERS = 64 << 10, 200, 10_000, 100


def find_fleet() -> Path | None:
    """Return the nearest fleet folder, from the current folder upwards: `.` for the current one, else an absolute path.

    A folder above the current one counts if it is yours or root's, and only its owner and group can write to it: its
    roles are programs that `herd` runs.
    """
    folders = searched_folders()
    if folders and is_fleet_folder(folders[0]):
        return Path()
    return next((folder for folder in folders[1:] if is_fleet_folder(folder) and _is_trusted(folder)), None)


def searched_folders() -> tuple[Path, ...]:
    """Return the current folder and those above it: up to the home folder if that is among them, else up to the root.

    Return none if the current folder was removed.
    """
    try:
        here = Path.cwd()
    except OSError:
        return ()
    folders = (here, *here.parents)[:_MOST_FOLDERS]
    try:
        home = Path.home()
    except RuntimeError:  # a user without a home folder
        return folders
    return folders[: folders.index(home) + 1] if home in folders else folders


def is_fleet_folder(folder: Path) -> bool:
    """Return whether a folder has a file that marks a fleet, or a YAML file that declares a rig."""
    try:
        return any((folder / name).is_file() for name in MARKS) or any(map(_declares_rig, _yaml_files(folder)))
    except OSError:
        return False


def _yaml_files(folder: Path) -> Iterator[Path]:
    with os.scandir(folder) as entries:
        names = sorted(each.name for each in islice(entries, _MOST_ENTRIES) if each.name.endswith(SUFFIXES))
    return (folder / name for name in names[:_MOST_FILES] if name != DEFAULTS)


def is_recipe_file(file: Path) -> bool:
    """Return whether a YAML file is that of another program, which `herd import` reads, and not a rig."""
    text = _beginning(file)
    return _RECIPE.search(text) is not None and _RIG.search(text) is None


def _declares_rig(file: Path) -> bool:
    return _RIG.search(_beginning(file)) is not None


def _beginning(file: Path) -> bytes:
    """Return the first bytes of a file; none if it cannot be read."""
    try:
        if not stat.S_ISREG(file.stat().st_mode):
            return b""  # reading a pipe would wait
        with file.open("rb") as stream:
            return stream.read(_MOST_BYTES)
    except OSError:
        return b""


def _is_trusted(folder: Path) -> bool:
    found = folder.stat()
    return found.st_uid in (0, os.geteuid()) and not found.st_mode & stat.S_IWOTH
