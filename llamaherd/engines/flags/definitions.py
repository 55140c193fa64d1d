"""The flags of each engine version: the shipped catalogues, and the flags that a build lists in its `--help`."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cache, lru_cache
from importlib.resources import files
from typing import Any, Literal

from llamaherd.diagnostics.findings import Finding, Place, Rule, Severity
from llamaherd.inventory.schema.software import BuiltFlags
from llamaherd.reference import releases
from llamaherd.text.numbers import clamped_number

Kind = Literal["text", "word", "list", "stages", "int", "long", "float", "numbers", "json"]
"""`list` is words with commas between, `stages` is ik_llama.cpp's SPEC[:key=value,…], `numbers` is `1,0.5,1`."""
ValueFault = Literal["number", "choice", "range", "rest"]
"""`rest`: a number with more behind it, which C++ does not read (std::stoi)."""

INTEGER = re.compile(r"\s*([+-]?[0-9]+)")
FLOAT = re.compile(
    r"\s*[+-]?(?:\d+(?:\.\d*)?(?:e[+-]?\d+)?|\.\d+(?:e[+-]?\d+)?|inf(?:inity)?|nan)", re.IGNORECASE | re.ASCII
)
SYNONYMS = ("enabled", "true", "1", "disabled", "false", "0", "-1")
"""Other words for `on`, `off` and `auto`, which messages leave out."""
BITS: Mapping[str, int] = {"int": 31, "long": 64}


@dataclass(frozen=True)
class Value:
    """The values that a flag accepts. With a number kind, `choices` are words that it accepts as well."""

    kind: Kind = "text"
    choices: tuple[str, ...] = ()
    minimum: int | None = None
    maximum: int | None = None
    refused: int | None = None

    def wrong(self, text: str) -> ValueFault | None:
        """Return the fault of a value; None if the engine accepts all of it."""
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

    def _wrong_word(self, text: str) -> ValueFault | None:
        words = text.split(",") if self.kind == "list" else [text.split(":")[0] if self.kind == "stages" else text]
        return None if all(word in self.choices for word in words) else "choice"

    def _wrong_number(self, text: str) -> ValueFault | None:
        whole = self.kind in BITS
        found = (INTEGER if whole else FLOAT).match(text)
        if not found:
            return "number"
        if whole:
            number = clamped_number(found[1], 1 << 64)
            low = -(1 << BITS[self.kind]) if self.minimum is None else self.minimum
            high = (1 << BITS[self.kind]) - 1 if self.maximum is None else self.maximum
            if not low <= number <= high or number == self.refused:
                return "range"
        return "rest" if found.end() < len(text) else None

    @property
    def says(self) -> str:
        """The accepted values, for a message."""
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
    """One flag of one version: its spellings, its values, and the engine's own notes on it."""

    spellings: tuple[str, ...]
    negated: tuple[str, ...] = ()
    values: tuple[Value, ...] = ()
    env: str = ""
    removed: str = ""
    """The replacement that the engine names: it only recognises the flag to refuse it."""
    deprecated: str = ""
    idle: bool = False
    repeats: bool = False
    """A second occurrence adds to the first; other flags overwrite."""
    ends: bool = False
    optional: bool = False
    """The value is optional."""
    many: bool = False
    """Takes all values that follow, at least one."""


@dataclass(frozen=True, eq=False)
class Catalogue:
    """The flags of one engine at one version, by every spelling. Each is equal to itself alone."""

    kind: str
    version: str
    flags: Mapping[str, Flag]
    date: str = ""
    dialect: str = ""
    complete: bool = True
    """Whether the engine refuses a flag that is not in the catalogue."""
    exact: bool = True
    """Whether it is of the requested version. Otherwise it is of the newest version before that."""
    requested: str = ""
    """The requested version, if that is newer than this one."""
    listed: bool = False
    """Whether the flags are those that the built engine lists. Their values are those of the nearest known version."""
    following: Catalogue | None = None
    """The next newer catalogue, if the requested version lies between the two."""
    dashes: bool = True
    """`--ctx_size` is `--ctx-size`."""
    equals: bool = False
    """The engine accepts `--flag=value`."""
    positional: int = 0
    """The number of words that may stand without a flag."""
    env: Literal["below", "above", ""] = ""
    """`below` if the command line beats LLAMA_ARG_ variables, `above` if they beat it."""
    environment: frozenset[str] = field(default=frozenset())
    booleans: frozenset[str] = field(default=frozenset())

    def __str__(self) -> str:
        return f"{self.kind} {self.version}"

    @property
    def outdated(self) -> bool:
        """True if the requested version may be newer than every known catalogue, and accept more values."""
        return bool(self.requested) and self.following is None

    def may_know(self, spelling: str) -> bool:
        """Return whether the requested version may have a flag that this catalogue lacks."""
        if self.listed:
            return False
        return self.outdated or (self.following is not None and self.following.knows(spelling))

    @property
    def decided_by(self) -> str:
        """Return the help line for what only the engine itself can decide."""
        return f"`--help` of {self.requested} lists what it takes; `herd up` checks it on the host before a switch"

    def find(self, spelling: str) -> Flag | None:
        """Return the flag of that spelling, also a removed one; None if this version has no such flag."""
        if self.dashes and spelling.startswith("--"):
            spelling = spelling.replace("_", "-")
        if self.equals:
            spelling = spelling.split(".")[0]  # vLLM: one key of a flag that takes JSON, `--compilation-config.level 3`
        return self.flags.get(spelling)

    def knows(self, spelling: str) -> bool:
        """Return whether the flag can be used."""
        flag = self.find(spelling)
        return flag is not None and not flag.removed

    def accepts(self, spelling: str, value: str) -> bool:
        """Return whether the flag accepts a value."""
        flag = self.find(spelling)
        return flag is not None and bool(flag.values) and flag.values[-1].wrong(value) is None

    def first(self, *candidates: str) -> str | None:
        """Return the first of these spellings that can be used."""
        return next((spelling for spelling in candidates if self.knows(spelling)), None)


