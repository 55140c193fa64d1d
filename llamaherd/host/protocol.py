"""Query hosts and hold their locks: by verbs of the program, and by scripts of own roles that print marked lines.

- `templates/host/question.sh.j2` wraps a script. Its braces make the shell read the whole script before it starts: a
  script that is cut off does nothing.
- The output is UTF-8 lines between the marks. Lines before and after the marks are from start files.
- A line is a fact or a part of a text. A fact is its kind and its fields, separated by tabs. A field contains no tab
  and no line break: such values are base64, or texts. A text begins with `@ what TAB of what`, and each of its lines
  follows a tab. So no line of the output can equal a mark.
- An output without its end mark is a CutOffError, and all of it is discarded. A line that the script cannot have
  printed is an UnexpectedLineError.

`llamaherd/host/remote.py` limits the bytes, lines and seconds of an output.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from contextlib import closing, suppress
from typing import Any, TypeVar

from llamaherd.host.program import Events, Program, packed_program, request
from llamaherd.host.remote import Patience, Remote, RemoteError, Shell
from llamaherd.inventory.schema import Connect
from llamaherd.layout import LOCK_WAIT
from llamaherd.onhost.document import DocumentError, decode
from llamaherd.onhost.reservation import RUN_CHANGES, RUN_HELD, RunLockInput, Unlocked
from llamaherd.onhost.verbs import NoInput
from llamaherd.render import render
from llamaherd.text.quoting import Written

BEGIN, END = "@ begin", "@ end"

T = TypeVar("T")

_SHOWN = 200
"""Characters of a host's output that an error shows."""


class CutOffError(RemoteError):
    """An output ended before its end mark: the host, its shell or the script failed."""

    def __init__(self, printed: Iterable[str]) -> None:
        last = next((line.strip() for line in reversed([*printed]) if line.strip()), "it printed no reason")
        super().__init__(
            f"the output of the host ended early: {last[:_SHOWN]}",
            "run the command again; if it fails again, check that the host is a Linux with free memory and disk space",
        )


class UnexpectedLineError(RemoteError):
    """A line of an output that the script cannot have printed."""

    def __init__(self, line: str) -> None:
        super().__init__(
            f"the host printed an unexpected line: {line[:_SHOWN]!r}",
            "find the program or the name on that host that this line comes from, and correct it",
        )


class NotInspectedError(RemoteError):
    """A part of a host did not respond to an inspection."""

    def __init__(self, parts: Collection[str]) -> None:
        names = " and ".join(sorted(parts))
        super().__init__(
            f"{names} did not respond to the inspection, so what runs there is left as it is",
            "run the command again; if that fails too, see what hangs there (`systemctl status`, `docker ps`)",
        )


def probe_script(template: str, **values: Any) -> Written:
    """Return the script of a template, with its marks."""
    return render("host/question.sh.j2", begin=Written(BEGIN), end=Written(END), body=render(template, **values))


def query_host(
    remote: Remote,
    program: Program,
    document: bytes | Callable[[], bytes],
    limit: float | Patience,
    report: Callable[[str], None] | None = None,
) -> object:
    """Run a verb on a rig's host, and return its result. Pass each line of its progress to `report`.

    A host that is not set up does not store the program. A document that is a function is made after the login. Raise
    RemoteError where the verb fails, and CutOffError where the program does not finish.
    """
    complaints: list[str] = []

    def hear(stream: str, line: str) -> None:
        if stream == "stderr":
            complaints.append(line)
        elif report:
            report(line.rstrip("\n"))

    events = Events(hear)
    remote.perform(program, document, events, limit)
    return result_of(events, complaints)


def query_verb(
    remote: Remote,
    verb: str,
    given: object,
    kind: type[T],
    limit: float | Patience,
    report: Callable[[str], None] | None = None,
) -> T:
    """Run a verb on a rig's host, and return its result, which is of this type.

    Raise RemoteError as `query_host` does, and UnexpectedLineError if the result is of another type.
    """
    result = query_host(remote, packed_program(), request(verb, given), limit, report)
    try:
        return decode(kind, result)
    except DocumentError as error:
        raise UnexpectedLineError(str(error)) from None


def result_of(events: Events, complaints: Iterable[str]) -> object:
    """Return the result of a verb. Raise RemoteError where it failed, and CutOffError where it did not finish."""
    if events.error:
        raise RemoteError(*events.error)
    if not events.finished:
        raise CutOffError(complaints)
    return events.result


