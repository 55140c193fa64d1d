"""Settings of an instance as `KEY=VALUE`, and values and entries that are written to the text of a YAML file.

Only the changed lines differ: each edit is checked against the data that it must result in.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import yaml

from llamaherd.diagnostics.findings import InventoryError, Place, UserError
from llamaherd.inventory.yaml_file import Document, Dumper, Path_, parse_yaml
from llamaherd.inventory.yaml_text import nodes_of
from llamaherd.text.quoting import comment

_FORM = "write KEY=VALUE, such as `--with batch=1024` or `--with draft.mtp=2`; null takes a key away"
_DEEPEST = 8


@dataclass(frozen=True)
class Setting:
    """A key of an instance, by its path, and its value; None removes it. `word` is the original text."""

    path: tuple[str, ...]
    value: Any
    word: str

    def __str__(self) -> str:
        return self.word


def parse_setting(word: str) -> Setting:
    """Parse `KEY=VALUE`. Raise UserError, or InventoryError if the value is not YAML."""
    key, equals, text = word.partition("=")
    path = tuple(key.strip().split("."))
    if not equals or not all(path) or len(path) > _DEEPEST or "\n" in text:
        raise UserError(f"`{word}` sets nothing", _FORM)
    value = parse_yaml(Path(word), f"value: {text.strip() or 'null'}").data["value"]
    return Setting(path, value, word)


def with_settings(document: Document, instance: str, settings: Sequence[Setting]) -> Document:
    """Return a rig with settings of an instance changed. Findings about them point to their own words.

    A rig without this instance stays unchanged.
    """
    data, keys, values = deepcopy(document.data), dict(document.keys), dict(document.values)
    instances = data.get("instances")
    if not isinstance(instances, dict) or not isinstance(instances.get(instance), dict):
        return document
    for each in settings:
        apply_setting(instances[instance], each)
        path: Path_ = ("instances", instance, *each.path)
        gone = {at for at in (*keys, *values) if at[: len(path)] == path}
        for places in (keys, values):
            for at in gone & places.keys():
                del places[at]
            places[path] = Place(Path(f"--with {each.word}"))
    return replace(document, data=data, keys=keys, values=values)


def apply_setting(instance: dict[str, Any], setting: Setting) -> None:
    """Set a key of an instance's data, or remove it."""
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


_ANCHORS = ("kv", "context", "on", "model", "engine")
"""Keys below which a new key is written: the first that exists."""


def text_with_settings(text: str, file: Path, instance: str, settings: Sequence[Setting]) -> str:
    """Return the text with settings of an instance. Raise UserError if other lines would change."""
    meant = parse_yaml(file, text).data
    instances = meant.get("instances")
    if not isinstance(instances, dict) or not isinstance(instances.get(instance), dict):
        raise UserError(
            f"{file} does not declare `{instance}` itself", "write these keys where the instance is declared"
        )
    meant = _apart(meant)
    for each in settings:
        apply_setting(meant["instances"][instance], each)
        if meant["instances"][instance].get(each.path[0]) == {}:
            del meant["instances"][instance][each.path[0]]
    for path, value in _grouped(settings, instances[instance]):
        text = _with(text, ("instances", instance, *path), value)
    return _as_meant(text, file, meant)


def text_with_value(text: str, file: Path, path: Sequence[str], value: Any) -> str:
    """Return the text with a value at a path. Create its parent mapping if it is missing.

    None removes a key, and with its last key also its mapping. Raise UserError if other lines would change.
    """
    meant = _apart(parse_yaml(file, text).data)
    above: dict[str, Any] = meant
    at = 0
    if value is None and _found(meant, path[:-1]) == {path[-1]: _found(meant, path)}:
        path = path[:-1]
    while at < len(path) - 1 and isinstance(above.get(path[at]), dict):
        above, at = above[path[at]], at + 1
    for key in reversed(path[at + 1 :]):
        value = {key: value}
    if value is None:
        above.pop(path[at], None)
    else:
        above[path[at]] = value
    return _as_meant(_with(text, tuple(path[: at + 1]), value), file, meant)


def text_with_entry(text: str, file: Path, section: str, name: str, value: Mapping[str, Any]) -> str:
    """Return the text with a new entry at the end of a section. Raise UserError if other lines would change."""
    return text_with_entries(text, file, section, {name: value})


