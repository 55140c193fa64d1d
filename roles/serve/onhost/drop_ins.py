"""Files of others that change a unit, by what is on disk: systemd reads it before the next start."""

from __future__ import annotations

import re
from collections.abc import Iterator

from llamaherd.onhost.files import as_text, resolve
from llamaherd.onhost.system import System

BEFORE_OURS = (
    *("/etc/systemd/system.control", "/run/systemd/system.control"),
    *("/run/systemd/transient", "/run/systemd/generator.early"),
)
"""Where systemd looks for a unit before it comes to ours (systemd.unit, unit file load path)."""

UNIT_ROOTS = (
    *BEFORE_OURS,
    *("/etc/systemd/system", "/etc/systemd/system.attached", "/run/systemd/system", "/run/systemd/system.attached"),
    *("/run/systemd/generator", "/usr/local/lib/systemd/system", "/usr/lib/systemd/system"),
    "/run/systemd/generator.late",
)
"""All folders that it reads units and drop-ins from."""

DECIDING = (
    "^[ \t]*(Exec[A-Za-z]*|User|Group|DynamicUser|SupplementaryGroups|Environment|EnvironmentFile|PassEnvironment"
    "|UnsetEnvironment|RootDirectory|RootImage)[ \t]*="
)
"""The keys that decide what is run as whom. Others loosen walls, as containers must."""
_DECIDING = re.compile(DECIDING)


def foreign_files(unit: str, system: System) -> tuple[str, ...]:
    """Return the files that change this unit alone: definitions that come before ours, and drop-ins."""
    definitions = (f"{root}/{unit}" for root in BEFORE_OURS)
    found = [path for path in definitions if system.entry(path)]
    return (*found, *(path for root in UNIT_ROOTS for path in _drop_ins(f"{root}/{unit}.d", system)))


def shared_drop_ins(folders: tuple[str, ...], system: System) -> dict[str, str]:
    """Return the drop-ins in folders of these names that decide what is run as whom, and their keys that do."""
    paths = (path for root in UNIT_ROOTS for name in folders for path in _drop_ins(f"{root}/{name}", system))
    keys = {path: _deciding_keys(system.read(path) or "") for path in paths}
    return {path: found for path, found in keys.items() if found}


def _drop_ins(folder: str, system: System) -> Iterator[str]:
    for name in system.names(folder):
        if name.endswith(".conf") and not name.startswith("."):
            found = resolve(f"{folder}/{name}", system)
            if found and found.kind == "file":
                yield as_text(f"{folder}/{name}")


def _deciding_keys(text: str) -> str:
    keys = (line.partition("=")[0].strip(" \t") for line in text.split("\n") if _DECIDING.search(line))
    return " ".join(dict.fromkeys(keys))
