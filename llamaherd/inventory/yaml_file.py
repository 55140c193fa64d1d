"""Read a YAML file with the place of each key and value, so that findings can point at them, and what a rig inherits.

A rig inherits from `defaults.yaml`, from the rig that it extends, and from its own `instance_defaults`. Mappings are
merged key by key, everything else is replaced, and `null` removes a key. The rig's own file overrides the rig that it
extends, which overrides the defaults.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import yaml

from llamaherd.diagnostics.findings import Edit, Finding, InventoryError, Place, Rule, nearest
from llamaherd.inventory.yaml_mistakes import LineEdit, explain_yaml_error, pasted_lines
from llamaherd.inventory.yaml_text import (
    MERGE,
    MOST_BYTES,
    MOST_NODES,
    STR,
    Dumper,
    Loader,
    nodes_of,
)
from llamaherd.text.quoting import harmful
from llamaherd.text.textfile import UnreadableError, read_text

UNREADABLE = Rule(
    "LH001",
    "A file cannot be read.",
    why="""
    A file does not exist, may not be read, is not UTF-8, or is not YAML. A recipe may also be too large, or hold
    nothing that llamaherd reads. The place is where the reader gave up: the mistake is often a line earlier.
    """,
    example="""
    rig: attic
      connect: {host: attic.lan}
    """,
    fix="""
    correct indentation, colons and quotes there. Quote values with `: ` or ` #` in them. Use spaces, not tabs. A
    recipe is a shell script, a systemd unit, a Compose file or a `.wslconfig`: give it by that name.
    """,
)


NO_RIG = Rule(
    "LH002",
    "A file holds no rig.",
    why="It is empty, or its top is a list or a text rather than a mapping.",
    example="""
    - attic
    - cellar
    """,
    fix="""
    start the file with `rig: NAME`. Each `.yaml` and `.yml` file of an inventory's folder must be a rig, except
    `defaults.yaml`. Move other files elsewhere.
    """,
)


KEY_TWICE = Rule(
    "LH003",
    "A key occurs twice in one mapping.",
    why="YAML readers usually keep the last one and drop the others without a warning.",
    example="""
    instances:
      coder: {engine: main, model: 35b, context: 8192, port: 8001}
      coder: {engine: main, model: 35b, context: 4096, port: 8002}
    """,
    fix="keep one of the two, or rename one.",
)


HARMFUL_CHARACTER = Rule(
    "LH013",
    "A text holds a character that it may not hold, such as a line end in a name.",
    why="""
    Control characters, ends of lines, and characters that reverse the order of a text mean something to a shell, to
    systemd, to YAML or to a terminal. A carriage return in a variable would begin a new line of the unit, which root
    would execute.
    """,
    example=r"""
    instance_defaults:
      environment: {GREETING: "a\rb"}
    """,
    after="""
    Line ends and tabs are allowed where texts have several lines: in `extra_args`, in values of `environment`, and in
    the texts of `overlay`. Names, paths, addresses and all else may not hold them.
    """,
    fix="take the character out. It may be invisible, and copied along: the message has its number in Unicode.",
)


TOO_LARGE = Rule(
    "LH014",
    "A file stands for more values than a fleet could have.",
    why="""
    An alias (`*name`) repeats what its anchor (`&name`) marks, and aliases of aliases multiply: nine lines can
    stand for a billion values. So can defaults that are spread over very many instances.
    """,
    example="""
    $ herd check
    /home/tom/fleet/duo.yaml:9:5: error LH014: this stands for more than 10,000 values, with all that aliases stand for
      help: write what is meant without `*`, or in several files
    """,
    language="console",
    after="""
    A file of an inventory may have up to 1 MiB, 10,000 values and 100 levels. A lock may have 3 MiB and 200,000
    values. Of a recipe, `herd` reads the first 200 servers or services.
    """,
    fix="write what is meant without aliases, or as rigs in several files.",
)


__all__ = ["Document", "Dumper", "Path_", "parse_yaml", "read_yaml"]

Path_ = tuple[str | int, ...]

_NAMES_BELOW = frozenset({"instances", "models", "engines", "cards", "users"})
"""Keys below which names are chosen by the user."""
_QUOTED = frozenset("\"'|>")
_HALVES = re.compile("[\ud800-\udfff]")


@dataclass(frozen=True)
class Document:
    """The plain data of a YAML file, and the place of each path."""

    file: Path
    data: dict[str, Any]
    keys: dict[Path_, Place] = field(repr=False)
    values: dict[Path_, Place] = field(repr=False)
    raws: dict[Place, str] = field(repr=False, default_factory=dict)
    """Texts of several words as written, with quotes and indentation, by their position."""
    texts: dict[Path, str] = field(repr=False, default_factory=dict)
    """The text of each file that places point into."""

    def word(self, path: Path_, words: Sequence[str], index: int) -> Place:
        """Return the place of a word of a text that was split into `words`; of the item, if it is a list."""
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
        """Return the place of the key at `path`, or of its nearest parent."""
        return self._nearest(self.keys, path)

    def value(self, path: Path_) -> Place:
        """Return the place of the value at `path`, or of its nearest parent."""
        return self._nearest(self.values, path)

    def _nearest(self, places: dict[Path_, Place], path: Path_) -> Place:
        for length in range(len(path), 0, -1):
            if path[:length] in places:
                return places[path[:length]]
        return Place(self.file, 1, 1)


def read_yaml(file: Path, most: int = MOST_BYTES, nodes: int = MOST_NODES, *, merging: bool = False) -> Document:
    """Read a YAML file whose top is a mapping. Raise InventoryError (LH001, LH002, LH003, LH013, LH014).

    `most` limits its bytes, and `nodes` its values with aliases expanded. `merging` allows Compose's own tags, `!reset`
    and `!override`.
    """
    try:
        text = read_text(file, most)
    except UnreadableError as error:
        raise InventoryError([UNREADABLE.at(Place(file), f"cannot read this file: {error}", error.help)]) from None
    return parse_yaml(file, text, nodes, merging=merging)


def parse_yaml(file: Path, text: str, nodes: int = MOST_NODES, *, merging: bool = False) -> Document:
    """Parse a text as the YAML of a file. Raise InventoryError, as `read_yaml` does."""
    try:
        node = nodes_of(text)
    except (yaml.YAMLError, RecursionError) as error:
        raise InventoryError([_not_yaml(file, text, error)]) from None
    if not isinstance(node, yaml.MappingNode) or node.tag != "tag:yaml.org,2002:map":
        kinds: Mapping[type[object], str] = {type(None): "is empty", yaml.SequenceNode: "is a list, and holds no rig"}
        message = f"this file {kinds.get(type(node), 'holds no rig')}"
        help_ = "start it with `rig: NAME`; `herd explain inventory` shows a whole one"
        raise InventoryError([NO_RIG.at(Place(file), message, help_)])
    if re.match(r"\s*[+\d]", text) and (pasted := pasted_lines(text.splitlines())):
        raise InventoryError([UNREADABLE.at(Place(file, pasted.line, pasted.column), pasted.message, pasted.help)])
    walk = _Walk(file, nodes)
    if merging:
        _merge_tags(node)
    try:
        walk.visit(node, ())
        if walk.findings:
            raise InventoryError(walk.findings)
        raws = {_place(file, each): text[each.start_mark.index : each.end_mark.index] for each in _scalars(node)}
        data = Loader("").construct_document(node)
    except (yaml.YAMLError, RecursionError) as error:
        raise InventoryError([_not_yaml(file, text, error)]) from None
    return Document(file, data, walk.keys, walk.values, raws, {file: text})


def _merge_tags(top: yaml.Node) -> None:
    """Apply Compose's tags without an earlier file: `!override` is the value, `!reset` leaves it out
    (compose-spec/spec.md, "Reset value" and "Replace value")."""
    waiting, visited = [top], set[int]()
    while waiting:
        node = waiting.pop()
        if id(node) in visited:
            continue
        visited.add(id(node))
        if node.tag == "!override":
            node.tag = ""
            node.tag = _meant(node)
        if isinstance(node, yaml.MappingNode):
            node.value = [(key, value) for key, value in node.value if value.tag != "!reset"]
            waiting += [value for _, value in node.value]
        elif isinstance(node, yaml.SequenceNode):
            node.value = [item for item in node.value if item.tag != "!reset"]
            waiting += node.value


def _scalars(node: yaml.Node) -> Iterator[yaml.ScalarNode]:
    """Yield texts of several words below a node, each node once: an alias can repeat large parts."""
    waiting, visited = [node], set[int]()
    while waiting:
        here = waiting.pop()
        if id(here) in visited:
            continue
        visited.add(id(here))
        if isinstance(here, yaml.MappingNode):
            waiting += [value for _, value in here.value]
        elif isinstance(here, yaml.SequenceNode):
            waiting += here.value
        elif isinstance(here, yaml.ScalarNode) and len(here.value.split(None, 1)) > 1:
            yield here


def _not_yaml(file: Path, text: str, error: yaml.YAMLError | RecursionError) -> Finding:
    if isinstance(error, RecursionError):
        return UNREADABLE.at(Place(file), "this is nested too deeply to be read", "write it with fewer levels")
    mistake = explain_yaml_error(text, error, _is_readable)
    edits = [_edit(file, mistake.edit)] if mistake.edit else []
    return UNREADABLE.at(Place(file, mistake.line, mistake.column), mistake.message, mistake.help, edits=edits)


def _edit(file: Path, edit: LineEdit) -> Edit:
    return Edit(Place(file, edit.line, edit.column), edit.old, edit.new)


def _is_readable(text: str) -> bool:
    """Return whether a text is the YAML of a file of an inventory, with each key once."""
    try:
        node = nodes_of(text)
        walk = _Walk(Path(), MOST_NODES)
        return isinstance(node, yaml.MappingNode) and walk.visit(node, ()) > 0 and not walk.findings
    except (yaml.YAMLError, RecursionError, InventoryError):
        return False


@dataclass
class _Walk:
    """One walk through all nodes of a file: their places and their mistakes."""

    file: Path
    most: int
    keys: dict[Path_, Place] = field(default_factory=dict)
    values: dict[Path_, Place] = field(default_factory=dict)
    findings: list[Finding] = field(default_factory=list)
    sizes: dict[int, int | None] = field(default_factory=dict)
    """The number of nodes that each visited node expands to; None while the walk is inside it."""

    def visit(self, node: yaml.Node, path: Path_) -> int:
        """Walk a node and all below it. Return the number of nodes, with aliases expanded."""
        self.values[path] = _place(self.file, node)
        if id(node) in self.sizes:
            # An alias: what it stands for has its places where it is written.
            size = self.sizes[id(node)]
            if size is None:
                message = "this is not YAML that can be used: it contains itself"
                self._wrong(node, message, "write out what the `*` stands for")
            return size or 0
        self.sizes[id(node)] = None
        self._check(node)
        if isinstance(node, yaml.MappingNode):
            size = self._mapping(node, path)
        elif isinstance(node, yaml.SequenceNode):
            size = sum(self.visit(item, (*path, index)) for index, item in enumerate(node.value))
        else:
            size = 0
        if size > self.most:
            # At once: what is around it would only be larger.
            message = f"this stands for more than {self.most:,} values, with all that aliases stand for"
            raise InventoryError([TOO_LARGE.at(_place(self.file, node), message, "write what is meant without `*`")])
        self.sizes[id(node)] = size + 1
        return size + 1

    def _mapping(self, node: yaml.MappingNode, path: Path_) -> int:
        """Walk the pairs of a mapping. A key without a value, before keys that stand there twice, is their parent."""
        before = len(self.findings)
        size = sum(self._pair(key, value, path) for key, value in node.value)
        twice = [found.place for found in self.findings[before:] if found.code == KEY_TWICE.code]
        keys = [key for key, _ in node.value]
        first = next((n for n, key in enumerate(keys) if _place(self.file, key) in twice), 0)
        header = next((n for n in range(first - 1, -1, -1) if node.value[n][1].value == ""), None)
        if first and header is not None and path in self.keys and not node.flow_style:
            place = _place(self.file, keys[header])
            less = place.column - self.keys[path].column
            message = f"`{keys[header].value}` is indented as far as the keys that belong below it"
            help_ = f"indent it with {place.column - 1 - less} spaces, as `{path[-1]}`"
            edit = Edit(Place(self.file, place.line), " " * less, "")
            own = {_place(self.file, key) for key in keys[header + 1 :]}
            self.findings[before:] = [
                *(found for found in self.findings[before:] if found.place not in own),
                KEY_TWICE.at(place, message, help_, edits=[edit]),
            ]
        return size

    def _pair(self, key: yaml.Node, value: yaml.Node, path: Path_) -> int:
        if key.tag == MERGE:
            # What `<<` takes over has its places where it is written.
            return self.visit(value, (*path, "<<"))
        self._check(key)
        if not isinstance(key, yaml.ScalarNode):
            template = isinstance(key, yaml.MappingNode) and key.flow_style
            message = "`{{` begins a template, and an inventory has none" if template else "a key must be a text"
            self._wrong(key, message, "write the value itself" if template else "write a name in its place")
            return self.visit(value, (*path, "?"))
        here = (*path, str(key.value))
        if here in self.keys:
            message = f"`{key.value}` stands here twice; the first is at line {self.keys[here].line}"
            help_ = "keep one of the two"
            if isinstance(value, yaml.MappingNode):
                named = bool(path) and path[-1] in _NAMES_BELOW
                first = self.keys[here].line
                help_ = (
                    "rename one of the two" if named else f"move what is below it to line {first}, and leave this out"
                )
            self.findings.append(KEY_TWICE.at(_place(self.file, key), message, help_))
            here = (*path, f"{key.value} again")  # what is below it stands nowhere twice
        self.keys[here] = _place(self.file, key)
        return 1 + self.visit(value, here)

    def _check(self, node: yaml.Node) -> None:
        """Report tags, which have no meaning here, and unpaired surrogates, which are not text."""
        if node.tag != _meant(node):
            message = f"`{_shown_tag(node.tag)}` is a tag, which no value here has"
            self._wrong(node, message, "write the value without it")
        if isinstance(node, yaml.ScalarNode) and not node.value.isascii() and _HALVES.search(node.value):
            message = f"this text holds {harmful(_HALVES.findall(node.value)[0])}, which is no text"
            self._wrong(node, message, "write the whole character, or take it out", HARMFUL_CHARACTER)

    def _wrong(self, node: yaml.Node, message: str, help_: str, rule: Rule = UNREADABLE) -> None:
        self.findings.append(rule.at(_place(self.file, node), message, help_))


def _meant(node: yaml.Node) -> str:
    """Return the tag that a node has by its form; a text in quotes is a text."""
    if isinstance(node, yaml.MappingNode):
        return "tag:yaml.org,2002:map"
    if isinstance(node, yaml.SequenceNode):
        return "tag:yaml.org,2002:seq"
    if not isinstance(node, yaml.ScalarNode) or node.tag == STR or node.style in _QUOTED:
        return STR
    resolvers = Loader.yaml_implicit_resolvers.get(node.value[:1], [])
    return next((str(tag) for tag, pattern in resolvers if pattern.match(node.value)), STR)


def _shown_tag(tag: str) -> str:
    """Return a tag in its short form: `!!set`."""
    return tag.replace("tag:yaml.org,2002:", "!!")[:40]


def _place(file: Path, node: yaml.Node) -> Place:
    return Place(file, node.start_mark.line + 1, node.start_mark.column + 1)


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
    return Document(document.file, data, _places_without(document.keys, names), _places_without(document.values, names))


def _places_without(places: Mapping[Path_, Place], names: frozenset[str]) -> dict[Path_, Place]:
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