def text_with_entries(text: str, file: Path, section: str, entries: Mapping[str, Mapping[str, Any]]) -> str:
    """Return the text with new entries at the end of a section, such as `models`, in the style of the entries there.

    Creates a missing section at the end of the file. Raise UserError if other lines would change.
    """
    if not entries:
        return text
    meant = _apart(parse_yaml(file, text).data)
    there = meant.get(section) or {}
    for name in entries:
        if not isinstance(there, dict) or name in there:
            help_ = f"check `{section}`, or take another name"
            raise UserError(f"{file} has no room for `{name}` in `{section}`", help_)
    meant[section] = {**there, **{name: dict(value) for name, value in entries.items()}}
    for name, value in entries.items():
        text = _with_entry(text, section, name, value)
    return _as_meant(text, file, meant)


def _with_entry(text: str, section: str, name: str, value: Mapping[str, Any]) -> str:
    top = nodes_of(text)
    pairs = top.value if isinstance(top, yaml.MappingNode) else []
    pair = next((each for each in pairs if each[0].value == section), None)
    if pair is None:
        body = text if text.endswith("\n") else f"{text}\n"
        return f"{body}\n{section}:\n{_entry(name, value, 2, 2, inline=_is_short(value))}"
    if isinstance(pair[1], yaml.MappingNode) and pair[1].value:
        return _with_last_entry(text, pair[1], name, value)
    key, node = pair  # `models:` or `models: {}`
    start, end = key.end_mark.index, max(key.end_mark.index + 1, node.end_mark.index)
    line = text.find("\n", end)
    rest = text[end:] if line < 0 else text[end : line + 1]
    after = "" if line < 0 else text[line + 1 :]
    added = _entry(name, value, key.start_mark.column + 2, 2, inline=_is_short(value))
    return f"{text[:start]}:{rest.rstrip()}\n{added}{after}"


def text_with_comments(text: str, file: Path, section: str, comments: Mapping[str, Iterable[str]]) -> str:
    """Return the text with lines of comment above entries of a section. Raise UserError if the data would change."""
    meant = parse_yaml(file, text).data
    above = _at(nodes_of(text), (section,))
    marks = {name.value: name.start_mark.index for name, _ in above.value} if above else {}
    for name in sorted(comments.keys() & marks.keys(), key=marks.__getitem__, reverse=True):
        start = text.rfind("\n", 0, marks[name]) + 1
        line = text[start : marks[name]]
        indent = line[: len(line) - len(line.lstrip())]
        added = "".join(f"{indent}# {comment(each)}\n" for each in comments[name])
        text = text[:start] + added + text[start:]
    return _as_meant(text, file, meant)


def _with_last_entry(text: str, node: yaml.MappingNode, name: str, value: Mapping[str, Any]) -> str:
    """Return the text with an entry after the last one of a mapping that has some."""
    key, last = node.value[-1]
    if node.flow_style:
        end = max(key.end_mark.index, last.end_mark.index)
        return f"{text[:end]}, {_inline(name)}: {_flow(value)}{text[end:]}"
    column = key.start_mark.column
    inline = _is_inline(last) if isinstance(last, yaml.MappingNode) else _is_short(value)
    step = last.start_mark.column - column if not inline and isinstance(last, yaml.MappingNode) else 2
    at = len(text[: _content_end(key, last)].rstrip())
    end = text.find("\n", at)
    if end < 0:
        text, end = f"{text}\n", len(text)
    end += 1
    # A comment of the last entry stays below it.
    while (line := text[end : text.find("\n", end) + 1]).lstrip().startswith("#"):
        if len(line) - len(line.lstrip()) < max(column, 1):
            break
        end += len(line)
    return text[:end] + _entry(name, value, column, max(step, 1), inline=inline) + text[end:]


def _content_end(key: yaml.Node, node: yaml.Node) -> int:
    """Return where the text of a value ends: a block's own end is where the next node begins."""
    if node.start_mark.index < key.end_mark.index:  # an alias: its node is elsewhere
        return int(key.end_mark.index) + 1
    if not _is_inline(node) and isinstance(node, yaml.MappingNode) and node.value:
        return _content_end(*node.value[-1])
    if not _is_inline(node) and isinstance(node, yaml.SequenceNode) and node.value:
        return _content_end(key, node.value[-1])
    return int(node.end_mark.index)


def _entry(name: str, value: Mapping[str, Any], column: int, step: int, *, inline: bool) -> str:
    """Return an entry as lines, on one line or with a line for each key."""
    indent = " " * column
    if inline:
        return f"{indent}{_inline(name)}: {_flow(value)}\n"
    lines = [f"{indent}{' ' * step}{key}: {_inline(each)}\n" for key, each in value.items()]
    return f"{indent}{_inline(name)}:\n{''.join(lines)}"


def _flow(value: Mapping[str, Any]) -> str:
    return "{" + ", ".join(f"{key}: {_inline(each)}" for key, each in value.items()) + "}"


