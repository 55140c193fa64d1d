"""Edits of an inventory's text, each verified by parsing: fixes of findings, settings of instances, and new entries."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import yaml

from llamaherd.diagnostics.findings import Edit, Finding, InventoryError, Place, UserError
from llamaherd.inventory.yaml_file import Document, Dumper, Path_, parse_yaml
from llamaherd.inventory.yaml_text import Loader, nodes_of
from llamaherd.text.quoting import comment
from llamaherd.text.textfile import LINE_END, lines_of

_BYTE_ORDER_MARK = "\ufeff"


@dataclass(frozen=True)
class EditedText:
    """A text after its edits, and the findings whose edits are in it."""

    text: str
    done: tuple[Finding, ...]


def with_fixes(text: str, findings: Iterable[Finding]) -> EditedText:
    """Return the text of a file with the edits of findings. All edits of a finding are applied, or none.

    A finding is left out if the file has another text there, or if an earlier finding changes it.
    """
    pieces = LINE_END.split(text)
    taken: dict[int, list[Edit]] = {}
    done = []
    for finding in findings:
        if finding.edits and all(_fits(pieces, edit, taken) for edit in finding.edits):
            done.append(finding)
            for edit in finding.edits:
                taken.setdefault(_index(edit), []).append(edit)
    return EditedText(with_edits(text, [edit for edits in taken.values() for edit in edits]), tuple(done))


def with_edits(text: str, edits: Iterable[Edit]) -> str:
    """Return the text of a file with edits that fit into it and do not overlap."""
    pieces = LINE_END.split(text)
    for edit in sorted(edits, key=lambda each: each.place, reverse=True):
        line = pieces[_index(edit)]
        start, end = _span(line, edit)
        pieces[_index(edit)] = line[:start] + edit.new + line[end:]
    return "".join(pieces)


def _index(edit: Edit) -> int:
    """Return the index of an edit's line among lines and line ends."""
    return 2 * (edit.place.line - 1)


def _span(line: str, edit: Edit) -> tuple[int, int]:
    start = edit.place.column - 1 + line.startswith(_BYTE_ORDER_MARK)
    return start, start + len(edit.old)


def _fits(pieces: list[str], edit: Edit, taken: dict[int, list[Edit]]) -> bool:
    """Return whether a line has the old text of an edit, and no other edit overlaps it."""
    if not 0 <= _index(edit) < len(pieces):
        return False
    line = pieces[_index(edit)]
    start, end = _span(line, edit)
    others = (_span(line, other) for other in taken.get(_index(edit), ()))
    return line[start:end] == edit.old and all(end < first or last < start for first, last in others)


def key_edit(document: Document, path: Path_, new: str) -> tuple[Edit, ...]:
    """Return the edit that renames the key at a path; none if other data would change."""
    place, old = document.keys.get(path), str(path[-1])
    if place is None or place.file not in document.texts:
        return ()
    rest = lines_of(document.texts[place.file])[place.line - 1][place.column - 1 :]
    written = next((each for each in (old, f'"{old}"', f"'{old}'") if rest.startswith(each)), None)

    def rename(before: Document, data: Any) -> None:
        *above, last = _path_of(before.keys, place)
        around = _inside(data, tuple(above))
        if new in around:
            raise LookupError(new)
        around[new] = around.pop(last)

    return _verified(document.texts[place.file], place, written, new, rename)


def value_edit(document: Document, path: Path_, new: str) -> tuple[Edit, ...]:
    """Return the edit that writes another value, given as YAML, at a path; none if other data would change."""
    place = document.values.get(path)
    if place is None or place.file not in document.texts:
        return ()
    text = document.texts[place.file]
    written = next((text[start:end].rstrip() for start, end in _scalar_spans(nodes_of(text), place)), None)

    def replace(before: Document, data: Any) -> None:
        *above, last = _path_of(before.values, place)
        _inside(data, tuple(above))[last] = yaml.load(new, Loader=Loader)

    return _verified(text, place, written, new, replace)


def _scalar_spans(top: yaml.Node | None, place: Place) -> Iterator[tuple[int, int]]:
    """Yield the span of the text or flow collection that begins at a place."""
    waiting, visited = [top] if top else [], set[int]()
    while waiting:
        node = waiting.pop()
        if id(node) in visited:
            continue
        visited.add(id(node))
        begin = node.start_mark
        inline = isinstance(node, yaml.ScalarNode) or bool(getattr(node, "flow_style", False))
        if inline and (begin.line + 1, begin.column + 1) == (place.line, place.column):
            yield begin.index, node.end_mark.index
        if isinstance(node, yaml.MappingNode):
            waiting += [value for _, value in node.value]
        elif isinstance(node, yaml.SequenceNode):
            waiting += node.value


def _path_of(places: dict[Path_, Place], place: Place) -> Path_:
    """Return the longest path with a place. Raise LookupError."""
    if found := [path for path, at in places.items() if path and at == place]:
        return max(found, key=len)
    raise LookupError(str(place))


def _inside(data: Any, path: Path_) -> Any:
    for part in path:
        data = data[part]
    return data


def _verified(
    text: str, place: Place, old: str | None, new: str, change: Callable[[Document, Any], None]
) -> tuple[Edit, ...]:
    """Return an edit if the edited text parses to the changed data."""
    if not old or "\n" in old or old == new:
        return ()
    edit = Edit(place, old, new)
    try:
        before = parse_yaml(place.file, text)
        meant = deepcopy(before.data)
        change(before, meant)
        after = parse_yaml(place.file, with_edits(text, [edit]))
    except (InventoryError, LookupError, TypeError, yaml.YAMLError):
        return ()
    return (edit,) if after.data == meant else ()


