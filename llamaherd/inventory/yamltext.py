"""YAML as people mean it: the loaders, the dumper, and how much a text may hold."""

from __future__ import annotations

import re
from typing import Any

import yaml


class Loader(yaml.SafeLoader):
    """YAML as people mean it, and editors by YAML 1.2: `on`, `off`, `yes` and `no` are words, so are dates and what has
    colons, such as `0000:01:00.0`, a number by base 60 to YAML 1.1; `010` is ten; keys are text."""

    def construct_object(self, node: yaml.Node, deep: bool = False) -> Any:
        try:
            return super().construct_object(node, deep=deep)
        except (ValueError, AttributeError, TypeError, LookupError) as error:
            # What a tag promises and the text does not keep, such as `!!int x`.
            raise yaml.constructor.ConstructorError(None, None, str(error), node.start_mark) from None

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        self.flatten_mapping(node)  # what `<<` merges in
        return {str(key.value): self.construct_object(value, deep=deep) for key, value in node.value}


def _whole_number(loader: Loader, node: yaml.ScalarNode) -> int | str:
    """Return the number, or the text as it is written if it has more digits than any key takes."""
    text = str(loader.construct_scalar(node))
    if len(text) > MOST_DIGITS:
        return text
    return int(text, 16 if text.startswith("0x") else 10)


_INT, _FLOAT = "tag:yaml.org,2002:int", "tag:yaml.org,2002:float"
_UNMEANT = ("tag:yaml.org,2002:bool", "tag:yaml.org,2002:timestamp", _INT, _FLOAT)
Loader.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in resolvers if tag not in _UNMEANT]
    for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}
Loader.add_implicit_resolver(
    "tag:yaml.org,2002:bool", re.compile(r"^(?:true|True|TRUE|false|False|FALSE)$"), list("tTfF")
)
Loader.add_implicit_resolver(_INT, re.compile(r"^(?:[-+]?[0-9]+|0x[0-9a-fA-F]+)$"), list("-+0123456789"))
Loader.add_implicit_resolver(
    # With a dot: `12345e7` is a short commit.
    _FLOAT,
    re.compile(r"^[-+]?(?:(?:[0-9]+\.[0-9]*|\.[0-9]+)(?:[eE][-+]?[0-9]+)?|\.(?:inf|Inf|INF))$|^\.(?:nan|NaN|NAN)$"),
    list("-+.0123456789"),
)
Loader.add_constructor(_INT, _whole_number)


class Dumper(yaml.SafeDumper):
    """Puts quotes around whatever would be no text to our loader, or to others', which go by YAML 1.1."""


Dumper.yaml_implicit_resolvers = {
    first: [*yaml.SafeDumper.yaml_implicit_resolvers.get(first, ()), *Loader.yaml_implicit_resolvers.get(first, ())]
    for first in {*yaml.SafeDumper.yaml_implicit_resolvers, *Loader.yaml_implicit_resolvers}
}

MOST_BYTES = 1 << 20
"""Of an inventory's file: a rig with all that can be said takes some 20 kB."""

MOST_DIGITS = 80
"""Of a whole number: commits have 40, hashes 64."""

MOST_NODES = 10_000
"""Values of an inventory's file, with all that its aliases stand for: a rig with all that can be said has 500."""

MOST_LEVELS = 100
"""Levels of brackets and indentation: a rig has eight. Whoever reads calls itself for each."""

_READ_TWICE = 1 << 16
"""Characters up to which a text that cannot be read is read once more, slowly, for a better sentence."""

STR, MERGE = "tag:yaml.org,2002:str", "tag:yaml.org,2002:merge"

if yaml.__with_libyaml__:

    class FastLoader(yaml.CSafeLoader):
        """The same nodes, ten times as fast."""

    FastLoader.yaml_implicit_resolvers = Loader.yaml_implicit_resolvers


def nodes_of(text: str) -> yaml.Node | None:
    """The nodes of a text. What libyaml refuses is read again for a sentence and a place: its own are poorer."""
    if not yaml.__with_libyaml__:
        return yaml.compose(text, Loader=Loader)
    if _most_levels(text) > MOST_LEVELS:
        _refuse_depth(text)
    try:
        return yaml.compose(text, Loader=FastLoader)
    except yaml.YAMLError as error:
        if len(text) > _READ_TWICE:
            raise
        try:
            return yaml.compose(text, Loader=Loader)
        except (ValueError, OverflowError):  # of an escape such as `\UFFFFFFFF`, which is no character
            raise error from None


def _most_levels(text: str) -> int:
    """No fewer levels than a text has: one for each bracket, and two for each column before the first word of a line,
    where a list may stand as far left as the key that it belongs to."""
    leading = (len(line) - len(line.lstrip(" \t-?:")) for line in text.splitlines())
    return text.count("[") + text.count("{") + 2 * max(leading, default=0)


def _refuse_depth(text: str) -> None:
    """Count the levels: libyaml's parser, unlike its composer, does not call itself for each. Raises RecursionError."""
    level = 0
    for event in yaml.parse(text, Loader=FastLoader):
        level += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
        if level > MOST_LEVELS:
            raise RecursionError
