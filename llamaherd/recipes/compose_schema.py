"""Check a Compose file against Compose's own JSON Schema (compose-go 2.9.1)."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from difflib import get_close_matches
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from jsonschema import Draft7Validator, ValidationError


_TYPES = {
    "object": "a mapping, `key: value`",
    "array": "a list, `- item`",
    "string": "text",
    "number": "a number",
    "integer": "a whole number",
    "boolean": "`true` or `false`",
    "null": "nothing",
}
_MOST = 20
"""Findings of one file: what is no Compose file at all has thousands."""


@dataclass(frozen=True)
class ComposeRefusal:
    """Why Compose refuses a file, and where."""

    path: tuple[str | int, ...]
    message: str
    help: str
    of_key: bool = False
    """Whether it is about the key at `path` rather than about its value."""


@cache
def _validator() -> Draft7Validator:
    # Imported late: it takes a tenth of a second, and only Compose files need it.
    from jsonschema import Draft7Validator

    text = files("llamaherd.recipes").joinpath("data/compose-spec.json").read_text(encoding="utf-8")
    return Draft7Validator(json.loads(text))


def compose_refusals(data: dict[str, Any]) -> tuple[ComposeRefusal, ...]:
    """Return the reasons why Compose refuses a file, in the order of the schema."""
    found: list[ComposeRefusal] = []
    for error in _validator().iter_errors(data):
        found += _said(error)
        if len(found) >= _MOST:
            break
    return tuple(dict.fromkeys(found))


def _said(error: ValidationError) -> Iterator[ComposeRefusal]:
    inner = _meant(error)
    path = tuple(inner.absolute_path)
    name = _named(path)
    # The requirement of the schema: its type is open in jsonschema.
    demanded: Any = inner.validator_value
    if inner.validator == "additionalProperties" and isinstance(inner.instance, dict):
        yield from _unknown(inner, path)
        return
    if inner.validator == "required" and isinstance(inner.instance, dict):
        yield from (_missing(path, str(key)) for key in demanded if key not in inner.instance)
        return
    wanted = ""
    match inner.validator:
        case "type":
            wanted = " or ".join(_types(demanded))
        case "enum":
            wanted = "one of " + ", ".join(f"`{each}`" for each in demanded if each is not None)
        case "oneOf" | "anyOf":
            wanted = " or ".join(dict.fromkeys(_alternatives(inner)))
    if wanted:
        message = f"{name} is {_shown(inner.instance)}, and Compose requires {wanted}"
        yield ComposeRefusal(path, message, _instead(path, inner.instance, wanted))
    else:
        message = f"{name} is {_shown(inner.instance)}, which Compose refuses"
        yield ComposeRefusal(path, message, "see docs.docker.com/reference/compose-file")


_TIMES = frozenset({"interval", "timeout", "start_period", "start_interval", "stop_grace_period", "delay", "window"})


def _named(path: tuple[str | int, ...]) -> str:
    """Return a path as words."""
    if not path or isinstance(path[-1], str):
        return f"`{path[-1]}`" if path else "the file"
    parent = next((each for each in reversed(path) if isinstance(each, str)), "the list")
    return f"item {path[-1] + 1} of `{parent}`"


def _instead(path: tuple[str | int, ...], value: Any, wanted: str) -> str:
    """Return the help, with the written value if only that can be meant."""
    number = isinstance(value, int) and not isinstance(value, bool)
    if path[-1:] == ("gpus",):
        count = value if number else 1
        return f"write `gpus: all`, or a list: `gpus: [{{count: {count}}}]`"
    if number and path[-1] in _TIMES:
        return f"write it with its unit: `{value}s`"
    if number and wanted == _TYPES["string"]:
        return f'write it in quotes: `"{value}"`'
    if isinstance(value, bool) and wanted == _TYPES["string"]:
        return f'write it in quotes: `"{str(value).lower()}"`'
    if isinstance(value, str) and wanted == _TYPES["array"] and re.fullmatch(r"[\w./:-]{1,60}", value):
        return f"write a list: `[{value}]`"
    return f"write {wanted}"


def _meant(error: ValidationError) -> ValidationError:
    """Return the error within a choice of several shapes: that of the shape that is most similar to the value."""
    while error.context:
        deeper = [each for each in error.context if len(each.path) > 0 or each.validator != "type"]
        if not deeper:
            return error
        error = max(deeper, key=lambda each: (len(each.path), each.validator == "additionalProperties"))
    return error


def _unknown(error: ValidationError, path: tuple[str | int, ...]) -> Iterator[ComposeRefusal]:
    schema: Any = error.schema
    known = list(schema.get("properties", {}))
    where = f"`{path[-1]}`" if path else "the top"
    written: Any = error.instance
    for key in written:
        if key in known or str(key).startswith("x-"):
            continue
        close = get_close_matches(str(key), known, n=1, cutoff=0.7)
        way_out = f"did you mean `{close[0]}`?" if close else "leave it out, or see where it belongs"
        yield ComposeRefusal(
            (*path, key), f"Compose has no key `{key}` in {where}, and refuses the file", way_out, of_key=True
        )


def _missing(path: tuple[str | int, ...], key: str) -> ComposeRefusal:
    if key == "capabilities":
        message = "the reservation of a device names no `capabilities`, and Compose refuses the file"
        return ComposeRefusal(path, message, "add `capabilities: [gpu]`")
    where = f"`{path[-1]}`" if path else "the file"
    return ComposeRefusal(path, f"{where} lacks `{key}`, and Compose refuses the file", f"add `{key}`")


def _types(value: str | Iterable[str]) -> list[str]:
    return [_TYPES.get(each, each) for each in ([value] if isinstance(value, str) else value) if each != "null"]


def _alternatives(error: ValidationError) -> Iterator[str]:
    for each in error.context or ():
        if each.validator == "type":
            demanded: Any = each.validator_value
            yield from _types(demanded)


def _shown(value: Any) -> str:
    match value:
        case None:
            return "empty"
        case dict():
            return "a mapping"
        case list():
            return "a list"
        case bool():
            value = str(value).lower()
    text = str(value)
    return f"`{text if len(text) < 40 else text[:40] + '…'}`"
