"""What a finding is an example of: one value beside the function that finds it, from which its page is made."""

from __future__ import annotations

import re
from dataclasses import dataclass
from inspect import cleandoc
from typing import Literal

from llamaherd.diagnostics.findings import GRAVITY, Finding, Place, Severity

Language = Literal["yaml", "sh", "ini", "console"]
"""Of an example: parts of a rig, or a recipe; `console` shows what `herd` says of what no example can have."""


@dataclass(frozen=True, eq=False)
class Rule:
    """One kind of mistake, under a code that is never given another meaning."""

    code: str
    title: str
    """What is wrong, in one sentence."""
    why: str = ""
    """What comes of it, and where the line is."""
    example: str = ""
    language: Language = "yaml"
    after: str = ""
    """What is to be said of the example, or beside it."""
    way_out: str = ""
    severity: Severity = "error"
    """What it is unless the one who finds it says otherwise."""
    sometimes: tuple[Severity, ...] = ()
    """What else it may be."""

    def at(self, place: Place, message: str, way_out: str, severity: Severity | None = None) -> Finding:
        """A finding of this rule: where, one sentence, a way out."""
        return Finding(self.code, place, message, way_out, self.graded(severity))

    def graded(self, severity: Severity | None) -> Severity:
        """How bad a finding is of which this is said, or nothing."""
        assert severity is None or severity in self.severities, f"{self.code} is never a {severity}"
        return severity or self.severity

    @property
    def severities(self) -> tuple[Severity, ...]:
        """All that it may be, the gravest first."""
        return tuple(sorted({self.severity, *self.sometimes}, key=GRAVITY.__getitem__))

    @property
    def shown_severity(self) -> str:
        """In words: `error, warning or note`."""
        *others, last = self.severities
        return f"{', '.join(others)} or {last}" if others else last

    @property
    def shown_example(self) -> str:
        """The example as it would stand in a file."""
        return cleandoc(self.example) + "\n"

    @property
    def row(self) -> str:
        """Its row in the table of all."""
        return f"| [{self.code}](findings/{self.code}.md) | {self.shown_severity} | {_joined(self.title)} |"

    @property
    def page(self) -> str:
        """Its page, in Markdown."""
        parts = (
            f"# {self.code}",
            f"*{self.shown_severity}*",
            f"**{_joined(self.title)}** {_joined(self.why)}".rstrip(),
            f"```{self.language}\n{self.shown_example}```",
            _joined(self.after),
            f"Way out: {_joined(self.way_out)}",
        )
        return "\n\n".join(filter(None, parts)) + "\n"


def _joined(text: str) -> str:
    """Each paragraph on a line of its own; the rows of a table stay as they are."""
    return re.sub(r"(?<!\n)\n(?![\n|])", " ", cleandoc(text))
