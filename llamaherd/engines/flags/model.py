"""What a catalogue holds: an engine's flags at one version; and what may be wrong with arguments."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from llamaherd.diagnostics.findings import Finding, Place, Severity
from llamaherd.diagnostics.rule import Rule
from llamaherd.text.numbers import saturated

Kind = Literal["text", "word", "list", "stages", "int", "long", "float", "numbers", "json"]
"""`list` is words with commas between, `stages` is ik_llama.cpp's SPEC[:key=value,…], `numbers` is `1,0.5,1`."""
Wrong = Literal["number", "choice", "range", "rest"]
"""`rest`: a number with more behind it, which C++ does not read (std::stoi)."""

INTEGER = re.compile(r"\s*([+-]?[0-9]+)")
FLOAT = re.compile(
    r"\s*[+-]?(?:\d+\.?\d*(?:e[+-]?\d+)?|\.\d+(?:e[+-]?\d+)?|inf(?:inity)?|nan)", re.IGNORECASE | re.ASCII
)
SYNONYMS = ("enabled", "true", "1", "disabled", "false", "0", "-1")
"""Beside `on`, `off` and `auto`, which need no other words in a message."""
BITS: Mapping[str, int] = {"int": 31, "long": 64}


@dataclass(frozen=True)
class Value:
    """What one value of a flag may be. With a number kind, `choices` are words allowed beside numbers."""

    kind: Kind = "text"
    choices: tuple[str, ...] = ()
    minimum: int | None = None
    maximum: int | None = None
    refused: int | None = None

    def wrong(self, text: str) -> Wrong | None:
        """What is wrong with a value; None if the engine takes it whole."""
        match self.kind:
            case "word" | "list" | "stages":
                return self._wrong_word(text)
            case "int" | "long" | "float":
                return None if text in self.choices else self._wrong_number(text)
            case "numbers":
                return next((wrong for part in re.split("[,/]+", text) if (wrong := self._wrong_number(part))), None)
            case "json":
                return None if _is_json(text) else "choice"
            case "text":
                return None

    def _wrong_word(self, text: str) -> Wrong | None:
        words = text.split(",") if self.kind == "list" else [text.split(":")[0] if self.kind == "stages" else text]
        return None if all(word in self.choices for word in words) else "choice"

    def _wrong_number(self, text: str) -> Wrong | None:
        whole = self.kind in BITS
        found = (INTEGER if whole else FLOAT).match(text)
        if not found:
            return "number"
        if whole:
            number = saturated(found[1], 1 << 64)
            low = -(1 << BITS[self.kind]) if self.minimum is None else self.minimum
            high = (1 << BITS[self.kind]) - 1 if self.maximum is None else self.maximum
            if not low <= number <= high or number == self.refused:
                return "range"
        return "rest" if found.end() < len(text) else None

    @property
    def says(self) -> str:
        """What may be given, for a message."""
        if self.kind == "json":
            return "a JSON object"
        shown = self.choices if "on" not in self.choices else [word for word in self.choices if word not in SYNONYMS]
        words = ", ".join(f"`{choice}`" for choice in shown if choice)
        if self.kind in ("word", "list", "stages"):
            return f"one of {words}"
        number = {"int": "a whole number", "long": "a whole number", "float": "a number"}.get(self.kind, "numbers")
        limits = [f"at least {self.minimum}"] if self.minimum is not None else []
        limits += [f"at most {self.maximum}"] if self.maximum is not None else []
        limits += [f"not {self.refused}"] if self.refused is not None else []
        return " ".join([number, *limits]) + (f" or {words}" if words else "")


def _is_json(text: str) -> bool:
    try:
        json.loads(text)
    except (ValueError, RecursionError):
        return False
    return True


@dataclass(frozen=True)
class Flag:
    """One flag of one version: its spellings, the values it takes, and what the engine says of it."""

    spellings: tuple[str, ...]
    negated: tuple[str, ...] = ()
    values: tuple[Value, ...] = ()
    env: str = ""
    removed: str = ""
    """What the engine says to use instead: the flag is known only to be refused."""
    deprecated: str = ""
    idle: bool = False
    repeats: bool = False
    """Given again, it adds; other flags overwrite."""
    ends: bool = False
    optional: bool = False
    """May stand with or without its value."""
    many: bool = False
    """Takes as many values as follow, one at least."""


@dataclass(frozen=True, eq=False)
class Catalogue:
    """The flags of one engine at one version, by every spelling. Each is equal to itself alone."""

    kind: str
    version: str
    flags: Mapping[str, Flag]
    date: str = ""
    dialect: str = ""
    complete: bool = True
    """Whether a flag that is not in it is refused by the engine."""
    exact: bool = True
    """Whether it is of the version that was asked for, or of the newest before that."""
    asked: str = ""
    """The version that was asked for, where that is a newer one than this."""
    listed: bool = False
    """Whether its flags are those that the built engine lists. What they take is that of the nearest known version."""
    following: Catalogue | None = None
    """The next newer catalogue, where the version that was asked for lies between the two."""
    dashes: bool = True
    """`--ctx_size` is `--ctx-size`."""
    equals: bool = False
    """`--flag=value` is understood."""
    positional: int = 0
    """How many words may stand without a flag."""
    env: Literal["below", "above", ""] = ""
    """Whether the command line beats LLAMA_ARG_ variables or they beat it."""
    environment: frozenset[str] = field(default=frozenset())
    booleans: frozenset[str] = field(default=frozenset())

    def __str__(self) -> str:
        return f"{self.kind} {self.version}"

    @property
    def outdated(self) -> bool:
        """Whether the version that was asked for may be newer than every known catalogue: it may take more values."""
        return bool(self.asked) and self.following is None

    def may_know(self, spelling: str) -> bool:
        """Return whether the version that was asked for may have a flag which this catalogue lacks."""
        if self.listed:
            return False
        return self.outdated or (self.following is not None and self.following.knows(spelling))

    @property
    def decided_by(self) -> str:
        """Return the help line for what only the engine itself can decide."""
        return f"`--help` of {self.asked} lists what it takes; `herd up` checks it on the host before a switch"

    def find(self, spelling: str) -> Flag | None:
        """The flag of that spelling, removed ones too; None if this version has never heard of it."""
        if self.dashes and spelling.startswith("--"):
            spelling = spelling.replace("_", "-")
        if self.equals:
            spelling = spelling.split(".")[0]  # vLLM: one key of a flag that takes JSON, `--compilation-config.level 3`
        return self.flags.get(spelling)

    def knows(self, spelling: str) -> bool:
        """Whether the flag can be used."""
        flag = self.find(spelling)
        return flag is not None and not flag.removed

    def first(self, *candidates: str) -> str | None:
        """The first of these spellings that can be used."""
        return next((spelling for spelling in candidates if self.knows(spelling)), None)


@dataclass(frozen=True)
class Problem:
    """One thing wrong with a list of arguments: where, one sentence, a way out."""

    rule: Rule
    index: int
    """Of the first argument concerned."""
    length: int
    """How many arguments it concerns."""
    message: str
    help: str
    unusual: Severity | None = None
    """How bad it is where it is not what the rule says first."""
    replacement: tuple[str, ...] | None = None
    """What to write instead of these arguments; empty to leave them out; None if there is no certain answer."""

    @property
    def severity(self) -> Severity:
        """How bad it is."""
        return self.rule.graded(self.unusual)

    def at(self, place: Place) -> Finding:
        """The same as a finding."""
        return self.rule.at(place, self.message, self.help, self.unusual)
