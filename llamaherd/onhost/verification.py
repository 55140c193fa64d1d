"""Inspect or verify a host in one run, by the programs and verbs of all roles. Changes nothing."""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

from llamaherd.onhost.document import Secret, decode
from llamaherd.onhost.posix import MOST_OUTPUT
from llamaherd.onhost.releases import find_unsettled
from llamaherd.onhost.system import TIMED_OUT, FailedError, System, UnknownStateError
from llamaherd.onhost.verbs import Verb, find_verb

INSPECTION_SECONDS = 30
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
    ended = system.run(["sh", "-s"], text=script, seconds=INSPECTION_SECONDS)
    log = ended.err[-_LOG:].splitlines()
    if ended.code == TIMED_OUT:
        message = f"the script with which role `{role}` inspects the host has not ended within {INSPECTION_SECONDS} s"
        raise FailedError(message, _FIX, log)
    if not ended.ok:
        raise FailedError(f"the script with which role `{role}` inspects the host ended with {ended.code}", _FIX, log)
    if ended.is_cut:
        message = f"the script with which role `{role}` inspects the host prints more than {MOST_OUTPUT >> 20} MiB"
        raise FailedError(message, "print less in `inspect` of that role")
    return tuple(ended.out.splitlines())


SCRIPT_SECONDS = 86_400
"""The controller's own limit ends a script earlier."""


@dataclass(frozen=True)
class Probe:
    """A program, and the name of its output in the result: the subject, and the item.

    The outputs of probes with the same name follow one another.
    """

    what: str
    of: str
    argv: tuple[str, ...]
    stdin: Secret = field(default_factory=lambda: Secret(""))
    seconds: int = 30
    errors: bool = False
    """Whether its output contains its stderr."""
    code: bool = False
    """Whether its exit code is the first line of its output."""


@dataclass(frozen=True)
class VerifyInput:
    """Programs and verbs to run, one after another."""

    probes: tuple[Probe, ...] = ()
    parts: Mapping[str, object] = field(default_factory=dict)
    """The input of each role's verb, by the verb's name."""
    script: str = ""
    """A shell script of a fleet's own roles: it prints lines."""


@dataclass(frozen=True)
class Text:
    """The output of programs."""

    what: str
    of: str
    text: str


@dataclass(frozen=True)
class VerifyResult:
    """The output of all programs, the results of verbs, and the lines of the script."""

    texts: tuple[Text, ...] = ()
    parts: Mapping[str, object] = field(default_factory=dict)
    """The result of each role's verb, by the verb's name."""
    unknown: Mapping[str, str] = field(default_factory=dict)
    """The part of the host that did not respond to a verb, by the verb's name."""
    lines: tuple[str, ...] = ()


def verify(given: VerifyInput, system: System) -> VerifyResult:
    """Run programs and verbs, one after another: at the same time, they would disturb measurements.

    Raise FailedError and DocumentError if a verb cannot run, and FailedError if the scripts print too much.
    """
    verbs = {name: (find_verb(name), value) for name, value in given.parts.items()}
    texts: dict[tuple[str, str], list[str]] = {}
    for probe in given.probes:
        texts.setdefault((probe.what, probe.of), []).append(run_probe(probe, system))
    parts: dict[str, object] = {}
    unknown: dict[str, str] = {}
    for name, (verb, value) in verbs.items():
        try:
            parts[name] = verb.run(decode(verb.input, value), system)
        except UnknownStateError as error:
            unknown[name] = error.part
    lines: tuple[str, ...] = ()
    if given.script:
        ended = system.run(["sh", "-s"], text=given.script, seconds=SCRIPT_SECONDS)
        if ended.is_cut:
            message = f"the scripts with which roles verify the host print more than {MOST_OUTPUT >> 20} MiB"
            raise FailedError(message, "print less in `verify` of your roles")
        lines = tuple(ended.out.splitlines())
    found = tuple(Text(what, of, "\n".join(filter(None, each))) for (what, of), each in texts.items())
    return VerifyResult(found, parts, unknown, lines)


def run_probe(probe: Probe, system: System) -> str:
    """Return what a program printed, without the last end of a line."""
    ended = system.run(probe.argv, seconds=probe.seconds, text=probe.stdin.text)
    printed = ended.out + ended.err if probe.errors else ended.out
    return f"{ended.code}\n{printed}".rstrip("\n") if probe.code else printed.rstrip("\n")


VERBS = {"inspect": Verb(InspectInput, inspect), "verify": Verb(VerifyInput, verify)}