_MOST_SHORT = 3
"""The most keys of an entry on one line, where the section has no entry whose style it could take."""


def _is_short(value: Mapping[str, Any]) -> bool:
    return len(value) <= _MOST_SHORT


def _found(data: Any, path: Sequence[str]) -> Any:
    for key in path:
        data = data.get(key) if isinstance(data, dict) else None
    return data


def _as_meant(text: str, file: Path, meant: dict[str, Any]) -> str:
    """Return the text if it parses to the expected data. Raise UserError otherwise."""
    try:
        same = parse_yaml(file, text).data == meant
    except InventoryError:
        same = False
    if not same:
        raise UserError(f"{file} is written in a way that cannot be changed by itself", "write these keys into it")
    return text


def _grouped(settings: Sequence[Setting], there: dict[str, Any]) -> Iterable[tuple[tuple[str, ...], Any]]:
    """Yield the keys to write one by one: those of a missing mapping are written together."""
    new: dict[str, dict[str, Any]] = {}
    for each in settings:
        top = each.path[0]
        if len(each.path) == 2 and not isinstance(there.get(top), dict):
            if each.value is not None:
                new.setdefault(top, {})[each.path[1]] = each.value
        else:
            yield each.path, each.value
    for top, values in new.items():
        yield (top,), values


def _with(text: str, path: tuple[str, ...], value: Any) -> str:
    """Return the text with a value at a path; None removes the key."""
    above = _at(nodes_of(text), path[:-1])
    if above is None:
        return text
    pair = next((each for each in above.value if each[0].value == path[-1]), None)
    if value is None:
        return _without(text, above, pair) if pair else text
    if pair is None:
        return _added(text, above, path[-1], value)
    start, end = pair[1].start_mark.index, pair[1].end_mark.index
    return text[:start] + _inline(value) + text[end:]


def _at(node: yaml.Node | None, path: Sequence[str]) -> yaml.MappingNode | None:
    for key in path:
        if not isinstance(node, yaml.MappingNode):
            return None
        node = next((value for name, value in node.value if name.value == key), None)
    return node if isinstance(node, yaml.MappingNode) else None


def _added(text: str, mapping: yaml.MappingNode, key: str, value: Any) -> str:
    entry = f"{key}: {_inline(value)}"
    if mapping.flow_style:
        last = mapping.value[-1][1].end_mark.index if mapping.value else mapping.start_mark.index + 1
        return text[:last] + (", " if mapping.value else "") + entry + text[last:]
    names = [name.value for name, _ in mapping.value]
    anchor = next((each for each in _ANCHORS if each in names), names[0])
    name, below = mapping.value[names.index(anchor)]
    if not _is_inline(below):
        # Before it: a block ends only where the next node begins.
        at = text.rfind("\n", 0, name.start_mark.index) + 1
        return f"{text[:at]}{' ' * name.start_mark.column}{entry}\n{text[at:]}"
    at = text.find("\n", max(name.end_mark.index, below.end_mark.index if _is_inline(below) else 0))
    line = " " * name.start_mark.column + entry
    return f"{text}\n{line}\n" if at < 0 else f"{text[: at + 1]}{line}\n{text[at + 1 :]}"


def _without(text: str, mapping: yaml.MappingNode, pair: tuple[yaml.Node, yaml.Node]) -> str:
    start, end = pair[0].start_mark.index, pair[1].end_mark.index
    if not mapping.flow_style:
        first = text.rfind("\n", 0, start) + 1
        if _is_inline(pair[1]):
            last = text.find("\n", end)
            return text[:first] + (text[last + 1 :] if last >= 0 else "")
        return text[:first] + text[text.rfind("\n", 0, end) + 1 :]
    place = mapping.value.index(pair)
    if place + 1 < len(mapping.value):
        return text[:start] + text[mapping.value[place + 1][0].start_mark.index :]
    before = mapping.value[place - 1][1].end_mark.index if place else mapping.start_mark.index + 1
    return text[:before] + text[end:]


def _apart(value: Any) -> Any:
    """Return a copy without shared parts: a change at one alias would change all."""
    if isinstance(value, dict):
        return {key: _apart(each) for key, each in value.items()}
    return [_apart(each) for each in value] if isinstance(value, list) else value


def _is_inline(node: yaml.Node) -> bool:
    """Return whether a node ends at its last character: a block ends where the next node begins."""
    return isinstance(node, yaml.ScalarNode) or bool(getattr(node, "flow_style", False))


def _inline(value: Any) -> str:
    text: str = yaml.dump(value, Dumper=Dumper, default_flow_style=True, width=10_000)
    return text.removesuffix("...\n").strip()