@dataclass(frozen=True)
class Problem:
    """One fault in a list of arguments: its place, one sentence and a help."""

    rule: Rule
    index: int
    """The index of the first argument concerned."""
    length: int
    """The number of arguments concerned."""
    message: str
    help: str
    unusual: Severity | None = None
    """The severity, if it differs from the rule's default."""
    replacement: tuple[str, ...] | None = None
    """The arguments to write instead; empty to leave them out; None if that is not certain."""

    @property
    def severity(self) -> Severity:
        """The severity."""
        return self.rule.graded(self.unusual)

    def at(self, place: Place) -> Finding:
        """Return the finding at a place."""
        return self.rule.at(place, self.message, self.help, self.unusual)


DATE = re.compile(r"\d{4}-\d\d-\d\d")
COMMIT = re.compile(r"[0-9a-f]{7,40}")
RELEASE = re.compile(r"v?(\d{1,9}(?:\.\d{1,9})+)")
_FOLDER = files("llamaherd.engines.flags").joinpath("catalogues")


def catalogue(kind: str, version: str) -> Catalogue | None:
    """Return the flags of an engine: of that version, or of the newest known before it (`exact` is false then).

    A version of llama.cpp is a build number (`b11434`) or release (`v1.0.0`), of vLLM a release, of ik_llama.cpp a
    commit, a date (`2026-08-15`) or its way to spell MTP (`mtp`, `spec-stage`, `spec-type`).
    None for a version that is older than all, or has no known age, such as an unknown commit.
    """
    if very := _brought(kind, version):
        return very
    known = catalogues(kind)
    same = [one for one in known if version in (one.version, one.dialect) or _same_commit(one, version)]
    if same:
        return same[-1]
    requested = _order(kind, version)
    if requested is None:
        return None
    older = [one for one in known if _age(one) <= requested]
    if not older:
        return None
    if kind != "ik_llama.cpp" and _age(older[-1]) == requested:
        return older[-1]
    following = known[len(older)] if len(older) < len(known) else None
    return replace(older[-1], exact=False, requested=version, following=following)


@cache
def assumed(kind: str, version: str | None) -> Catalogue:
    """Return the flags to assume for a version: the oldest for one before all, the newest for one of unknown age.

    The latter may have more flags, and is not `complete`.
    """
    if version and (found := catalogue(kind, version)):
        return found
    known = catalogues(kind)
    if version and _order(kind, version):
        return replace(known[0], exact=False)
    return replace(known[-1], exact=False, complete=False)


@cache
def catalogues(kind: str) -> tuple[Catalogue, ...]:
    """Return all known catalogues of an engine, the oldest first."""
    return tuple(sorted((_read(kind, name) for name in _names(kind)), key=_age))


@cache
def _names(kind: str) -> tuple[str, ...]:
    """Return the names of an engine's catalogues: versions, or the beginnings of commits."""
    files = [path.name for path in _FOLDER.iterdir() if path.name.startswith(f"{kind}-")]
    return tuple(name.removeprefix(f"{kind}-").removesuffix(".json") for name in files)


def _brought(kind: str, version: str) -> Catalogue | None:
    """Return the catalogue of this version without reading the others: a run needs one of many."""
    commit = COMMIT.fullmatch(version)
    same = [
        name
        for name in _names(kind)
        if name == version or (commit and COMMIT.fullmatch(name) and version.startswith(name))
    ]
    return _read(kind, same[0]) if same else None


