"""Load and dump YAML by the rules of YAML 1.2, with size limits."""

from __future__ import annotations

import re
from typing import Any

import yaml


class Loader(yaml.SafeLoader):
    """A loader by the rules of YAML 1.2, which editors use.

    `on`, `off`, `yes`, `no`, dates and texts with colons, such as `0000:01:00.0`, are texts: YAML 1.1 reads the last as
    a number to base 60. `010` is ten, and keys are texts.
    """

    def construct_object(self, node: yaml.Node, deep: bool = False) -> Any:
        try:
            return super().construct_object(node, deep=deep)
        except (ValueError, AttributeError, TypeError, LookupError) as error:
            # A text that contradicts its tag, such as `!!int x`.
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
    """A dumper that quotes texts that our loader, or a YAML 1.1 loader, would not read as texts."""


Dumper.yaml_implicit_resolvers = {
    first: [*yaml.SafeDumper.yaml_implicit_resolvers.get(first, ()), *Loader.yaml_implicit_resolvers.get(first, ())]
    for first in {*yaml.SafeDumper.yaml_implicit_resolvers, *Loader.yaml_implicit_resolvers}
}

MOST_BYTES = 1 << 20
"""The most bytes of an inventory's file: a rig with all keys has some 20 kB."""

MOST_DIGITS = 80
"""The most digits of a whole number: commits have 40, hashes 64."""

MOST_NODES = 10_000
"""The most values of an inventory's file, with aliases expanded: a rig with all keys has 500."""

MOST_LEVELS = 100
"""The most levels of brackets and indentation: a rig has eight. The parser recurses for each."""

_READ_TWICE = 1 << 16
"""The most characters of an unreadable text that is parsed again, slowly, for a better message."""

STR, MERGE = "tag:yaml.org,2002:str", "tag:yaml.org,2002:merge"

if yaml.__with_libyaml__:

    class FastLoader(yaml.CSafeLoader):
        """Parses the same nodes ten times as fast."""

    FastLoader.yaml_implicit_resolvers = Loader.yaml_implicit_resolvers


def nodes_of(text: str) -> yaml.Node | None:
    """Return the nodes of a text. If libyaml fails, parse again in Python for a better message and place."""
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
    """Return an upper bound of the levels of a text.

    It counts one for each bracket, and two for each column before the first word of a line: a list may be indented as
    little as its key.
    """
    leading = (len(line) - len(line.lstrip(" \t-?:")) for line in text.splitlines())
    return text.count("[") + text.count("{") + 2 * max(leading, default=0)


def _refuse_depth(text: str) -> None:
    """Count the levels: libyaml's parser, unlike its composer, does not recurse. Raise RecursionError."""
    level = 0
    for event in yaml.parse(text, Loader=FastLoader):
        level += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
        if level > MOST_LEVELS:
            raise RecursionError
