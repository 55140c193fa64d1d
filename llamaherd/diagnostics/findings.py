"""What is wrong or doubtful in an inventory, said so that a person can act on it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from llamaherd.diagnostics.near import begun, slip
from llamaherd.text.terminal import MOST_HELP, one_line, plain

Severity = Literal["error", "warning", "note"]
GRAVITY: Mapping[Severity, int] = {"error": 0, "warning": 1, "note": 2}


@dataclass(frozen=True, order=True)
class Place:
    """A position in a file; line and column count from 1."""

    file: Path
    line: int = 1
    column: int = 1

    def __str__(self) -> str:
        return f"{self.file}:{self.line}:{self.column}"


@dataclass(frozen=True)
class Finding:
    """One thing wrong: a code, where, one sentence, and a way out. docs/findings.md lists codes; each has a page."""

    code: str
    place: Place
    message: str
    help: str
    severity: Severity = "error"

    def __post_init__(self) -> None:
        # Both quote what others have written.
        object.__setattr__(self, "message", one_line(self.message))
        object.__setattr__(self, "help", one_line(self.help, MOST_HELP))

    def __str__(self) -> str:
        return plain(f"{self.place}: {self.severity} {self.code}: {self.message}\n  help: {self.help}")

    def as_json(self) -> dict[str, str | int]:
        """The finding as a flat JSON object."""
        return {
            "code": self.code,
            "severity": self.severity,
            "file": str(self.place.file),
            "line": self.place.line,
            "column": self.place.column,
            "message": self.message,
            "help": self.help,
        }


class InventoryError(Exception):
    """The inventory cannot be used; holds every finding, not just the first."""

    def __init__(self, findings: Iterable[Finding]) -> None:
        self.findings = tuple(findings)
        left = len(self.findings) - MOST_SHOWN
        lines = [*map(str, to_print(self.findings)), *([f"and {left:,} more"] if left > 0 else [])]
        super().__init__("\n".join(lines))


@dataclass(eq=False)
class UserError(Exception):
    """What went wrong outside of an inventory: one sentence, and a way out. Neither may hold a secret."""

    message: str
    help: str

    def __post_init__(self) -> None:
        self.message, self.help = one_line(self.message), one_line(self.help, MOST_HELP)

    def __str__(self) -> str:
        return plain(f"{self.message}\n  help: {self.help}")


class HubError(UserError):
    """The hub cannot give what is declared: one sentence, and a way out. Neither holds a token."""


MOST_SHOWN = 200
"""Findings that are printed; whoever has more reads those first, and runs it again."""


def to_print(findings: Sequence[Finding]) -> tuple[Finding, ...]:
    """Those that are printed: no warning takes the place of an error, and all stand in their order."""
    if len(findings) <= MOST_SHOWN:
        return tuple(findings)
    gravest = sorted(range(len(findings)), key=lambda at: GRAVITY[findings[at].severity])
    return tuple(findings[at] for at in sorted(gravest[:MOST_SHOWN]))


def nearest(word: str, known: Iterable[str]) -> str:
    """The name that was surely meant, as a question; all right names where that cannot be told."""
    names = sorted(known)
    if close := slip(word, names) or begun(word, names):
        return f"did you mean `{close}`?"
    return f"known here: {', '.join(names)}" if names else "there is none to choose from yet"
