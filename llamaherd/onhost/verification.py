"""Verify a host: run programs that print what is true there, and return what they printed. Changes nothing."""

from __future__ import annotations

from dataclasses import dataclass, field

from llamaherd.onhost.document import Secret
from llamaherd.onhost.system import System
from llamaherd.onhost.verbs import Verb

SCRIPT_SECONDS = 86_400
"""A script asks each server for a response: the controller's own limit ends it earlier."""


@dataclass(frozen=True)
class Probe:
    """A program, and under which name its output is returned: what it is about, and of what.

    The outputs of probes with the same name follow one another.
    """

    what: str
    of: str
    argv: tuple[str, ...]
    stdin: Secret = field(default_factory=lambda: Secret(""))
    seconds: int = 30
    errors: bool = False
    """Whether its output contains what it prints on stderr."""
    code: bool = False
    """Whether its exit code is the first line of its output."""


@dataclass(frozen=True)
class VerifyInput:
    """Programs to run, one after another."""

    probes: tuple[Probe, ...] = ()
    script: str = ""
    """A shell script of roles that need more than programs: it prints lines."""


@dataclass(frozen=True)
class Text:
    """What programs printed."""

    what: str
    of: str
    text: str


@dataclass(frozen=True)
class VerifyResult:
    """What all programs printed, and the lines of the script."""

    texts: tuple[Text, ...] = ()
    lines: tuple[str, ...] = ()


def verify(given: VerifyInput, system: System) -> VerifyResult:
    """Run the programs, one after another: together, they would disturb what is measured."""
    texts: dict[tuple[str, str], list[str]] = {}
    for probe in given.probes:
        texts.setdefault((probe.what, probe.of), []).append(run_probe(probe, system))
    lines: tuple[str, ...] = ()
    if given.script:
        lines = tuple(system.run(["sh", "-s"], text=given.script, seconds=SCRIPT_SECONDS).out.splitlines())
    found = tuple(Text(what, of, "\n".join(filter(None, each))) for (what, of), each in texts.items())
    return VerifyResult(found, lines)


def run_probe(probe: Probe, system: System) -> str:
    """Return what a program printed, without the last end of a line."""
    ended = system.run(probe.argv, seconds=probe.seconds, text=probe.stdin.text)
    printed = ended.out + ended.err if probe.errors else ended.out
    return f"{ended.code}\n{printed}".rstrip("\n") if probe.code else printed.rstrip("\n")


VERBS = {"verify": Verb(VerifyInput, verify)}
