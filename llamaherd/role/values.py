"""Values that a change replaces: arguments and other settings of a server, each with its old and its new value."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from llamaherd.inventory.schema import Source
from llamaherd.plan import InstancePlan, Plan

_NUMBER = re.compile(r"-\.?[0-9].*")
"""A value that begins like a flag, such as the seed -1."""

_SECRET = re.compile(
    r"(?:^|[-_])(?:(?:api)?keys?|token|passw(?:or)?ds?|passphrase|pass|auth|cookie|credentials?)$|secret", re.IGNORECASE
)
"""Names of arguments and variables whose values are never shown."""

_BUILD = re.compile(r".*/builds/([^/]+)/bin/[^/]+")
_DERIVED = ("build", "--models-preset")
"""Keys whose values are hashes of other settings."""

HIDDEN = "…"
"""Stands for a value that may be a secret."""


@dataclass(frozen=True)
class ValueChange:
    """One setting with its old and its new value; None where it is absent. A flag without a value has an empty one."""

    key: str
    old: str | None
    new: str | None


def argument_changes(old: Sequence[str], new: Sequence[str]) -> tuple[ValueChange, ...]:
    """Return how two command lines differ, flag by flag; nothing for flags that only stand in another order."""
    return _differences(_flags(old), _flags(new))


def command_changes(old: Sequence[str], program: str | None, new: Sequence[str]) -> tuple[ValueChange, ...]:
    """Return how a running command line differs from a planned one: its build, and its arguments.

    In a container, an image's own program may come first: without a planned `program`, only flags are compared.
    """
    if not old:
        return ()
    if program is None:
        return argument_changes(_from_first_flag(old), _from_first_flag(new))
    was, now = (_BUILD.fullmatch(path) for path in (old[0], program))
    build = (ValueChange("build", was[1], now[1]),) if was and now and was[1] != now[1] else ()
    return (*build, *argument_changes(old[1:], new))


def _from_first_flag(words: Sequence[str]) -> Sequence[str]:
    return words[next((number for number, word in enumerate(words) if _is_flag(word)), len(words)) :]


def instance_changes(before: Plan, after: Plan, service: str) -> tuple[ValueChange, ...]:
    """Return how the settings of a server differ between two plans; nothing if one plan lacks the server."""
    was, now = _instance(before, service), _instance(after, service)
    if was is None or now is None:
        return ()
    members = {each.name: each.arguments for each in was.members}
    of_members = (
        replace(change, key=f"{each.name} {change.key}")
        for each in now.members
        if each.name in members
        for change in argument_changes(members[each.name], each.arguments)
    )
    return (
        *_differences(_settings(before, was), _settings(after, now)),
        *argument_changes(was.server.arguments, now.server.arguments),
        *of_members,
    )


def merged_changes(*several: Sequence[ValueChange]) -> tuple[ValueChange, ...]:
    """Return all changes, each key once: the first counts. A value that only follows from others is left out."""
    found: dict[str, ValueChange] = {}
    for each in (change for changes in several for change in changes):
        found.setdefault(each.key, each)
    causes = [key for key in found if key not in _DERIVED]
    return tuple(each for key, each in found.items() if not causes or key in causes)


def _instance(plan: Plan, service: str) -> InstancePlan | None:
    return next((each for each in plan.instances if each.service == service), None)


def _settings(plan: Plan, instance: InstancePlan) -> dict[str, str]:
    """Return the settings of an instance that are no arguments."""
    build = next((each for each in plan.builds if each.id == instance.build), None)
    limits = instance.server.limits.model_dump(exclude_none=True)
    own = {
        "engine": instance.engine,
        "backend": instance.backend,
        "model": instance.model,
        "image": "" if instance.build else instance.server.image or "",
        **({"version": _version(build.source)} if build else {}),
        **({f"-D{name}": value for name, value in build.options.items()} if build else {}),
        **({"release": build.release.tag} if build and build.release else {}),
        **instance.server.environment,
        **{f"limit {name.replace('_', ' ')}": str(value) for name, value in limits.items()},
    }
    return {name: value for name, value in own.items() if value}


def _version(source: Source) -> str:
    """Return the shortest name of a version of an engine's source."""
    number = source.version.number if source.version else None
    return source.ref or (f"b{number}" if number else "") or (source.commit or source.sha256 or "")[:12]


def _flags(words: Sequence[str]) -> dict[str, str]:
    """Return the values of each flag of a command line, joined; words before the first flag have an empty key."""
    found: dict[str, list[str]] = {}
    flag, values = "", list[str]()
    for word in words:
        if _is_flag(word):
            found.setdefault(flag, []).append(" ".join(values))
            flag, joined, value = word.partition("=")
            values = [value] if joined else []
        else:
            values.append(word)
    found.setdefault(flag, []).append(" ".join(values))
    return {name: ", ".join(each) for name, each in found.items() if name or any(each)}


def _is_flag(word: str) -> bool:
    return len(word) > 1 and word.startswith("-") and not _NUMBER.fullmatch(word)


def _differences(old: Mapping[str, str], new: Mapping[str, str]) -> tuple[ValueChange, ...]:
    keys = (key for key in dict.fromkeys((*new, *old)) if old.get(key) != new.get(key))
    return tuple(
        ValueChange(
            key, *(HIDDEN if value and _SECRET.search(key) else value for value in (old.get(key), new.get(key)))
        )
        for key in keys
    )
