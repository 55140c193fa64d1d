"""Exact edits of an inventory's text: rename or indent a key, replace a value. Each is verified by parsing."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from copy import deepcopy
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import yaml

from llamaherd.diagnostics.findings import Edit, Finding, InventoryError, Place
from llamaherd.inventory.yaml_file import Document, Path_, parse_yaml
from llamaherd.inventory.yaml_text import Loader, nodes_of
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
