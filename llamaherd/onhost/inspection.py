"""Inspect a host in one run: files, and then the parts of all roles, side by side. Changes nothing."""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

from llamaherd.onhost.document import decode
from llamaherd.onhost.posix import MOST_OUTPUT
from llamaherd.onhost.releases import find_unsettled
from llamaherd.onhost.system import TIMED_OUT, FailedError, System, UnknownStateError
from llamaherd.onhost.verbs import Verb, find_verb

SCRIPT_SECONDS = 30
_AT_ONCE = 16
"""Parts that wait for other programs at the same time."""
_LOG = 2000
_FIX = "correct `inspect` of that role, and run the command again"


@dataclass(frozen=True)
class InspectInput:
    """The files and parts to inspect."""

    files: tuple[str, ...] = ()
    parts: Mapping[str, object] = field(default_factory=dict)
    """The input of each role's verb, by the verb's name."""
    scripts: Mapping[str, str] = field(default_factory=dict)
    """Shell scripts of a fleet's roles, by the role's name: each prints lines."""


@dataclass(frozen=True)
class FileFound:
    """A file: permissions, owner by number and by name, when it was written (seconds since 1970), and its sha256."""

    mode: int
    number: int
    owner: str
    written: float
    sha256: str


@dataclass(frozen=True)
class Inspected:
    """The state of a host. Absent files have no entry."""

    files: Mapping[str, FileFound] = field(default_factory=dict)
    parts: Mapping[str, object] = field(default_factory=dict)
    """The result of each role's verb, by the verb's name."""
    lines: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """The output of each role's shell script, by the role's name."""
    unknown: tuple[str, ...] = ()
    """Parts of the host that did not respond; the results of roles for them are missing."""
    unsettled: str = ""
    """Why the newest release has not the state of the host; empty if it has, or if there is none."""


def inspect(given: InspectInput, system: System) -> Inspected:
    """Inspect a host. Each role's part runs in a thread, as most of them wait for other programs.

    Raise FailedError and DocumentError where a part cannot be inspected.
    """
    verbs = {name: (find_verb(name), value) for name, value in given.parts.items()}
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        scripts = {role: pool.submit(_lines, role, script, system) for role, script in given.scripts.items()}
        running = {
            name: pool.submit(verb.run, decode(verb.input, value), system) for name, (verb, value) in verbs.items()
        }
        files = {path: found for path in given.files if (found := find_file(path, system))}
        parts: dict[str, object] = {}
        unknown = []
        for name, each in running.items():
            try:
                parts[name] = each.result()
            except UnknownStateError as error:
                unknown.append(error.part)
        lines = {role: each.result() for role, each in scripts.items()}
        return Inspected(files, parts, lines, tuple(sorted({*unknown})), find_unsettled(system))


def find_file(path: str, system: System) -> FileFound | None:
    """Return a file; None where there is none. A link has its own owner, and the hash of the file behind it."""
    found = system.entry(path)
    if found is None or found.kind not in ("file", "link"):
        return None
    sha256 = system.digest([path])
    return FileFound(found.mode, found.number, found.owner, found.written, sha256)


def _lines(role: str, script: str, system: System) -> tuple[str, ...]:
    """Return what the script of a role prints. Raise FailedError where it fails, or prints more than is kept."""
    ended = system.run(["sh", "-s"], text=script, seconds=SCRIPT_SECONDS)
    log = ended.err[-_LOG:].splitlines()
    if ended.code == TIMED_OUT:
        message = f"the script with which role `{role}` inspects the host has not ended within {SCRIPT_SECONDS} s"
        raise FailedError(message, _FIX, log)
    if not ended.ok:
        raise FailedError(f"the script with which role `{role}` inspects the host ended with {ended.code}", _FIX, log)
    if ended.is_cut:
        message = f"the script with which role `{role}` inspects the host prints more than {MOST_OUTPUT >> 20} MiB"
        raise FailedError(message, "print less in `inspect` of that role")
    return tuple(ended.out.splitlines())


VERBS = {"inspect": Verb(InspectInput, inspect)}
