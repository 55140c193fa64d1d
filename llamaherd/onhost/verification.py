"""Verify a host: run programs and verbs of roles, and return their output and results. Changes nothing."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from llamaherd.onhost.document import Secret, decode
from llamaherd.onhost.posix import MOST_OUTPUT
from llamaherd.onhost.system import FailedError, System, UnknownStateError
from llamaherd.onhost.verbs import Verb, find_verb

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


VERBS = {"verify": Verb(VerifyInput, verify)}
