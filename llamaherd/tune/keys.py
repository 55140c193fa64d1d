"""A candidate in the words of an inventory: an instance with its keys, and settings that say the same. Pure."""

from __future__ import annotations

from typing import Any

from llamaherd.inventory.schema import Instance
from llamaherd.inventory.settings import Setting
from llamaherd.tune.candidate import Candidate, Value

_PARTS = {"draft": ("draft.mtp", "draft.model")}
"""Mappings that mean nothing without one of these keys."""


def settings_of(candidate: Candidate, declared: Candidate) -> tuple[Setting, ...]:
    """What is to be said beside the inventory, for an instance that has the keys of `declared`."""
    changed = candidate.besides(declared)
    gone = [part for part, needs in _PARTS.items() if all(candidate[key] is None for key in needs)]
    found = [
        _setting(key, value) for key, value in changed.items() if key.partition(".")[0] not in gone or "." not in key
    ]
    had = [part for part in gone if any(declared[key] is not None for key in _PARTS[part])]
    return (*found, *(_setting(part, None) for part in had))


def with_keys(instance: Instance, candidate: Candidate) -> Instance:
    """The instance with a candidate's keys. Raises ValueError, as its model does."""
    data: dict[str, Any] = instance.model_dump(exclude_none=True)
    for key, value in candidate.keys:
        part, _, last = key.rpartition(".")
        at = data.setdefault(part, {}) if part else data
        if value is None:
            at.pop(last, None)
        else:
            at[last] = value
    for part, needs in _PARTS.items():
        if all(candidate[key] is None for key in needs if key in dict(candidate.keys)):
            data.pop(part, None)
    return Instance.model_validate(data)


def _setting(key: str, value: Value) -> Setting:
    said = list(value) if isinstance(value, tuple) else value
    shown = "null" if value is None else str(Candidate.of({key: value})).partition("=")[2]
    return Setting(tuple(key.split(".")), said, f"{key}={shown}")
