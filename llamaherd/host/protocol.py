"""How a host is asked, and how it answers: a script, and lines between two marks. All questions go this way.

- The script is `templates/host/question.sh.j2` around what is asked. It stands in braces, so that a shell reads it to
  the end before it starts: one that is cut off on its way does nothing.
- The answer is UTF-8, a line each, between the marks. What comes before and after them is of start files.
- A line is a fact or a part of a text. A fact is its kind and its fields, parted by tabs: no field holds a tab or a
  line break; what may hold either goes as base64, or as a text. A text begins with `@ what TAB of what`, and then each
  of its lines comes after a tab. So no line of an answer can be taken for a mark.
- An answer without its end is no answer: CutOffError, and nothing of it is believed. A line that the script cannot
  have printed is an UnaskedError.

Bytes, lines and seconds of an answer are bounded where it comes in: `llamaherd/host/remote.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
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
"""Characters of what a host said that an error shows."""


class CutOffError(RemoteError):
    """An answer ended before its end: the host, its shell or the script gave up on the way."""

    def __init__(self, said: Iterable[str]) -> None:
        last = next((line.strip() for line in reversed([*said]) if line.strip()), "it does not say why")
        super().__init__(
            f"the host stopped answering halfway: {last[:_SHOWN]}",
            "run again; if it stops there again, see whether that host is a Linux with memory and disk to spare",
        )


class UnexpectedLineError(RemoteError):
    """A line of an answer is none that the script can have printed."""

    def __init__(self, line: str) -> None:
        super().__init__(
            f"the host answered with a line that was not asked for: {line[:_SHOWN]!r}",
            "see what on that host is called so or prints so, and put it right there",
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
    """The script that asks what a template asks."""
    return render("host/question.sh.j2", begin=Written(BEGIN), end=Written(END), body=render(template, **values))


def query_host(
    remote: Remote,
    program: Program,
    document: bytes | Callable[[], bytes],
    limit: float | Patience,
    report: Callable[[str], None] | None = None,
) -> object:
    """Run a verb on a rig's host, and return its result. What it reports meanwhile goes to `report`, line by line.

    A host that is not set up stores nothing of the program. A document that is yet to be made is requested once a shell
    is there. Raise RemoteError where the verb fails, and CutOffError where the program does not finish.
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
    """Run a verb of ours on a rig's host, and return its result, which is of this kind.

    Raise RemoteError as `query_host` does, and UnaskedError where the program cannot have returned the result.
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
    """The lines between the marks. Raises CutOffError, with the last of the host's complaints."""
    return list(stream_marked_lines(lines, complaints))


def stream_marked_lines(lines: Iterable[str], complaints: Iterable[str] = ()) -> Iterator[str]:
    """The lines between the marks, as they come. Raises CutOffError after the last where the end is missing."""
    before: list[str] = []
    begun = False
    for line in lines:
        if begun and line == END:
            return
        if begun:
            yield line
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
    """The texts of an answer, by what they are and of what. Raises UnaskedError for a line that is of none."""
    found: dict[tuple[str, str], list[str]] = {}
    text: list[str] | None = None
    for line in lines:
        if line.startswith("@ "):
            what, _, of_what = line[2:].partition("\t")
            text = found.setdefault((what, of_what), [])
        elif line.startswith("\t") and text is not None:
            text.append(line[1:])
        else:
            raise UnexpectedLineError(line)
    return {asked: "\n".join(said) for asked, said in found.items()}
