"""Exact edits of an inventory's text: rename a key, replace a value. Each is verified by parsing the edited text."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from copy import deepcopy
from typing import Any

import yaml

from llamaherd.diagnostics.edits import with_edits
from llamaherd.diagnostics.findings import Edit, InventoryError, Place
from llamaherd.inventory.yaml_file import Document, Path_, parse_yaml
from llamaherd.inventory.yaml_text import Loader, nodes_of


def key_edit(document: Document, path: Path_, new: str) -> tuple[Edit, ...]:
    """Return the edit that renames the key at a path; none if other data would change."""
    place, old = document.keys.get(path), str(path[-1])
    if place is None or place.file not in document.texts:
        return ()
    rest = document.texts[place.file].split("\n")[place.line - 1][place.column - 1 :]
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
    if not old or "\n" in old:
        return ()
    edit = Edit(place, old, new)
    try:
        before = parse_yaml(place.file, text)
        meant = deepcopy(before.data)
        change(before, meant)
        after = parse_yaml(place.file, with_edits(text, [edit]))
    except (InventoryError, LookupError, TypeError):
        return ()
    return (edit,) if after.data == meant else ()
