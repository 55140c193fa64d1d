"""Values of flags: what the engine refuses, and what it does not read to its end."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from llamaherd.diagnostics.findings import Severity
from llamaherd.diagnostics.near import near
from llamaherd.diagnostics.rule import Rule
from llamaherd.engines.flags.model import Catalogue, Problem, Value


@dataclass(frozen=True)
class Given:
    """One value as it is given: to which flag of which version, and where."""

    catalogue: Catalogue
    other: Sequence[Catalogue]
    index: int
    length: int
    flag: str
    text: str

    def problem(self, rule: Rule, message: str, way_out: str, severity: Severity | None = None) -> Problem:
        """What is wrong with it."""
        return Problem(rule, self.index, self.length, message, way_out, severity)

    @property
    def may_be_taken(self) -> bool:
        """Whether the version that was asked for may take a word which its catalogue does not list."""
        following = self.catalogue.following
        flag = following.find(self.flag) if following else None
        taken = flag is not None and not flag.removed and any(not value.wrong(self.text) for value in flag.values)
        return self.catalogue.outdated or taken


def wrong_value(given: Given, value: Value) -> Iterator[Problem]:
    """What is wrong with a value, if anything is."""
    match value.wrong(given.text):
        case "rest":
            yield _cut_short(given, value)
        case "choice":
            yield _no_choice(given, value)
        case "number" | "range":
            yield _no_number(given, value)


CUT_SHORT = Rule(
    "LH111",
    "A number has more behind it, which the engine does not read.",
    why="`32k` means 32 to it.",
    example="""
    instances:
      coder: {extra_args: [--cache-ram, 8k]}
    """,
    way_out="write the number out.",
    severity="warning",
)


def _cut_short(given: Given, value: Value) -> Problem:
    pattern = r"\s*[+-]?\d+" if value.kind in ("int", "long") else r"\s*[+-]?[\d.]+"
    read = re.match(pattern, given.text)
    taken = read[0].strip() if read else "a number"
    message = f"{given.catalogue.kind} reads `{given.flag} {given.text}` as {taken}"
    return given.problem(CUT_SHORT, message, "write the number out, without a unit")


NO_NUMBER = Rule(
    "LH105",
    "A value is no number, or out of its range.",
    why="It is a warning where the version is newer than all that are known here: it may take more.",
    example="""
    instances:
      coder: {extra_args: [--cache-ram, much]}
    """,
    way_out="write a number, as the help line says.",
    sometimes=("warning",),
)


def _no_number(given: Given, value: Value) -> Problem:
    message = f"`{given.flag}` takes {value.says}, not `{given.text}`"
    severity: Severity | None = "warning" if given.may_be_taken else None
    return given.problem(NO_NUMBER, message, f"write {value.says} in its place", severity)


NO_CHOICE = Rule(
    "LH106",
    "A value is none of those that a flag takes.",
    why="It is a note where the version is newer than all that are known here: it may take more.",
    example="""
    instances:
      coder: {extra_args: [--reasoning-format, jsno]}
    """,
    way_out="write one of the words in the help line.",
    sometimes=("note",),
)


def _no_choice(given: Given, value: Value) -> Problem:
    """A word that the flag does not take; another version may."""
    takers = [
        one
        for one in given.other
        if one.kind == given.catalogue.kind and (flag := one.find(given.flag)) and flag.values and not flag.removed
        if flag.values[0].choices and flag.values[0].wrong(given.text) is None
    ]
    close = near(given.text, (choice for choice in value.choices if not choice.lstrip("-").isdigit()))
    if takers:
        way_out = f"{takers[0]} takes it; here, choose one of those"
    else:
        way_out = f"did you mean `{close}`?" if close else "choose one of those"
    message = f"`{given.flag}` takes {value.says}, not `{given.text}`"
    if not given.may_be_taken:
        return given.problem(NO_CHOICE, message, way_out)
    message += f" in {given.catalogue}, and {given.catalogue.asked} is newer"
    return given.problem(NO_CHOICE, message, way_out if close else given.catalogue.decided_by, "note")
