"""YAML read together with the position of every key and value, so that findings can point at them."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from llamaherd.findings import Finding, InventoryError, Place

Path_ = tuple[str | int, ...]


class _Loader(yaml.SafeLoader):
    """YAML as people mean it, and editors by YAML 1.2: `on`, `off`, `yes` and `no` are words, so are dates and what has
    colons, such as `0000:01:00.0`, a number by base 60 to YAML 1.1; `010` is ten; keys are text."""

    def construct_object(self, node: yaml.Node, deep: bool = False) -> Any:
        try:
            return super().construct_object(node, deep=deep)
        except (ValueError, AttributeError, TypeError) as error:
            # What a tag promises and the text does not keep, such as `!!int x`.
            raise yaml.constructor.ConstructorError(None, None, str(error), node.start_mark) from None

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        self.flatten_mapping(node)  # what `<<` merges in
        return {str(key.value): self.construct_object(value, deep=deep) for key, value in node.value}


def _whole_number(loader: _Loader, node: yaml.ScalarNode) -> int:
    text = str(loader.construct_scalar(node))
    return int(text, 16 if text.startswith("0x") else 10)


_INT, _FLOAT = "tag:yaml.org,2002:int", "tag:yaml.org,2002:float"
_UNMEANT = ("tag:yaml.org,2002:bool", "tag:yaml.org,2002:timestamp", _INT, _FLOAT)
_Loader.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in resolvers if tag not in _UNMEANT]
    for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}
_Loader.add_implicit_resolver(
    "tag:yaml.org,2002:bool", re.compile(r"^(?:true|True|TRUE|false|False|FALSE)$"), list("tTfF")
)
_Loader.add_implicit_resolver(_INT, re.compile(r"^(?:[-+]?[0-9]+|0x[0-9a-fA-F]+)$"), list("-+0123456789"))
_Loader.add_implicit_resolver(
    # With a dot: `12345e7` is a short commit.
    _FLOAT,
    re.compile(r"^[-+]?(?:(?:[0-9]+\.[0-9]*|\.[0-9]+)(?:[eE][-+]?[0-9]+)?|\.(?:inf|Inf|INF))$|^\.(?:nan|NaN|NAN)$"),
    list("-+.0123456789"),
)
_Loader.add_constructor(_INT, _whole_number)


class Dumper(yaml.SafeDumper):
    """Puts quotes around whatever would be no text to our loader, or to others', which go by YAML 1.1."""


Dumper.yaml_implicit_resolvers = {
    first: [*yaml.SafeDumper.yaml_implicit_resolvers.get(first, ()), *_Loader.yaml_implicit_resolvers.get(first, ())]
    for first in {*yaml.SafeDumper.yaml_implicit_resolvers, *_Loader.yaml_implicit_resolvers}
}

_SAFE_DEPTH = 1000
"""Levels that libyaml's composer has stack for: it calls itself for each, and 2000 of them need 1 MB."""

if yaml.__with_libyaml__:

    class _FastLoader(yaml.CSafeLoader):
        """The same nodes, ten times as fast."""

    _FastLoader.yaml_implicit_resolvers = _Loader.yaml_implicit_resolvers


@dataclass(frozen=True)
class Document:
    """The plain data of a YAML file, and where each path in it stands."""

    file: Path
    data: dict[str, Any]
    keys: dict[Path_, Place] = field(repr=False)
    values: dict[Path_, Place] = field(repr=False)
    raws: dict[Place, str] = field(repr=False, default_factory=dict)
    """Texts of several words as they are written, quotes and indentation included, by where they begin."""

    def word(self, path: Path_, words: Sequence[str], index: int) -> Place:
        """Where a word of a text stands that was split into `words`; where the item does, if it is a list."""
        place = self.value((*path, index))
        raw, start = self.raws.get(place), 0
        if raw is None or place != self.values.get(path):
            return place
        for word in words[: index + 1]:
            found = raw.find(word, start)
            if found < 0:
                return place
            at, start = found, found + len(word)
        line = raw.count("\n", 0, at)
        column = at - raw.rfind("\n", 0, at) if line else place.column + at
        return Place(place.file, place.line + line, column)

    def key(self, path: Path_) -> Place:
        """Where the key at `path` stands; where its nearest parent does, if it is not there."""
        return self._nearest(self.keys, path)

    def value(self, path: Path_) -> Place:
        """Where the value at `path` stands; where its nearest parent does, if it is not there."""
        return self._nearest(self.values, path)

    def _nearest(self, places: dict[Path_, Place], path: Path_) -> Place:
        for length in range(len(path), 0, -1):
            if path[:length] in places:
                return places[path[:length]]
        return Place(self.file)