@cache
def _read(kind: str, name: str) -> Catalogue:
    """Return a catalogue from its file. A file with a `base` contains only the differences from it."""
    data = json.loads(_FOLDER.joinpath(f"{kind}-{name}.json").read_text(encoding="utf-8"))
    base = _brought(kind, data["base"]) if "base" in data else None
    flags = dict(base.flags) if base else {}
    for one in data["flags"]:
        flag = _flag(one)
        flags |= dict.fromkeys((*flag.spellings, *flag.negated), flag)
    about = {name: value for name, value in data.items() if name not in ("flags", "base", "source")}
    for name in ("environment", "booleans"):
        about[name] = frozenset(data.get(name, getattr(base, name, ())))
    about["environment"] |= {flag.env for flag in flags.values() if flag.env}
    return Catalogue(flags=flags, **about)


def _flag(data: Mapping[str, Any]) -> Flag:
    values = tuple(Value(**(one | {"choices": tuple(one.get("choices", ()))})) for one in data.get("values", ()))
    names = {name: tuple(data.get(name, ())) for name in ("spellings", "negated")}
    return Flag(**(dict(data) | names | {"values": values}))


def _same_commit(one: Catalogue, version: str) -> bool:
    both = COMMIT.fullmatch(version) and COMMIT.fullmatch(one.version)
    return bool(both) and (version.startswith(one.version) or one.version.startswith(version))


def _age(one: Catalogue) -> tuple[int, ...]:
    """Return the key by which catalogues of one engine are sorted."""
    order = _order(one.kind, one.date if one.kind == "ik_llama.cpp" else one.version)
    assert order is not None, f"{one} has no place among the others"
    return order


def _order(kind: str, version: str) -> tuple[int, ...] | None:
    """Return a version as numbers; None if its form contains no age."""
    if kind == "ik_llama.cpp":
        return tuple(int(part) for part in version.split("-")) if DATE.fullmatch(version) else None
    if kind == "llama.cpp":
        return releases.release_order(version)
    found = RELEASE.fullmatch(version)
    return tuple(int(part) for part in found[1].split(".")) if found else None


MOST_FLAGS, MOST_SPELLINGS, MOST_VALUES = 1000, 12, 4
MOST_HELP = 64_000
"""Bytes of `--help` without descriptions that are read; b11434 has 9,000."""
_SPELLING = r"--?[A-Za-z][A-Za-z0-9._-]{0,62}"
SPELLINGS = re.compile(rf"{_SPELLING}(?: {_SPELLING}){{0,{MOST_SPELLINGS - 1}}}", re.ASCII)
"""All spellings of one flag, in the file that keeps them."""
_LINE = re.compile(rf"{_SPELLING}(?:, *{_SPELLING})*(?= |$)", re.ASCII)


def parse_help(text: str) -> BuiltFlags:
    """Return the flags of `llama-server --help`, each with its spellings and the number of its values.

    Lines that are not of the known form are skipped, and so is all beyond the bounds.
    """
    found: dict[tuple[str, ...], int] = {}
    for line in text[:MOST_HELP].splitlines():
        column = re.split(r"  +(?=[^-\s])", line[:400])[0].rstrip()
        match = _LINE.match(column)
        spellings = tuple(re.split(", *", match[0])) if match else ()
        if match and len(spellings) <= MOST_SPELLINGS and len(found) < MOST_FLAGS:
            hint = column[match.end() :].strip()
            values = 1 if hint[:1] in tuple("<[{") else len(hint.split())
            found[spellings] = min(values, MOST_VALUES)
    return tuple(sorted(found.items()))


def flags_as_mapping(built: BuiltFlags) -> dict[str, int]:
    """Return the flags for a file: the number of values by all spellings, with blanks between."""
    return {" ".join(spellings): values for spellings, values in built}


def flags_of_mapping(flags: Mapping[str, int]) -> BuiltFlags:
    """Return the flags from the mapping of `flags_as_mapping`."""
    return tuple(sorted((tuple(spellings.split(" ")), values) for spellings, values in flags.items()))


@lru_cache(maxsize=64)
def catalogue_of_build(known: Catalogue, version: str, built: BuiltFlags) -> Catalogue:
    """Return the catalogue of a build that lists these flags; what they take is read from the nearest known version."""
    flags: dict[str, Flag] = {spelling: flag for spelling, flag in known.flags.items() if flag.removed}
    for spellings, values in built:
        same = sorted((flag for each in spellings if (flag := known.find(each))), key=lambda flag: bool(flag.removed))
        flag = same[0] if same else Flag(spellings)
        if flag.removed:
            continue  # `--help` lists it, with a description that it is removed
        if len(flag.values) != values and not flag.optional and not flag.many:
            flag = replace(flag, values=(Value(),) * values)
        flags |= dict.fromkeys(spellings, flag)
    return replace(
        known, version=version, flags=flags, requested=version, following=None, exact=True, complete=True, listed=True
    )
