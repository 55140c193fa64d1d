"""Check the arguments of a server as the engine reads them: flags, values, typography."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from llamaherd.diagnostics.findings import Rule, Severity
from llamaherd.diagnostics.spelling import nearest_name
from llamaherd.engines.flags.advice import advise
from llamaherd.engines.flags.definitions import Catalogue, Flag, Problem, Value
from llamaherd.engines.flags.translations import (
    GONE_SINCE,
    NEEDLESS,
    REMOVED_FLAG,
    UNKNOWN_FLAG,
    Translation,
    flag_origin,
    one_load_mode,
    translate,
)
from llamaherd.reference import releases

SWALLOWS = Rule(
    "LH103",
    "A flag that needs a value takes the next flag for it.",
    why="So `--flash-attn --no-warmup` sets flash attention to `--no-warmup`.",
    example="""
    instances:
      coder: {extra_args: [--cache-ram, --no-slots]}
    """,
    fix="write the value.",
)

MISSING_VALUE = Rule(
    "LH104",
    "A flag that needs a value is the last argument.",
    example="""
    instances:
      coder: {extra_args: [--cache-ram]}
    """,
    fix="write the value.",
)


SWITCH_VALUE = Rule(
    "LH107",
    "A value follows a switch, which takes none.",
    why="`--op-offload 1` is the usual case: the engine takes the 1 for an argument of its own, and does not start.",
    example="""
    instances:
      coder: {extra_args: [--op-offload, "1"]}
    """,
    fix="leave the value out. To switch it off, write `--no-op-offload`.",
)

EQUALS = Rule(
    "LH108",
    "A flag and its value are written with `=`, and this engine needs two arguments.",
    example="""
    instances:
      coder: {extra_args: [--cache-ram=2048]}
    """,
    fix="write two arguments: here `--cache-ram 2048`.",
)

STRAY = Rule(
    "LH109",
    "A word belongs to no flag.",
    example="""
    instances:
      coder: {extra_args: [--no-slots, please]}
    """,
    fix="leave it out, or write the flag before it.",
)

TWICE = Rule(
    "LH110",
    "A flag is given twice, and the last one counts.",
    example="""
    instances:
      coder: {extra_args: [--cache-ram, "2048", --cache-ram, "4096"]}
    """,
    fix="keep one.",
    severity="warning",
)


MANAGED = Rule(
    "LH116",
    "llamaherd sets a flag from a key of the inventory.",
    why="The engine would get it twice, and llamaherd would check and size something else than what runs.",
    example="""
    instances:
      coder: {extra_args: [--batch-size, "1024"]}
    """,
    after="Where the key has another value, that is an error (LH210).",
    fix="write the key of the help line.",
    severity="warning",
)


DASHES = re.compile("^[\N{HYPHEN}\N{NON-BREAKING HYPHEN}\N{EN DASH}\N{EM DASH}\N{MINUS SIGN}]-?")
QUOTES = str.maketrans(
    dict.fromkeys("\N{LEFT DOUBLE QUOTATION MARK}\N{RIGHT DOUBLE QUOTATION MARK}", '"')
    | dict.fromkeys("\N{LEFT SINGLE QUOTATION MARK}\N{RIGHT SINGLE QUOTATION MARK}", "'")
)


TYPOGRAPHY = Rule(
    "LH125",
    "A dash or quotation mark is one of a word processor.",
    why='Blogs and chat programs turn `--` and `"` into similar characters that mean nothing to a command line.',
    example="""
    llama-server -m model.gguf \N{EN DASH}-ctx-size 8192
    """,
    language="sh",
    fix="write the plain characters of the help line.",
)


def typographic_sign(catalogue: Catalogue, argument: str, index: int) -> Problem | None:
    """Return the problem of a dash or quotation mark that a word processor or blog has replaced, if there is one."""
    bare = DASHES.sub("", argument)
    meant = catalogue.first(f"--{bare}", f"-{bare}") if bare != argument else None
    if meant is None and argument.translate(QUOTES) in (argument, ""):
        return None
    if meant:
        return Problem(
            TYPOGRAPHY,
            index,
            1,
            f"`{argument}` begins with a dash that is no hyphen",
            f"write `{meant}`",
            replacement=(meant,),
        )
    way_out = "write plain quotation marks, which a shell removes"
    return Problem(TYPOGRAPHY, index, 1, f"`{argument}` has quotation marks that are none", way_out)


def typographic_quotes(value: str, index: int, length: int) -> Problem | None:
    """Return the problem of a value in quotation marks of a word processor, which no shell removes."""
    plain = value.translate(QUOTES)
    if plain == value or plain[:1] not in ("'", '"'):
        return None
    message = f"`{value}` has quotation marks that are none: they are a part of the value"
    return Problem(TYPOGRAPHY, index, length, message, "write plain quotation marks, or none")


JOINED = Rule(
    "LH255",
    "A flag and its value are in one argument.",
    why="""
    An item of a list, or the text in one pair of quotes, is one argument: the engine searches for a flag of that whole
    name.
    """,
    example="""
    services:
      llm:
        image: ghcr.io/ggml-org/llama.cpp:server@sha256:0000000000000000000000000000000000000000000000000000000000000000
        command: ["-m /models/a.gguf", "--host", "0.0.0.0"]
        volumes: ["/srv/models:/models:ro"]
        ports: ["127.0.0.1:8080:8080"]
    """,
    fix="write flag and value as two items.",
)


def joined_value(catalogue: Catalogue, argument: str, index: int) -> Problem | None:
    """Return the problem of a flag and its value in one argument, such as an item of a list or a text in quotes."""
    parts = tuple(argument.split())
    if not parts or parts == (argument,) or catalogue.find(parts[0]) is None:
        return None
    apart = " and ".join(f"`{part}`" for part in parts)
    message = f"`{argument}` is one argument, and {catalogue} needs a flag and its value as two"
    way_out = f"write {apart} as arguments of their own" if len(parts) > 1 else f"write {apart}, without a blank"
    return Problem(JOINED, index, 1, message, way_out, replacement=parts)


@dataclass(frozen=True)
class GivenValue:
    """One value as it is given: to which flag of which version, and where."""

    catalogue: Catalogue
    other: Sequence[Catalogue]
    index: int
    length: int
    flag: str
    text: str

    def problem(self, rule: Rule, message: str, way_out: str, severity: Severity | None = None) -> Problem:
        """Return a problem of the value."""
        return Problem(rule, self.index, self.length, message, way_out, severity)

    @property
    def may_be_taken(self) -> bool:
        """True if the requested version may accept a word that its catalogue does not list."""
        following = self.catalogue.following
        flag = following.find(self.flag) if following else None
        taken = flag is not None and not flag.removed and any(not value.wrong(self.text) for value in flag.values)
        return self.catalogue.outdated or taken


def check_value(given: GivenValue, value: Value) -> Iterator[Problem]:
    """Yield the problem of a value, if it has one."""
    match value.wrong(given.text):
        case "rest":
            yield _cut_short(given, value)
        case "choice":
            yield _no_choice(given, value)
        case "number" | "range":
            yield _no_number(given, value)


CUT_SHORT = Rule(
    "LH111",
    "A number is followed by text that the engine does not read.",
    why="`32k` means 32 to it.",
    example="""
    instances:
      coder: {extra_args: [--cache-ram, 8k]}
    """,
    fix="write the number out.",
    severity="warning",
)


def _cut_short(given: GivenValue, value: Value) -> Problem:
    pattern = r"\s*[+-]?\d+" if value.kind in ("int", "long") else r"\s*[+-]?[\d.]+"
    read = re.match(pattern, given.text)
    taken = read[0].strip() if read else "a number"
    message = f"{given.catalogue.kind} reads `{given.flag} {given.text}` as {taken}"
    behind = given.text[read.end() :] if read else ""
    if re.match(r"--?[a-z]", behind):
        problem = given.problem(CUT_SHORT, message, f"write a blank before `{behind}`")
        return replace(problem, replacement=(given.flag, taken, behind))
    return given.problem(CUT_SHORT, message, "write the number out, without a unit")


NO_NUMBER = Rule(
    "LH105",
    "A value is not a number, or out of its range.",
    why="It is a warning where the version is newer than the catalogues: it may accept more.",
    example="""
    instances:
      coder: {extra_args: [--cache-ram, much]}
    """,
    fix="write a number, as in the help line.",
    sometimes=("warning",),
)


def _no_number(given: GivenValue, value: Value) -> Problem:
    message = f"`{given.flag}` takes {value.says}, not `{given.text}`"
    severity: Severity | None = "warning" if given.may_be_taken else None
    return given.problem(NO_NUMBER, message, f"write {value.says} in its place", severity)


NO_CHOICE = Rule(
    "LH106",
    "A value is not one of those that a flag takes.",
    why="It is a note where the version is newer than the catalogues: it may accept more.",
    example="""
    instances:
      coder: {extra_args: [--reasoning-format, jsno]}
    """,
    fix="write one of the words in the help line.",
    sometimes=("note",),
)


def _no_choice(given: GivenValue, value: Value) -> Problem:
    """Return the problem of a word that the flag does not accept; another version may accept it."""
    takers = [
        one
        for one in given.other
        if one.kind == given.catalogue.kind and (flag := one.find(given.flag)) and flag.values and not flag.removed
        if flag.values[0].choices and flag.values[0].wrong(given.text) is None
    ]
    close = nearest_name(given.text, (choice for choice in value.choices if not choice.lstrip("-").isdigit()))
    if takers:
        way_out = f"{takers[0]} takes it; here, choose one of those"
    else:
        way_out = f"did you mean `{close}`?" if close else "choose one of those"
    message = f"`{given.flag}` takes {value.says}, not `{given.text}`"
    if not given.may_be_taken:
        return given.problem(NO_CHOICE, message, way_out)
    message += f" in {given.catalogue}, and {given.catalogue.requested} is newer"
    return given.problem(NO_CHOICE, message, way_out if close else given.catalogue.decided_by, "note")


FLAG = re.compile(r"--?[A-Za-z][\w.-]*(?:=.*)?", re.DOTALL)
NUMBER = re.compile(r"-(?:inf(?:inity)?|nan)", re.IGNORECASE)
YES, NO = ("1", "on", "true", "enabled", "yes"), ("0", "off", "false", "disabled", "no")
TRUTHS = (*YES, *NO, "auto")


def check_arguments(
    catalogue: Catalogue,
    arguments: Sequence[str],
    other: Sequence[Catalogue] = (),
    managed: Mapping[str, str] | None = None,
) -> tuple[Problem, ...]:
    """Return what is wrong or doubtful in a server's arguments (without the program), in their order.

    `other` are catalogues of other engines and versions, to find the origin of a flag. `managed` names the key of the
    inventory from which llamaherd sets a flag, by any of its spellings. Severity `error` is for arguments that the
    engine refuses, or surely interprets differently.
    """
    reader = _Reader(catalogue, tuple(arguments), tuple(other), managed or {})
    problems = sorted(reader.problems(), key=lambda problem: (problem.index, problem.rule.code))
    return one_load_mode(catalogue, reader.arguments, problems)


class _Reader:
    """One pass over a list of arguments, from left to right as engines read them."""

    def __init__(
        self, catalogue: Catalogue, arguments: tuple[str, ...], other: tuple[Catalogue, ...], managed: Mapping[str, str]
    ) -> None:
        self.catalogue = catalogue
        self.arguments = arguments
        self.other = other
        self.managed = {flag: key for name, key in managed.items() if (flag := catalogue.find(name))}
        self.first_uses: dict[Flag, int] = {}
        self.words = 0
        self.next = 0

    def problems(self) -> Iterator[Problem]:
        """Yield each problem, in the order of the arguments."""
        while self.next < len(self.arguments):
            index = self.next
            flag = self.catalogue.find(self.arguments[index])
            self.next += 1
            if problem := typographic_sign(self.catalogue, self.arguments[index], index):
                yield problem
                meant = self.catalogue.find(problem.replacement[0]) if problem.replacement else None
                self.skip(len(meant.values) if meant else 0)
            elif translation := translate(self.catalogue, self.arguments, index):
                yield self.translated(index, flag, translation)
            elif flag is None:
                yield from self.unknown(index)
            elif flag.removed:
                yield self.removed(index, flag)
            else:
                yield from self.known(index, flag)

    def is_flag(self, argument: str) -> bool:
        """Return whether an argument is surely a flag, and not a value that begins with a dash."""
        if self.catalogue.find(argument) or any(one.find(argument) for one in self.other):
            return True
        return bool(FLAG.fullmatch(argument)) and not NUMBER.fullmatch(argument)

    def skip(self, most: int) -> None:
        """Skip the likely values of an unknown flag."""
        while most and self.next < len(self.arguments) and not self.is_flag(self.arguments[self.next]):
            self.next += 1
            most -= 1

    # Flags that this engine does not have

    def translated(self, index: int, flag: Flag | None, translation: Translation) -> Problem:
        """Return the problem of a flag of other versions or engines, or of one that only recipes have."""
        self.next = index + translation.length
        meant = self.arguments[index : self.next]
        severity: Severity = "error"
        if flag is None:
            rule, why = flag_origin(self.catalogue, self.other, meant[0])
            message = f"`{meant[0]}` is not known to {self.catalogue}: {why}"
            severity = "warning" if self.lacking(meant[0], rule)[1] else "error"
        elif flag.removed:
            rule, message = REMOVED_FLAG, f"`{meant[0]}` has been removed from {self.catalogue}"
        elif not flag.values:
            rule, message = SWITCH_VALUE, f"`{meant[0]}` is a switch in {self.catalogue} and takes no value"
        elif len(meant) == 1:
            rule, message = self.short_of_value(index, flag)
        else:
            rule = NO_CHOICE
            message = f"`{meant[0]}` takes {flag.values[0].says} in {self.catalogue}, not `{meant[1]}`"
            severity = "note" if self.catalogue.outdated else "error"
        replacement = translation.replacement
        return Problem(
            rule, index, translation.length, message, f"write `{shlex.join(replacement)}`", severity, replacement
        )

    def unknown(self, index: int) -> Iterator[Problem]:
        """Yield the problem of a misspelt flag, of one that only other engines or versions have, or of a stray word."""
        argument = self.arguments[index]
        name, equals, value = argument.partition("=")
        if equals and FLAG.fullmatch(argument):
            yield from self.joined(index, name, value)
            return
        if not self.is_flag(argument):
            yield from self.stray(index)
            return
        rule, why = flag_origin(self.catalogue, self.other, argument)
        message = f"`{argument}` is not known to {self.catalogue}: {why}"
        severity, undecided = self.lacking(argument, rule)
        theirs = next((flag for one in self.other if (flag := one.find(argument))), None)
        self.skip(len(theirs.values) if theirs else len(self.arguments) if undecided else 1)
        length = self.next - index
        message += undecided
        if argument in NEEDLESS:
            yield Problem(rule, index, length, message, f"leave it out: {NEEDLESS[argument]}", severity, ())
            return
        if rule is UNKNOWN_FLAG and (meant := self.nearest(argument)):
            yield Problem(rule, index, length, message, f"did you mean `{meant}`?", severity)
        elif undecided:
            yield Problem(rule, index, length, message, self.catalogue.decided_by, severity)
        else:
            yield Problem(rule, index, length, message, "leave it out, or use an engine that has it", severity)

    def lacking(self, spelling: str, rule: Rule) -> tuple[Severity, str]:
        """Return how bad it is that the catalogue lacks a flag, and why the version itself may have it, if it may."""
        requested, following = self.catalogue.requested, self.catalogue.following
        if following and following.knows(spelling):
            return "warning", f", and {requested} is between the two"
        if self.catalogue.may_know(spelling) and rule is not REMOVED_FLAG:
            return "note" if rule is UNKNOWN_FLAG else "warning", f", and {requested} is newer than all of them"
        return "error" if self.catalogue.complete else "warning", ""

    def nearest(self, argument: str) -> str | None:
        """Return the intended flag, if the argument can only be a typing error."""
        if same := self.catalogue.first(f"-{argument}", argument.removeprefix("-")):
            return same
        return nearest_name(argument, sorted(name for name, flag in self.catalogue.flags.items() if not flag.removed))

    def joined(self, index: int, name: str, value: str) -> Iterator[Problem]:
        """Yield the problems of `--flag=value`, read as two arguments if the engine accepts it."""
        flag = self.catalogue.find(name)
        if not self.catalogue.equals or flag is None:
            known = f"{self.catalogue} needs a flag and its value as two arguments"
            instead = self.apart(name, value)
            if instead:
                way_out = f"write `{shlex.join(instead)}`"
            else:
                way_out = f"leave it out: `{name}` is no flag here, or off without it"
            message = f"`{name}=…` is one argument, and {known}"
            yield Problem(EQUALS, index, 1, message, way_out, replacement=instead)
        elif flag.values:
            yield from check_value(GivenValue(self.catalogue, self.other, index, 1, name, value), flag.values[0])

    def apart(self, name: str, value: str) -> tuple[str, ...]:
        """Return `--flag=value` as arguments that the engine accepts; empty if there are none."""
        if translation := translate(self.catalogue, (name, value), 0):
            return translation.replacement
        flag = self.catalogue.find(name)
        if flag is None and self.catalogue.may_know(name):
            return (name, value)
        if flag and not flag.values and value.lower() in TRUTHS:
            opposite = flag.spellings if name in flag.negated else flag.negated
            return opposite[-1:] if value.lower() in NO else (name,)
        return (name, value) if flag and not flag.removed else ()

    def stray(self, index: int) -> Iterator[Problem]:
        """Yield the problem of a word without a flag."""
        self.words += 1
        if problem := joined_value(self.catalogue, self.arguments[index], index):
            yield problem
        elif self.words > self.catalogue.positional:
            argument = self.arguments[index]
            yield Problem(
                STRAY,
                index,
                1,
                f"`{argument}` belongs to no flag",
                "remove it, or put it into quotes with the value it is a part of",
            )

    def removed(self, index: int, flag: Flag) -> Problem:
        """Return the problem of a removed flag, which the engine only recognises to refuse it."""
        self.skip(len(flag.values))
        name = self.arguments[index]
        return Problem(
            REMOVED_FLAG,
            index,
            self.next - index,
            f"`{name}` has been removed from {self.catalogue}",
            f"{self.catalogue.kind} says: {flag.removed}",
        )

    # Flags that it has

    def known(self, index: int, flag: Flag) -> Iterator[Problem]:
        """Yield the problems of a usable flag and its values."""
        name = self.arguments[index]
        if gone := self.gone(name):
            self.skip(len(flag.values))
            message = f"`{name}` is gone since {gone}, and this is {self.catalogue.kind} {self.catalogue.requested}"
            yield Problem(REMOVED_FLAG, index, self.next - index, message, "leave it out", replacement=())
            return
        values = []
        for value in flag.values:
            if self.next >= len(self.arguments) or self.swallowed(flag, value):
                if not flag.optional:
                    yield self.without_value(index, flag)
                break
            text = self.arguments[self.next]
            self.next += 1
            values.append(text)
            if problem := typographic_quotes(text, index, self.next - index):
                yield problem
                continue
            yield from check_value(GivenValue(self.catalogue, self.other, index, self.next - index, name, text), value)
        if flag.many:
            self.skip(len(self.arguments))
        yield from self.switch(index, flag)
        yield from self.given(index, flag)
        yield from advise(self.catalogue, index, name, flag, values, self.arguments)

    def gone(self, name: str) -> str:
        """Return the build that removed a flag, if that is older than the version; else an empty text."""
        since = GONE_SINCE.get(name.replace("_", "-"), "") if self.catalogue.kind == "llama.cpp" else ""
        requested = releases.release_order(self.catalogue.requested)
        return since if since and requested and requested >= (releases.release_order(since) or requested) else ""

    def swallowed(self, flag: Flag, value: Value) -> bool:
        """Return whether the next argument, which the engine would read as the value, is another flag."""
        following = self.arguments[self.next]
        if value.kind != "text" and value.wrong(following) is None:
            return False
        known = self.catalogue.find(following) is not None or any(one.find(following) for one in self.other)
        if flag.optional or value.kind != "text":
            return self.is_flag(following)
        return known or (following.startswith("--") and self.is_flag(following))

    def short_of_value(self, index: int, flag: Flag) -> tuple[Rule, str]:
        """Return the consequence of a missing value."""
        name, says = self.arguments[index], flag.values[0].says if flag.values[0].kind != "text" else "a value"
        if index + 1 < len(self.arguments):
            following = self.arguments[index + 1]
            return SWALLOWS, f"`{name}` needs {says} and takes `{following}` for it"
        return MISSING_VALUE, f"`{name}` needs {says}, and nothing follows"

    def without_value(self, index: int, flag: Flag) -> Problem:
        """Return the problem of a flag without its value. Suggest `on` if that is a possible value."""
        rule, message = self.short_of_value(index, flag)
        name = self.arguments[index]
        if "on" in flag.values[0].choices:
            return Problem(rule, index, 1, message, f"write `{name} on`", replacement=(name, "on"))
        return Problem(rule, index, 1, message, f"give it a value, or leave `{name}` out")

    def switch(self, index: int, flag: Flag) -> Iterator[Problem]:
        """Yield the problem of a truth value after a switch."""
        following = self.arguments[self.next] if self.next < len(self.arguments) else ""
        if flag.values or following.lower() not in TRUTHS:
            return
        self.next += 1
        name = self.arguments[index]
        opposite = flag.spellings if name in flag.negated else flag.negated
        if following.lower() in NO:
            replacement: tuple[str, ...] = opposite[-1:]
            way_out = f"write `{opposite[-1]}`" if opposite else f"leave `{name}` out: it is off without it"
        else:
            replacement = (name,)
            way_out = f"write `{name}` alone"
        message = f"`{name}` is a switch and takes no value; `{following}` is left over"
        yield Problem(SWITCH_VALUE, index, 2, message, way_out, replacement=replacement)

    def given(self, index: int, flag: Flag) -> Iterator[Problem]:
        """Yield the problems of a repeated flag, and of a flag that llamaherd sets."""
        name = self.arguments[index]
        first = self.first_uses.setdefault(flag, index)
        if first != index and not flag.repeats:
            before = self.arguments[first]
            yield Problem(
                TWICE,
                index,
                self.next - index,
                f"`{name}` was given before" + (f", as `{before}`" if before != name else "") + "; the last one wins",
                "keep one of them",
            )
        if key := self.managed.get(flag):
            yield Problem(
                MANAGED,
                index,
                self.next - index,
                f"`{name}` is what llamaherd sets from the key `{key}`",
                f"write the key `{key}` instead",
            )
