"""Findings: problems of an inventory, their places and fixes, and the rule of each finding."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from inspect import cleandoc
from pathlib import Path
from typing import Literal

from llamaherd.diagnostics.spelling import completed_name, misspelled_name
from llamaherd.text.terminal import MOST_HELP, one_line, plain

Severity = Literal["error", "warning", "note"]
GRAVITY: Mapping[Severity, int] = {"error": 0, "warning": 1, "note": 2}


@dataclass(frozen=True, order=True)
class Place:
    """A position in a file; line and column count from 1. Line 0 is the whole file, a folder or a command line."""

    file: Path
    line: int = 0
    column: int = 1

    def __str__(self) -> str:
        return f"{self.file}:{self.line}:{self.column}" if self.line else str(self.file)


@dataclass(frozen=True)
class Edit:
    """An exact change of one line of a file: at `place`, the text `old` is replaced by `new`."""

    place: Place
    old: str
    new: str

    def as_json(self) -> dict[str, str | int]:
        """Return the edit as a flat JSON object; the end column is the first column that stays."""
        place = self.place
        span = {"line": place.line, "column": place.column, "end_column": place.column + len(self.old)}
        return {"file": str(place.file), **span, "old": self.old, "new": self.new}


@dataclass(frozen=True)
class Finding:
    """One problem: a code, its place, one sentence, and a fix. docs/findings.md lists codes; each has a page.

    `edits` do the fix exactly as `help` describes it, if it is certain; `herd check --fix` applies them.
    """

    code: str
    place: Place
    message: str
    help: str
    severity: Severity = "error"
    edits: tuple[Edit, ...] = ()

    def __post_init__(self) -> None:
        # Both quote texts of other programs.
        object.__setattr__(self, "message", one_line(self.message))
        object.__setattr__(self, "help", one_line(self.help, MOST_HELP))

    def __str__(self) -> str:
        return plain(f"{self.place}: {self.severity} {self.code}: {self.message}\n  help: {self.help}")

    def as_json(self) -> dict[str, object]:
        """Return the finding as a JSON object. A finding without a position in its file has line 1, column 1."""
        return {
            "code": self.code,
            "severity": self.severity,
            "file": str(self.place.file),
            "line": max(self.place.line, 1),
            "column": self.place.column,
            "message": self.message,
            "help": self.help,
            "edits": [edit.as_json() for edit in self.edits],
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
    """A failure outside of an inventory: one sentence, and a fix. Neither may hold a secret."""

    message: str
    help: str

    def __post_init__(self) -> None:
        self.message, self.help = one_line(self.message), one_line(self.help, MOST_HELP)

    def __str__(self) -> str:
        return plain(f"{self.message}\n  help: {self.help}")


class HubError(UserError):
    """The hub cannot provide what is declared: one sentence, and a fix. Neither holds a token."""


MOST_SHOWN = 200
"""The most findings that are printed; fix these first, and run the command again."""


def to_print(findings: Sequence[Finding]) -> tuple[Finding, ...]:
    """Return the findings that are printed: no warning takes the place of an error, and the order stays."""
    if len(findings) <= MOST_SHOWN:
        return tuple(findings)
    gravest = sorted(range(len(findings)), key=lambda at: GRAVITY[findings[at].severity])
    return tuple(findings[at] for at in sorted(gravest[:MOST_SHOWN]))


def nearest(word: str, known: Iterable[str]) -> str:
    """Return the name that was probably meant, as a question; all valid names if none is near."""
    names = sorted(known)
    if close := misspelled_name(word, names) or completed_name(word, names):
        return f"did you mean `{close}`?"
    return f"known names: {', '.join(names)}" if names else "there is none to choose from yet"


Language = Literal["yaml", "sh", "ini", "console"]
"""The language of an example: parts of a rig, or a recipe; `console` shows the output of `herd` if no example can cause
it.
"""


@dataclass(frozen=True, eq=False)
class Rule:
    """One kind of mistake, under a code that is never given another meaning."""

    code: str
    title: str
    """The problem, in one sentence."""
    why: str = ""
    """The consequences, and where the limit is."""
    example: str = ""
    language: Language = "yaml"
    after: str = ""
    """A remark about the example."""
    fix: str = ""
    severity: Severity = "error"
    """The severity of a finding by default."""
    sometimes: tuple[Severity, ...] = ()
    """The other severities that a finding may have."""

    def at(
        self, place: Place, message: str, fix: str, severity: Severity | None = None, edits: Sequence[Edit] = ()
    ) -> Finding:
        """Return a finding of this rule."""
        return Finding(self.code, place, message, fix, self.graded(severity), tuple(edits))

    def graded(self, severity: Severity | None) -> Severity:
        """Return the severity of a finding: the given one, or the default."""
        assert severity is None or severity in self.severities, f"{self.code} is never a {severity}"
        return severity or self.severity

    @property
    def severities(self) -> tuple[Severity, ...]:
        """All severities that a finding may have, the gravest first."""
        return tuple(sorted({self.severity, *self.sometimes}, key=GRAVITY.__getitem__))

    @property
    def shown_severity(self) -> str:
        """The severities in words: `error, warning or note`."""
        *others, last = self.severities
        return f"{', '.join(others)} or {last}" if others else last

    @property
    def shown_example(self) -> str:
        """The example in the form that it has in a file."""
        return cleandoc(self.example) + "\n"

    @property
    def row(self) -> str:
        """The rule's row in the table of all rules."""
        return f"| [{self.code}](findings/{self.code}.md) | {self.shown_severity} | {_joined(self.title)} |"

    @property
    def page(self) -> str:
        """The rule's page, in Markdown."""
        parts = (
            f"# {self.code}",
            f"*{self.shown_severity}*",
            f"**{_joined(self.title)}** {_joined(self.why)}".rstrip(),
            f"```{self.language}\n{self.shown_example}```",
            _joined(self.after),
            f"Fix: {_joined(self.fix)}",
        )
        return "\n\n".join(filter(None, parts)) + "\n"


def _joined(text: str) -> str:
    """Join each paragraph to one line; the rows of a table stay as they are."""
    return re.sub(r"(?<!\n)\n(?![\n|])", " ", cleandoc(text))
