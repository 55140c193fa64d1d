"""Query hosts: by verbs of the program, and by scripts of own roles that print lines between two marks.

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
from typing import Any, TypeVar

from llamaherd.host.program import Events, Program, packed_program, request
from llamaherd.host.remote import Patience, Remote
from llamaherd.host.ssh import RemoteError
from llamaherd.onhost.document import DocumentError, decode
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
