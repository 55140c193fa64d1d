"""Versions of a server that can be restored, and the records of attempts: files below /var/lib/llamaherd.

    kept/SERVICE/last      the version that served last and has proved itself: a link to a folder
    kept/SERVICE/before    the one before it, while `last` is on probation
    kept/SERVICE/next      a new one that waits for others that change together with it
    kept/SERVICE/untried   specs that were started and have not proved themselves yet, a line each
    kept/SERVICE/aside     the mark of a server that was stopped for the one that replaces it
    refused/SERVICE        the attempt that was rolled back last: what, when and why

Shell scripts of earlier versions wrote the same files, and read `how`.
"""

from __future__ import annotations

import json
import os
import shlex
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass

from llamaherd.layout import KEPT, REFUSED
from llamaherd.onhost.system import FailedError, System
from roles.serve.onhost.model import ProofQuestion, Server

LINKS = ("last", "before", "next")
_MOST_WHY = 300
"""Characters of a reason that is kept."""


@dataclass(frozen=True)
class Version:
    """A version that can be restored: its folder, and how it is started."""

    folder: str
    kind: str
    spec: str
    seconds: int
    """How long it may take to load."""
    file: str
    """Where its unit or Compose file belongs."""
    key: str
    """Where its key belongs; empty where it has none."""
    inputs: tuple[str, ...]

    @property
    def name(self) -> str:
        """Return the name of its folder, which links point to."""
        return self.folder.rpartition("/")[2]

    def path(self, name: str) -> str:
        """Return where one of its files is kept."""
        return f"{self.folder}/{name}"


def read_version(system: System, kept: str, link: str = "last") -> Version | None:
    """Return a version that can be restored; None where there is none, or none that is complete."""
    target = system.target(f"{kept}/{link}")
    text = system.read(f"{kept}/{target}/how") if target else None
    if text is None:
        return None
    try:
        how = dict(word.split("=", 1) for word in shlex.split(text))
        inputs = tuple(shlex.split(how["was_inputs"]))
        folder = f"{kept}/{target}"
        seconds = int(how["was_seconds"])
        return Version(folder, how["was_kind"], how["was_spec"], seconds, how["was_file"], how["was_key"], inputs)
    except (ValueError, KeyError):
        return None


def read_question(system: System, version: Version) -> ProofQuestion | None:
    """Return what proves a kept version; None where that is not known."""
    with suppress(ValueError):
        found = json.loads(system.read(version.path("asked")) or "")
        if isinstance(found, dict):
            return found
    return None


def read_key(system: System, question: ProofQuestion, version: Version | None = None) -> str | None:
    """Return the key that a server requires: that of a kept version, as another may be in its place by now."""
    kept = system.read(version.path("key")) if version else None
    if kept is not None:
        return kept.strip()
    path = question.get("key")
    return (system.read(str(path)) or "").strip() if path else None


def keep_version(
    system: System,
    server: Server,
    *,
    kind: str,
    spec: str,
    texts: Mapping[str, str],
    link: str = "last",
) -> None:
    """Keep the version of a server that is in place now. `texts` are further files of it, by name. Raise OSError."""
    folder = f"{server.kept}/{os.urandom(4).hex()}"
    system.folder(str(KEPT), mode=0o700)
    system.folder(server.kept, mode=0o700)
    try:
        system.folder(folder, mode=0o700)
        system.copy(server.file_of(kind), f"{folder}/file")
        if server.key_file and system.entry(server.key_file):
            system.copy(server.key_file, f"{folder}/key")
        for name, text in texts.items():
            system.write(f"{folder}/{name}", text)
        system.write(f"{folder}/how", _how(server, kind, spec))
        system.link(f"{server.kept}/{link}", folder.rpartition("/")[2])
    except OSError:
        with suppress(OSError):
            system.remove(folder)
        raise
    if link == "last":
        remove_unused(system, server.kept)


def _how(server: Server, kind: str, spec: str) -> str:
    words = {
        "was_kind": kind,
        "was_spec": spec,
        "was_seconds": str(server.start_seconds),
        "was_file": server.file_of(kind),
        "was_key": server.key_file,
        "was_inputs": " ".join(map(shlex.quote, server.inputs)),
    }
    # Earlier versions read the spec up to a blank.
    *first, inputs = (f"{name}={shlex.quote(text)}" for name, text in words.items())
    return f"{' '.join(first)}\n{inputs}\n"


def remove_unused(system: System, kept: str) -> None:
    """Remove the versions that no link points to, and the marks: what is kept last has proved itself."""
    linked = {system.target(f"{kept}/{link}") for link in LINKS}
    for name in system.names(kept):
        entry = system.entry(f"{kept}/{name}")
        if entry and entry.kind != "link" and name not in linked:
            with suppress(OSError):
                system.remove(f"{kept}/{name}")


def restore_files(system: System, version: Version, user: str) -> None:
    """Put the file and the key of a kept version in their places. Raise OSError.

    The key of a unit is for `user`: that account may have been made anew since, with another number.
    """
    if not in_place(system, version) and system.entry(version.path("file")):
        system.copy(version.path("file"), version.file)
    key = system.read(version.path("key")) if version.key else None
    if key is not None and version.kind == "unit":
        system.write(version.key, key, mode=0o400, owner=user)
    elif key is not None:
        system.copy(version.path("key"), version.key)


def in_place(system: System, version: Version) -> bool:
    """Return whether the files of a kept version are the ones in place."""
    pairs = [("file", version.file), *([("key", version.key)] if version.key else [])]
    return all(
        system.read(version.path(name)) in (None, system.read(place))
        for name, place in pairs
        if name == "file" or system.entry(version.path(name))
    )


def untried_specs(system: System, kept: str) -> set[str]:
    """Return the specs that were started and have not proved themselves."""
    return set((system.read(f"{kept}/untried") or "").split())


def mark_untried(system: System, server: Server, spec: str) -> None:
    """Record that a spec is about to be started: a killed run or host leaves it unproved. Raise FailedError."""
    known = untried_specs(system, server.kept)
    path = f"{server.kept}/untried"
    if spec in known:
        return
    try:
        system.folder(str(KEPT), mode=0o700)
        system.folder(server.kept, mode=0o700)
        system.write(path, "".join(f"{each}\n" for each in sorted(known | {spec})))
    except OSError as error:
        raise FailedError(
            f"cannot write {path} ({error.strerror}), so {server.service} was left as it was",
            f"`df -h {server.kept}` shows whether there is room",
        ) from error


def clear_untried(system: System, kept: str) -> None:
    """Record that what runs has proved itself."""
    system.remove(f"{kept}/untried")


def note_refused(system: System, server: Server, why: str) -> None:
    """Record an attempt that was rolled back: the next run reports it, and does not try it again by itself."""
    with suppress(OSError):
        write_refused(system, server.refused, server.tried, why)


def write_refused(system: System, path: str, tried: str, why: str) -> None:
    """Write the record of an attempt. Raise OSError."""
    when = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(system.clock()))
    system.folder(str(REFUSED), mode=0o700)
    system.write(path, f"{tried}\t{when}\t{' '.join(why.split())[:_MOST_WHY]}\n")
