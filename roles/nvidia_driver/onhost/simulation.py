"""What `apt-get -s install` reports that it would do, and what of it does not belong to a driver."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase

from roles.nvidia_driver.onhost import upstream

_LINE = re.compile(r"(Inst|Remv|Purg) (\S+)(?: (\[))?[^(]*(?:\((\S+))?")
_DRIVER = re.compile(r"[0-9]{3}\.[0-9]")


@dataclass(frozen=True)
class Names:
    """Patterns of names of packages, as shells match them."""

    parts: tuple[str, ...]
    """Of a driver."""
    desktop: tuple[str, ...]
    """Of these, what a desktop needs."""
    never: tuple[str, ...]
    """Packages that bring a driver of their own choice."""
    tools: tuple[str, ...]
    """Parts that work with any driver."""


@dataclass(frozen=True)
class Action:
    """What would be done with one package: `Inst`, `Remv` or `Purg`, and the version that would come."""

    what: str
    name: str
    is_installed: bool
    version: str = ""


def parse_simulation(output: str) -> list[Action]:
    """Return what apt would do."""
    found = filter(None, map(_LINE.match, output.splitlines()))
    return [Action(each[1], each[2], each[1] != "Inst" or bool(each[3]), upstream(each[4] or "")) for each in found]


def is_named(name: str, patterns: Iterable[str]) -> bool:
    """Return whether a name matches one of some patterns."""
    return any(fnmatchcase(name, each) for each in patterns)


def find_problems(actions: Sequence[Action], names: Names, branch: str) -> Iterator[str]:
    """Return what apt would do besides moving to a branch of the driver."""
    for each in actions:
        if each.what == "Inst":
            yield from _problems_of_new(each, names, branch)
        elif is_named(each.name, names.desktop):
            yield f"would remove {each.name}, which a desktop may stand on"
        elif not is_named(each.name, names.parts):
            yield f"would remove {each.name}, which is no part of a driver"


def _problems_of_new(action: Action, names: Names, branch: str) -> Iterator[str]:
    if is_named(action.name, names.never):
        yield f"would bring {action.name}, which brings a driver of its own choice"
    is_driver = is_named(action.name, names.parts) and not is_named(action.name, names.tools)
    if is_driver and not action.version.startswith(f"{branch}.") and _DRIVER.match(action.version):
        yield f"would bring {action.name} of driver {action.version}"


def replaced_parts(actions: Sequence[Action], names: Names) -> list[str]:
    """Return the parts of a driver that are installed now, and would be replaced or removed."""
    return [each.name for each in actions if each.is_installed and is_named(each.name, names.parts)]


def new_parts(actions: Sequence[Action], names: Names) -> list[str]:
    """Return the parts of a driver that would be new, without tools."""
    new = [each.name for each in actions if not each.is_installed and is_named(each.name, names.parts)]
    return [each for each in new if not is_named(each, names.tools)]
