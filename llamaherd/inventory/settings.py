"""Keys of an instance as somebody says them beside the inventory: `KEY=VALUE`, the value as YAML has it. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from copy import deepcopy
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from llamaherd.diagnostics.findings import Place, UserError
from llamaherd.inventory.yamlfile import Document, Path_, parse

_FORM = "write KEY=VALUE, such as `--with batch=1024` or `--with draft.mtp=2`; null takes a key away"
_DEEPEST = 8


@dataclass(frozen=True)
class Setting:
    """A key of an instance, by its path below it, and its value; None takes it away. `word` is how it was said."""

    path: tuple[str, ...]
    value: Any
    word: str

    def __str__(self) -> str:
        return self.word


def parse_setting(word: str) -> Setting:
    """What `KEY=VALUE` says. Raises UserError, and InventoryError where the value is no YAML."""
    key, equals, text = word.partition("=")
    path = tuple(key.strip().split("."))
    if not equals or not all(path) or len(path) > _DEEPEST or "\n" in text:
        raise UserError(f"`{word}` sets nothing", _FORM)
    value = parse(Path(word), f"value: {text.strip() or 'null'}").data["value"]
    return Setting(path, value, word)


def with_settings(document: Document, instance: str, settings: Sequence[Setting]) -> Document:
    """A rig in which an instance has these keys otherwise; what is wrong with them is told at their own words.

    A rig that has no such instance stays as it is.
    """
    data, keys, values = deepcopy(document.data), dict(document.keys), dict(document.values)
    instances = data.get("instances")
    if not isinstance(instances, dict) or not isinstance(instances.get(instance), dict):
        return document
    for each in settings:
        set_in(instances[instance], each)
        path: Path_ = ("instances", instance, *each.path)
        gone = {at for at in (*keys, *values) if at[: len(path)] == path}
        for places in (keys, values):
            for at in gone & places.keys():
                del places[at]
            places[path] = Place(Path(f"--with {each.word}"))
    return replace(document, data=data, keys=keys, values=values)


def set_in(instance: dict[str, Any], setting: Setting) -> None:
    """Set a key of an instance's data, or take it away."""
    *above, last = setting.path
    at = instance
    for key in above:
        below = at.get(key)
        if not isinstance(below, dict):
            below = at[key] = {}
        at = below
    if setting.value is None:
        at.pop(last, None)
    else:
        at[last] = setting.value
