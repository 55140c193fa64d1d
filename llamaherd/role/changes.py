"""`Change`: what is changed on a host, why, and how; its guard and its gate, which another package measures."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Literal

from llamaherd.host.state import HostState
from llamaherd.host.time_limits import STEP_SECONDS
from llamaherd.inventory.schema import Connect
from llamaherd.layout import INCOMING, UNITS
from llamaherd.onhost.document import Secret
from llamaherd.onhost.files import PutFilesInput, WrittenFile
from llamaherd.plan import InstancePlan, Plan, TextFile, digest
from llamaherd.role.values import ValueChange
from llamaherd.text.numbers import show_seconds
from llamaherd.text.terminal import one_line

Action = Literal[
    "create", "update", "install", "build", "fetch", "send", "start", "restart", "stop", "remove", "load", "reboot"
]
"""The kind of a change. `update` writes files that differ; `start` starts what is stopped; `restart` stops it first."""

Report = Callable[[str], None]
"""Shows a line to the user."""

LOGIN_SECONDS = 120
"""Seconds after a change within which a new login must come through."""

UNDO_SECONDS = 300
"""Seconds that an undo may last: Docker is restarted."""


@dataclass(frozen=True)
class SendFile:
    """A file of the controller that must be on the host under incoming/, named after its hash."""

    local: Path
    sha256: str
    settled: tuple[PurePosixPath, ...] = ()
    """Where it ends up: another run may have brought it there meanwhile."""

    @property
    def remote(self) -> str:
        """Return the path where the file arrives."""
        return str(INCOMING / self.sha256)


@dataclass(frozen=True)
class RunScript:
    """One round trip: a shell script, which travels on stdin and may contain secrets.

    `says` is shown while it runs, for at most `seconds`.
    """

    script: str = field(repr=False)
    says: str = ""
    seconds: int = STEP_SECONDS


@dataclass(frozen=True)
class Guard:
    """Of a verb after which the host may be unreachable: it arms an undo called `name` before it changes anything.

    A new login disarms the undo, and is tried for `seconds`. The undo may last for `patience` seconds. `undone` is what
    users read where the host was faster.
    """

    name: str
    undone: str
    seconds: int
    patience: int


@dataclass(frozen=True)
class RunVerb:
    """One round trip: a verb of the program that runs on hosts.

    Its input may contain secrets. `says` is shown while it runs, for at most `seconds`.
    """

    verb: str
    given: object = field(repr=False)
    says: str = ""
    seconds: int = STEP_SECONDS
    guard: Guard | None = None


@dataclass(frozen=True)
class DeferredVerb:
    """A verb whose input depends on other hosts, which are queried when it is carried out.

    `says` is shown meanwhile.
    """

    make: Callable[[Report], RunVerb]
    says: str = ""


@dataclass(frozen=True)
class RebootHost:
    """A reboot: `ask` schedules it, `back` succeeds once the host is up for good, and `after` fails unless it helped.

    The host may take `extra` seconds beyond those of a boot.
    """

    ask: RunVerb
    back: RunVerb
    after: RunVerb
    extra: int = 0


How = RunScript | RunVerb | SendFile | DeferredVerb | RebootHost


@dataclass(frozen=True)
class Downtime:
    """The seconds without a server: `measured` at its last start, or estimated by its model's size."""

    seconds: float
    measured: bool
    beside: bool = False
    """Or not at all, where its host has room for two when it is done."""
    gate: int = 0
    """The most seconds for which the new server is measured against the running one before the switch."""

    def __str__(self) -> str:
        how = "measured at its last start" if self.measured else "by the size of its model"
        or_not = ", or 0 s if both versions fit side by side" if self.beside else ""
        gate = f"; and for up to {show_seconds(self.gate)} while its gate measures both versions" if self.gate else ""
        return f"downtime about {max(self.seconds, 1):.0f} s ({how}){or_not}{gate}"


@dataclass(frozen=True)
class Gated:
    """A new server that is measured against the running one, of spec `was`, before it replaces it.

    `refused` returns what the host does to record why it was refused. Without `speed`, its responses are judged alone.
    """

    instance: InstancePlan
    was: str
    refused: Callable[[str], RunVerb] = field(compare=False, repr=False)
    speed: bool = True


