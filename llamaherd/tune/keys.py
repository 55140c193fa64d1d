"""A candidate in the words of an inventory: an instance with its keys, and settings that say the same. Pure."""

from __future__ import annotations

from typing import Any

from llamaherd.inventory.schema import Instance
from llamaherd.inventory.settings import Setting
from llamaherd.tune.candidate import Candidate, Value

_PARTS = {"draft": ("draft.mtp", "draft.model")}
"""Mappings that mean nothing without one of these keys."""
_TOGETHER = {"on", "split", "tensor_split", "gpu_layers", "experts_on_cpu"}
"""Keys that an instance is refused for together."""


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
    """The instance with a candidate's keys. Raises ValueError, as its model does.

    What it does not change stays as it was read: `45m` is seconds by then, which nobody may write.
    """
    touched = {key.partition(".")[0] for key, _ in candidate.keys} | _TOGETHER
    kept = {name: getattr(instance, name) for name in Instance.model_fields if name not in touched}
    required = {name for name, field in Instance.model_fields.items() if field.is_required()}
    data: dict[str, Any] = instance.model_dump(exclude_none=True, exclude=kept.keys() - required)
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
    return Instance.model_validate(data).model_copy(update=kept)


def _setting(key: str, value: Value) -> Setting:
    said = list(value) if isinstance(value, tuple) else value
    shown = "null" if value is None else str(Candidate.of({key: value})).partition("=")[2]
    return Setting(tuple(key.split(".")), said, f"{key}={shown}")
