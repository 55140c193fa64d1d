"""Inheritance of a rig: from `defaults.yaml`, from the rig that it extends, from its own `instance_defaults`.

Mappings are merged key by key, everything else is replaced, and `null` removes a key. The rig's own file overrides the
rig that it extends, which overrides the defaults. Every value keeps its place in a file, so that findings point there.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import Any, Final

from llamaherd.diagnostics.findings import InventoryError, Place, Rule, nearest
from llamaherd.inventory.yaml_file import TOO_LARGE, Document, Path_
from llamaherd.inventory.yaml_text import MOST_NODES

DEFAULTS = "defaults.yaml"
EXTENDS = "extends"
INSTANCE_DEFAULTS = "instance_defaults"
OWN_KEYS = frozenset({"rig", "connect", "wake", EXTENDS})
"""The keys that identify a machine; a rig does not inherit them from another rig."""

_TAKEN_AWAY: Final = object()
"""The place of a value that `null` removed: values below it must not return."""


NOT_INHERITED = Rule(
    "LH009",
    "A rig cannot inherit from another one.",
    why="""
    It `extends` a rig that is not in this folder, or one that leads back to itself. Or `defaults.yaml` has a key that
    identifies one machine: `rig`, `connect`, `wake` or `extends`.
    """,
    example="""
    extends: cellar
    """,
    fix="""
    correct the name: it is the value of `rig:` in the other file. In a circle, leave `extends` out in one of them. Move
    `rig`, `connect` and `wake` from `defaults.yaml` to the rig's own file. See
    [Inheritance](../inventory.md#inheritance).
    """,
)


def inherited(document: Document, others: Mapping[str, Document], defaults: Document | None) -> Document:
    """Return a rig with its inherited keys. `others` are the fleet's documents by rig. Raise InventoryError (LH009)."""
    chain = [document]
    while (name := chain[-1].data.get(EXTENDS)) is not None:
        place = chain[-1].value((EXTENDS,))
        known = [other for other in others if other != document.data.get("rig")]
        if not isinstance(name, str) or name not in others:
            message = f"this rig extends `{name}`, which is no rig of this inventory"
            raise InventoryError([NOT_INHERITED.at(place, message, _declared(name, known))])
        if any(others[name].file == each.file for each in chain):
            message = f"this rig extends `{name}`, and that leads back to itself"
            raise InventoryError([NOT_INHERITED.at(place, message, "leave out `extends` in one of them")])
        chain.append(others[name])
    whole = Document(document.file, {}, {}, {})
    for layer in ([defaults] if defaults else []) + chain[:0:-1]:
        whole = _merged(whole, _without(layer, OWN_KEYS), document)
    whole = _each_instance(_merged(whole, _without(document, frozenset({EXTENDS})), document))
    layers = (*chain, *([defaults] if defaults else []))
    raws = {place: raw for layer in layers for place, raw in layer.raws.items()}
    texts = {file: text for layer in layers for file, text in layer.texts.items()}
    return Document(whole.file, _without_gaps(whole.data), whole.keys, whole.values, raws, texts)


def _declared(given: Any, known: list[str]) -> str:
    """Return the suggestion for an unknown rig."""
    name = str(given[0] if isinstance(given, list) and len(given) == 1 else given).removesuffix(".yaml")
    if name in known:
        return f"write `{EXTENDS}: {name}`, the rig's own name"
    if not known:
        return f"leave `{EXTENDS}` out, or declare that rig in another file of this folder"
    return nearest(name, known)


WRONG_VALUE = Rule(
    "LH012",
    "A value does not fit its key.",
    why="It has the wrong type or is out of range. Or there is no such choice, or two keys contradict each other.",
    example="""
    engines:
      main:
        kind: llama.cpp
        source: {git: "https://github.com/ggml-org/llama.cpp", commit: master}
    """,
    after="Here a branch is given instead of a full commit. `ref: master` takes a branch.",
    fix="""
    use the form that the message or the help line gives; [inventory.md](../inventory.md) has types and limits.
    """,
)


def _each_instance(document: Document) -> Document:
    """Merge `instance_defaults` into the instances, and remove it."""
    common = document.data.get(INSTANCE_DEFAULTS)
    rest = _without(document, frozenset({INSTANCE_DEFAULTS}))
    instances = rest.data.get("instances")
    if common in (None, _TAKEN_AWAY) or not isinstance(instances, dict):
        return rest
    if not isinstance(common, dict):
        place = document.value((INSTANCE_DEFAULTS,))
        help_ = "write the keys below it that every instance shall have"
        raise InventoryError([WRONG_VALUE.at(place, f"`{INSTANCE_DEFAULTS}` is no mapping", help_)])
    each = sum(path[:1] == (INSTANCE_DEFAULTS,) for path in document.values)
    if each * len(instances) > MOST_NODES:
        message = f"{each:,} values for each of {len(instances):,} instances are more than {MOST_NODES:,}"
        help_ = "write fewer, or several rigs"
        raise InventoryError([TOO_LARGE.at(document.value((INSTANCE_DEFAULTS,)), message, help_)])
    keys, values, spread = dict(rest.keys), dict(rest.values), {}
    for name, own in instances.items():
        spread[name] = _values(common, own) if isinstance(own, dict) else own
        replaced = frozenset(_replaced(common, own)) if isinstance(own, dict) else frozenset({()})
        for places, of in ((keys, document.keys), (values, document.values)):
            for path, place in of.items():
                if path[:1] == (INSTANCE_DEFAULTS,) and len(path) > 1 and not _under(path[1:], replaced):
                    places.setdefault(("instances", name, *path[1:]), place)
    return Document(rest.file, rest.data | {"instances": spread}, keys, values)


def _without(document: Document, names: frozenset[str]) -> Document:
    data = {key: value for key, value in document.data.items() if key not in names}
    return Document(document.file, data, _kept(document.keys, names), _kept(document.values, names))


def _kept(places: Mapping[Path_, Place], names: frozenset[str]) -> dict[Path_, Place]:
    return {path: place for path, place in places.items() if not path or path[0] not in names}


def _merged(base: Document, over: Document, whole: Document) -> Document:
    replaced = frozenset(_replaced(base.data, over.data))
    keys = {path: place for path, place in base.keys.items() if not _under(path, replaced)}
    values = {path: place for path, place in base.values.items() if not _under(path, replaced)}
    return Document(whole.file, _values(base.data, over.data), keys | over.keys, values | over.values)


def _values(base: Mapping[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    merged = dict(base)
    for key, value in over.items():
        below = merged.get(key)
        if value is None and key in base:
            merged[key] = _TAKEN_AWAY
        elif isinstance(below, dict) and isinstance(value, dict):
            merged[key] = _values(below, value)
        else:
            merged[key] = value
    return merged


def _replaced(base: Mapping[str, Any], over: Mapping[str, Any], path: Path_ = ()) -> Iterator[Path_]:
    """Yield the paths where nothing of `base` is left, so that places below them do not point to `base`."""
    for key in base.keys() & over.keys():
        if isinstance(base[key], dict) and isinstance(over[key], dict):
            yield from _replaced(base[key], over[key], (*path, key))
        else:
            yield (*path, key)


def _under(path: Path_, replaced: Collection[Path_]) -> bool:
    return bool(replaced) and any(path[:length] in replaced for length in range(len(path) + 1))


def _without_gaps(data: Mapping[str, Any]) -> dict[str, Any]:
    kept = {key: value for key, value in data.items() if value is not _TAKEN_AWAY}
    return {key: _without_gaps(value) if isinstance(value, dict) else value for key, value in kept.items()}