def marked_lines(lines: Iterable[str], complaints: Iterable[str] = ()) -> list[str]:
    """Return the lines between the marks. Raise CutOffError, with the last line that the host printed on stderr."""
    before: list[str] = []
    found: list[str] = []
    begun = False
    for line in lines:
        if begun and line == END:
            return found
        if begun:
            found.append(line)
        elif line == BEGIN:
            begun = True
        else:
            before.append(line)
    raise CutOffError([*(() if begun else before), *complaints])


def split_facts(lines: Iterable[str]) -> list[list[str]]:
    """Return the facts of an output: of each, its kind and its fields."""
    return [line.split("\t") for line in lines]


def is_unread(fact: Sequence[str]) -> bool:
    """Return whether a fact names a part of the host that did not respond."""
    return len(fact) == 2 and fact[0] == "unread"


def parse_texts(lines: Iterable[str]) -> dict[tuple[str, str], str]:
    """Return the texts of an output, by their kind and their subject. Raise UnexpectedLineError for any other line."""
    found: dict[tuple[str, str], list[str]] = {}
    current: list[str] | None = None
    for line in lines:
        if line.startswith("@ "):
            what, _, of_what = line[2:].partition("\t")
            current = found.setdefault((what, of_what), [])
        elif line.startswith("\t") and current is not None:
            current.append(line[1:])
        else:
            raise UnexpectedLineError(line)
    return {key: "\n".join(text) for key, text in found.items()}


_LOCK_SECONDS = 60
_MOST_CHARACTERS = 200
"""Characters of the user and machine that hold the lock."""


class HostLock:
    """The lock of a run on a host. Other runs wait until it is released, or until its connection ends."""

    def __init__(self, rig: str, connect: Connect, author: str) -> None:
        self._rig, self._connect = rig, connect
        self._author = " ".join(author.split())[:_MOST_CHARACTERS]  # one line of the lock
        self._shell: Shell | None = None
        self._ready: Shell | None = None

    def log_in(self) -> None:
        """Log in ahead: for the lock, or for the first change if this run holds the lock. Raise RemoteError."""
        self._ready = Shell(self._connect, fresh=True)

    def ready(self) -> Shell | None:
        """Return the shell of `log_in`, if it still runs. The caller closes it."""
        shell, self._ready = self._ready, None
        return shell if shell and shell.alive else None

    def take(self, report: Callable[[str], None], wait: int = LOCK_WAIT) -> bool:
        """Take the lock, or keep it. Return whether it was taken now: another run may have changed the host.

        Wait so many seconds for another run, and report that. Raise UserError if another run keeps the lock for longer,
        RemoteError if the host cannot be reached, and NoPythonError.
        """
        if self._shell and self._shell.alive:
            return False
        shell = self.ready() or Shell(self._connect, fresh=True)
        self.give_back()
        complaints: list[str] = []

        def hear(stream: str, line: str) -> None:
            if stream == "stderr":
                complaints.append(line)
            else:
                report(line.rstrip("\n"))

        events = Events(hear)
        document = request("llamaherd.reservation.hold_run", RunLockInput(self._rig, self._author, wait))
        # The verb waits for other runs, and then for changes that a killed run has begun.
        patience = Patience.within(2 * wait + _LOCK_SECONDS, "waiting for other runs")
        try:
            with closing(shell.values(packed_program(), document, events, patience)) as values:
                if RUN_HELD in values:
                    self._shell = shell
                    return True
            result_of(events, complaints)
            raise RemoteError("this run did not get the lock of the host", "run the command again")
        finally:
            if self._shell is not shell:
                shell.close()

    def note_changes(self) -> None:
        """Let the host note that this run changes it: an interrupted run stores no release."""
        if self._shell:
            with suppress(RemoteError):  # a run that has lost this connection fails anyway
                self._shell.tell(RUN_CHANGES)

    def give_back(self) -> None:
        """Release the lock, and close the shells."""
        for shell in filter(None, (self._shell, self._ready)):
            shell.close()
        self._shell = self._ready = None


def unlock_host(connect: Connect) -> Unlocked:
    """Break the lock of a host. Return the result. Raise RemoteError."""
    return query_verb(Remote(connect), "llamaherd.reservation.unlock", NoInput(), Unlocked, _LOCK_SECONDS)
