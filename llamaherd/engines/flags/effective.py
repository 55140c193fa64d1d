"""The effective options of a server, from command line and environment, and the conflicts among them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Literal

from llamaherd.diagnostics.findings import Finding, Place, Rule, Severity
from llamaherd.engines.flags.definitions import Catalogue, Flag
from llamaherd.engines.flags.environment import FALSE, TRUE, flag_of_variable
from llamaherd.engines.flags.translations import SWITCHES, load_mode, translate
from llamaherd.text.numbers import clamped_number

OFF = ("off", "0", "false", "disabled")
"""The values that switch an option off."""


@dataclass(frozen=True)
class Option:
    """One option of a server, with the argument or the variable that sets it."""

    flag: Flag
    words: tuple[str, ...]
    """The option as it is written, with its values; `NAME=VALUE` of a variable."""
    values: tuple[str, ...]
    on: bool
    """False if the negation of a switch is written."""
    origin: Literal["argument", "environment"]
    index: int
    """The index of the argument, or of the variable in the environment."""

    @property
    def value(self) -> str:
        """The only value; empty for a switch."""
        return self.values[0] if self.values else ""

    def __str__(self) -> str:
        if {"--api-key", "--hf-token"} & set(self.flag.spellings):
            return f"`{self.words[0].partition('=')[0]}`"  # its value is a secret
        return f"`{' '.join(self.words)}`"


@dataclass(frozen=True)
class EffectiveOptions:
    """The options that take effect: the last of several, and of command line and environment the one that wins.

    In llama.cpp the command line beats LLAMA_ARG_ variables (b11434, common/arg.cpp:720-765); in ik_llama.cpp they beat
    it, as they are read again after it (67268c8fd, examples/server/server.cpp:447-453).
    """

    catalogue: Catalogue
    said: tuple[Option, ...]
    """All options, in the order in which the engine reads them."""
    environment: Mapping[str, str] = field(default_factory=dict)

    def get(self, *spellings: str) -> Option | None:
        """Return the option that takes effect, by any of its spellings; None if the default does."""
        return next(iter(reversed(self.every(*spellings))), None)

    def every(self, *spellings: str) -> tuple[Option, ...]:
        """Return all occurrences of an option, for options that add up."""
        flags = {id(flag) for spelling in spellings if (flag := self.catalogue.find(spelling))} & self._flags
        return tuple(option for option in self.said if id(option.flag) in flags) if flags else ()

    @cached_property
    def _flags(self) -> frozenset[int]:
        """The identities of all flags that are set: rules query many more, and a flag is slow to hash."""
        return frozenset(id(option.flag) for option in self.said)

    def text(self, *spellings: str) -> str:
        """Return the value that takes effect; empty if there is none."""
        option = self.get(*spellings)
        return option.value if option else ""

    def number(self, *spellings: str, default: int) -> int:
        """Return the value that takes effect as a whole number, or the default if it is not one."""
        try:
            return clamped_number(self.text(*spellings))
        except ValueError:
            return default

    def is_on(self, *spellings: str) -> bool:
        """Return whether a switch is on, or an option has a value that means on."""
        option = self.get(*spellings)
        return option is not None and option.on and option.value.lower() not in OFF


def effective_options(
    catalogue: Catalogue, arguments: Sequence[str], environment: Mapping[str, str] | None = None
) -> EffectiveOptions:
    """Return the options that arguments (without the program) and environment set for this version.

    What it would not understand is taken as a version does that has it, or left out.
    """
    by_argument = _with_one_mode(catalogue, tuple(_of_arguments(catalogue, tuple(arguments))))
    by_variable = tuple(_of_environment(catalogue, environment or {}))
    said = (*by_argument, *by_variable) if catalogue.env == "above" else (*by_variable, *by_argument)
    return EffectiveOptions(catalogue, said, environment or {})


def _with_one_mode(catalogue: Catalogue, said: tuple[Option, ...]) -> tuple[Option, ...]:
    """Return the options with former switches combined with earlier ones into one mode of loading."""
    modes: list[str] = []
    options: list[Option] = []
    for option in said:
        if "--load-mode" not in option.flag.spellings:
            options.append(option)
            continue
        switch = option.words[0].replace("_", "-")
        modes.append(switch if switch in SWITCHES else option.value)
        mode = load_mode(catalogue, modes) if switch in SWITCHES and len(modes) > 1 else option.value
        options.append(replace(option, values=(mode,)))
    return tuple(options)


def _of_arguments(catalogue: Catalogue, arguments: tuple[str, ...]) -> Iterator[Option]:
    index = 0
    while index < len(arguments):
        if translation := translate(catalogue, arguments, index):
            words = arguments[index : index + translation.length]
            for option in _of_arguments(catalogue, translation.replacement):
                yield Option(option.flag, words, option.values, option.on, "argument", index)
            index += translation.length
            continue
        name, equals, value = arguments[index].partition("=")
        joined = bool(catalogue.equals and equals and name.startswith("--"))
        flag = catalogue.find(name if joined else arguments[index])
        if flag is None:
            index += 1
            continue
        taken = 0 if joined else _taken(catalogue, flag, arguments[index + 1 : index + 1 + len(flag.values)])
        words = arguments[index : index + 1 + taken]
        values = (value,) if joined else words[1:]
        if not flag.removed and len(values) >= (0 if flag.optional else len(flag.values)):
            spelling = name.replace("_", "-") if catalogue.dashes and name.startswith("--") else name
            yield Option(flag, words, values, spelling not in flag.negated, "argument", index)
        index += 1 + taken


def _taken(catalogue: Catalogue, flag: Flag, following: Sequence[str]) -> int:
    """Return the number of words that are values of a flag; another flag is not a value."""
    taken = 0
    while taken < len(flag.values) and taken < len(following):
        word = following[taken]
        if catalogue.find(word) and flag.values[taken].wrong(word):
            break
        if flag.optional and word.startswith("-"):
            break
        taken += 1
    return taken


def _of_environment(catalogue: Catalogue, environment: Mapping[str, str]) -> Iterator[Option]:
    for index, (name, value) in enumerate(environment.items()):
        flag = flag_of_variable(catalogue, name)
        if flag is None or flag.removed:
            continue
        words = (f"{name}={value}",)
        if name in catalogue.booleans:
            value = "on" if value in TRUE else "off"
        on = flag.env == name and (bool(flag.values) or value.lower() not in FALSE)
        yield Option(flag, words, (value,) if flag.values else (), on, "environment", index)


@dataclass(frozen=True)
class ServerContext:
    """The facts about the place where a server runs; None for unknown facts."""

    cards: int | None = None
    """The number of GPUs that it can use."""
    cores: int | None = None
    """Physical cores of the processor."""
    reachable: bool | None = None
    """Whether other hosts reach it; None if its own address decides."""
    keyed: bool = False
    """Whether it requires a key that its arguments do not contain."""
    tensors: tuple[str, ...] = ()
    """The names of the model's tensors; empty if unknown."""
    shifts: bool | None = None
    """Whether parts of the model's cache can be moved to other positions."""
    trained: int | None = None
    """The length of the context that the model was trained for, in tokens."""
    pools: str | None = None
    """The model's type of pooling, as `--pooling` names it."""
    causal: bool | None = None
    """Whether a token attends only to tokens before it."""
    cached: bool | None = None
    """Whether the engine caches its keys and values."""
    model: str = ""
    """The name of the model, if the arguments have no flag for it."""
    experts_moved: bool = False
    """Whether an override of llamaherd's own, which comes first, keeps experts on the CPU."""


@dataclass(frozen=True)
class Conflict:
    """Options that contradict each other or the rig; the finding is placed at the first one."""

    rule: Rule
    options: tuple[Option, ...]
    message: str
    help: str
    unusual: Severity | None = None
    """The severity, if it differs from the rule's default."""

    @property
    def severity(self) -> Severity:
        """The severity."""
        return self.rule.graded(self.unusual)

    def at(self, place: Place) -> Finding:
        """Return the finding at a place."""
        return self.rule.at(place, self.message, self.help, self.unusual)


ConflictFinder = Callable[[EffectiveOptions, ServerContext], Iterator[Conflict]]