@dataclass(frozen=True)
class Change:
    """One change of a host: what, of what, and why; then how.

    It is printed and compared. `kind` and `name` are of what: `package` and `curl`, `server` and `coder`. No reason
    contains a secret.
    """

    action: Action
    kind: str
    name: str
    reasons: tuple[str, ...]
    how: How
    away: Downtime | None = None
    """Of a server that serves: how long it will not."""
    gated: Gated | None = None
    """Of a server that must not become slower by it."""
    values: tuple[ValueChange, ...] = ()
    """What differs, as far as the inspection shows it: settings with their old and new values."""
    together: tuple[Change, ...] = ()
    """Changes of other servers that the same script makes: all of them, or none."""

    @property
    def parts(self) -> tuple[Change, ...]:
        """Return this change and those that are made together with it."""
        return (self, *self.together)

    def __str__(self) -> str:
        return f"{self.action} {self.kind} {one_line(self.name)}: {'; '.join(map(one_line, self.reasons))}"

    @property
    def script(self) -> str:
        """Return the script; empty if it is made when the change is carried out."""
        return self.how.script if isinstance(self.how, RunScript) else ""

    @property
    def says(self) -> str:
        """Return the line that is shown while the change is carried out."""
        return self.how.says if isinstance(self.how, RunScript | RunVerb | DeferredVerb) else ""


OTHER_SETTINGS = "its settings differ"
"""The begin of the reason of a server that runs with another spec, which is a hash of its settings."""


def other_settings(running: str, planned: str) -> str:
    """Return the reason of a server that runs with another spec than the planned one."""
    return f"{OTHER_SETTINGS}: spec {running} runs, {planned} is planned"


def operation_change(name: str, reason: str) -> Change:
    """Return the change that an operation of a fleet's own pyinfra role makes. pyinfra itself runs the operation."""
    return Change("update", "operation", name, (reason,), RunScript(""))


def file_difference(file: TextFile, state: HostState) -> str:
    """Return how the host's file differs, by bytes, mode or owner; empty if it matches."""
    have = state.files.get(file.path)
    if have is None:
        return f"{file.path} is not there"
    if have.sha256 != hashlib.sha256(file.text.encode()).hexdigest():
        return f"{file.path} has another text"
    if int(have.mode, 8) != int(file.mode, 8):
        return f"{file.path} has mode {int(have.mode, 8):o}, not {int(file.mode, 8):o}"
    return "" if file.owner in have.owner else f"{file.path} belongs to {have.owner[1]}, not to {file.owner}"


def file_differs(file: TextFile, state: HostState) -> bool:
    """Return whether the host's file differs in its bytes, its mode or its owner."""
    return bool(file_difference(file, state))


def file_differences(files: Iterable[TextFile], state: HostState) -> tuple[str, ...]:
    """Return how the host's files differ."""
    return tuple(filter(None, (file_difference(file, state) for file in files)))


def text_differs(file: TextFile, state: HostState) -> bool:
    """Return whether the file is missing or has another text."""
    # Permissions alone are corrected without a restart.
    have = state.files.get(file.path)
    return have is None or have.sha256 != hashlib.sha256(file.text.encode()).hexdigest()


def unit_file(name: str, text: str, *read: str) -> TextFile:
    """Return a unit with a hash of itself and of what its process reads: a process with another hash is out of date."""
    return TextFile(path=str(UNITS / name), text=text.replace("@SPEC@", digest(text, *read)))


def unit_spec(unit: TextFile) -> str:
    """Return the hash in a unit."""
    return unit.text.partition("LLAMAHERD_SPEC=")[2].split("\n", 1)[0]


def written_files(files: Iterable[TextFile]) -> tuple[WrittenFile, ...]:
    """Return files as the program on hosts writes them."""
    return tuple(WrittenFile(each.path, Secret(each.text), int(each.mode, 8), each.owner) for each in files)


def write_on_host(files: Iterable[TextFile], purpose: str, remove: Iterable[str] = ()) -> RunVerb:
    """Return what writes files on a host, each at once, while it holds the lock of the host for a `purpose`."""
    return RunVerb("base.put_files", PutFilesInput(purpose, written_files(files), tuple(remove)))


def guarded_verb(verb: str, given: object, says: str, *, name: str, undone: str) -> RunVerb:
    """Return a verb that arms an undo called `name`, and its guard. `undone` is the state after the undo, in words."""
    said = f"no new login succeeded within {LOGIN_SECONDS} s, so this host undid the change by itself: {undone}"
    return RunVerb(verb, given, says, guard=Guard(name, said, LOGIN_SECONDS + UNDO_SECONDS, UNDO_SECONDS))


@dataclass(frozen=True)
class GateRequest:
    """A changed server whose gate measures it, the plan that declares it, and the run that would change it."""

    gated: Gated
    plan: Plan
    connect: Connect
    inventory: Path
    user: str
    report: Report


@dataclass(frozen=True)
class GateRefusal:
    """Why a gate rejects a changed server. `kept`: the host keeps the reason, so that the next run rejects it too."""

    why: str
    help: str
    kept: bool


@dataclass(frozen=True)
class Services:
    """The functions that a run needs from packages that it does not import: `deploy.py` hands them in."""

    gate: Callable[[GateRequest], GateRefusal | None]
    """Measures a changed server and the running one. Returns None if the change is accepted. Raises UserError."""
    drain: Callable[[Path, Plan, Mapping[str, int], Report], AbstractContextManager[None]]
    """Drains the servers of a plan while the context is open: seconds that each change takes at most, by instance."""