class MovedKey(NamedTuple):
    """The new depth of a key, and the edits that indent it and all below it; none if other data would change."""

    depth: int
    edits: tuple[Edit, ...]


def moved_key(document: Document, path: Path_, parent: Path_) -> MovedKey:
    """Return the edits that indent the block of a key so that it belongs to another mapping."""
    place = document.keys[path]
    text = document.texts[place.file]
    depth = _depth_below(document, parent, path)
    try:
        before = parse_yaml(place.file, text)
        if before.keys.get(path) != place:
            return MovedKey(depth, ())
        edits = tuple(_shifted(lines_of(text), place, depth - place.column + 1))
        after = parse_yaml(place.file, with_edits(text, edits)).data
        moved = [_with_moved(before.data, path, parent, followers=followers) for followers in (False, True)]
    except (InventoryError, LookupError, TypeError):
        return MovedKey(depth, ())
    return MovedKey(depth, edits if after in moved else ())


def _depth_below(document: Document, parent: Path_, path: Path_) -> int:
    """Return the indentation of the keys of a mapping."""
    file = document.keys[path].file
    keys = ((each, at) for each, at in document.keys.items() if at.file == file and each != path)
    columns = [at.column for each, at in keys if each[:-1] == parent]
    return columns[0] - 1 if columns else document.keys[parent].column + 1


def _shifted(lines: list[str], place: Place, by: int) -> Iterator[Edit]:
    """Yield the edits that indent the block that begins at a place by more or fewer spaces."""
    last = place.line
    for number in range(place.line + 1, len(lines) + 1):
        line = lines[number - 1]
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        if len(line) - len(line.lstrip()) < place.column:
            break
        last = number
    for number in range(place.line, last + 1):
        if lines[number - 1].strip():
            yield Edit(Place(place.file, number), " " * -by, " " * by)


def _with_moved(data: dict[str, Any], path: Path_, parent: Path_, *, followers: bool) -> dict[str, Any]:
    """Return data with a key in another mapping; with `followers`, the keys that follow it are below it then."""
    moved = deepcopy(data)
    around = _inside(moved, path[:-1])
    keys = list(around)
    after = keys[keys.index(path[-1]) + 1 :] if followers else []
    value = around.pop(path[-1])
    inner = {key: around.pop(key) for key in after}
    target = _inside(moved, parent[:-1])
    if parent and target[parent[-1]] is None:
        target[parent[-1]] = {}
    _inside(moved, parent)[path[-1]] = inner if followers else value
    return moved


def unlisted(document: Document, path: Path_, name_key: str | None) -> tuple[Edit, ...]:
    """Return the edits that make a mapping of a list of mappings; none if other data would change.

    With `name_key`, each item becomes the value of its name; without it, the items are parts of one mapping.
    """
    items, place = _inside(document.data, path), document.values.get(path)
    if place is None or place.file not in document.texts:
        return ()
    text = document.texts[place.file]
    lines, edits, meant = lines_of(text), list[Edit](), dict[str, Any]()
    for index, item in enumerate(items):
        at = document.values.get((*path, index))
        found = _ITEM.match(lines[at.line - 1]) if at and isinstance(item, dict) else None
        if at is None or found is None or found.end() < at.column - 1:
            return ()
        named = re.match(rf"{name_key}:\s+(\S+)\s*$", lines[at.line - 1][at.column - 1 :]) if name_key else None
        if name_key and named:
            written = lines[at.line - 1][found.start(1) :].rstrip()
            edits.append(Edit(Place(at.file, at.line, found.start(1) + 1), written, f"{named[1]}:"))
            meant[str(item[name_key])] = {key: value for key, value in item.items() if key != name_key}
        elif name_key is None and not meant.keys() & item.keys():
            edits.append(Edit(Place(at.file, at.line, found.start(1) + 1), "-", " "))
            meant |= item
        else:
            return ()
    return tuple(edits) if _parses_to(place.file, with_edits(text, edits), path, meant) else ()


_ITEM = re.compile(r"\s*(-) +")


def _parses_to(file: Path, text: str, path: Path_, meant: dict[str, Any]) -> bool:
    try:
        return bool(_inside(parse_yaml(file, text).data, path) == meant)
    except (InventoryError, LookupError, TypeError):
        return False


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
    above = _mapping_at(nodes_of(text), (section,))
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
        return f"{text[:end]}, {_inline(name)}: {_inline_mapping(value)}{text[end:]}"
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
        return f"{indent}{_inline(name)}: {_inline_mapping(value)}\n"
    lines = [f"{indent}{' ' * step}{key}: {_inline(each)}\n" for key, each in value.items()]
    return f"{indent}{_inline(name)}:\n{''.join(lines)}"


def _inline_mapping(value: Mapping[str, Any]) -> str:
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
    above = _mapping_at(nodes_of(text), path[:-1])
    if above is None:
        return text
    pair = next((each for each in above.value if each[0].value == path[-1]), None)
    if value is None:
        return _without(text, above, pair) if pair else text
    if pair is None:
        return _added(text, above, path[-1], value)
    start, end = pair[1].start_mark.index, pair[1].end_mark.index
    return text[:start] + _inline(value) + text[end:]


def _mapping_at(node: yaml.Node | None, path: Sequence[str]) -> yaml.MappingNode | None:
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