def read(file: Path) -> Document:
    """Read one YAML file whose top is a mapping. Raises InventoryError (LH001, LH002, LH003)."""
    try:
        text = file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
        raise InventoryError(
            [Finding("LH001", Place(file), f"cannot read this file: {reason}", "check the path and its mode")]
        ) from None
    try:
        node = _compose(text)
    except (yaml.YAMLError, RecursionError) as error:
        raise InventoryError([_not_yaml(file, error)]) from None
    if not isinstance(node, yaml.MappingNode) or node.tag != "tag:yaml.org,2002:map":
        raise InventoryError(
            [
                Finding(
                    "LH002",
                    Place(file),
                    "this file holds no rig",
                    "start it with `rig: NAME`; docs/inventory.md shows a whole one",
                )
            ]
        )
    keys: dict[Path_, Place] = {}
    values: dict[Path_, Place] = {}
    raws: dict[Place, str] = {}
    findings: list[Finding] = []
    try:
        _walk(file, node, (), keys, values, findings, {})
        for each in _scalars(node):
            raws[_place(file, each)] = text[each.start_mark.index : each.end_mark.index]
        if findings:
            raise InventoryError(findings)
        data = _Loader("").construct_document(node)
    except (yaml.YAMLError, RecursionError) as error:
        raise InventoryError([_not_yaml(file, error)]) from None
    return Document(file, data, keys, values, raws)


def _scalars(node: yaml.Node) -> Iterator[yaml.ScalarNode]:
    """Texts of several words below a node, each node once: an alias may stand for much, and often."""
    waiting, seen = [node], set[int]()
    while waiting:
        here = waiting.pop()
        if id(here) in seen:
            continue
        seen.add(id(here))
        if isinstance(here, yaml.MappingNode):
            waiting += [value for _, value in here.value]
        elif isinstance(here, yaml.SequenceNode):
            waiting += here.value
        elif isinstance(here, yaml.ScalarNode) and len(here.value.split(None, 1)) > 1:
            yield here


def _compose(text: str) -> yaml.Node | None:
    """The nodes of a text. What libyaml refuses is read again for a sentence and a place: its own are poorer."""
    if yaml.__with_libyaml__ and _most_levels(text) < _SAFE_DEPTH:
        try:
            return yaml.compose(text, Loader=_FastLoader)
        except yaml.YAMLError:
            pass
    return yaml.compose(text, Loader=_Loader)


def _most_levels(text: str) -> int:
    """No fewer levels than a text has: one for each bracket, and two for each column before the first word of a line,
    where a list may stand as far left as the key that it belongs to."""
    leading = (len(line) - len(line.lstrip(" \t-?:")) for line in text.splitlines())
    return text.count("[") + text.count("{") + 2 * max(leading, default=0)


def _not_yaml(file: Path, error: yaml.YAMLError | RecursionError) -> Finding:
    mark = getattr(error, "problem_mark", None)
    place = Place(file, mark.line + 1, mark.column + 1) if mark else Place(file)
    nested = isinstance(error, RecursionError)
    problem = "it is nested too deeply" if nested else getattr(error, "problem", None) or str(error)
    return Finding(
        "LH001",
        place,
        f"this is not YAML: {problem}",
        "check indentation, colons and quotes here",
    )


def _walk(
    file: Path,
    node: yaml.Node,
    path: Path_,
    keys: dict[Path_, Place],
    values: dict[Path_, Place],
    findings: list[Finding],
    known: dict[int, bool],
) -> None:
    """`known`: every node that was walked, and whether the walk is still inside it."""
    values[path] = _place(file, node)
    if known.get(id(node)):
        message = "this is not YAML that can be used: it contains itself"
        findings.append(Finding("LH001", _place(file, node), message, "write out what the `*` stands for"))
    if id(node) in known:
        return  # an alias: what it stands for has its places where it is written
    known[id(node)] = True
    if isinstance(node, yaml.MappingNode):
        for key_node, value_node in node.value:
            if key_node.tag == "tag:yaml.org,2002:merge":
                continue
            here = (*path, str(key_node.value))
            if here in keys:
                findings.append(
                    Finding(
                        "LH003",
                        _place(file, key_node),
                        f"`{key_node.value}` stands here twice; the first is at line {keys[here].line}",
                        "keep one of the two",
                    )
                )
            keys[here] = _place(file, key_node)
            _walk(file, value_node, here, keys, values, findings, known)
    elif isinstance(node, yaml.SequenceNode):
        for index, item in enumerate(node.value):
            _walk(file, item, (*path, index), keys, values, findings, known)
    known[id(node)] = False


def _place(file: Path, node: yaml.Node) -> Place:
    return Place(file, node.start_mark.line + 1, node.start_mark.column + 1)
