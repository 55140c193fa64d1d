"""JSON documents as frozen values, and frozen values as JSON: the input and output of the program on a host."""

from __future__ import annotations

import json
import math
import types
from collections.abc import Mapping
from dataclasses import MISSING, fields, is_dataclass
from functools import cache
from typing import Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

VERSION = 1
"""Of the format of documents."""
MOST_BYTES = 64 << 20
"""Bytes of a document: a plan of many servers has some 100 kB, and headers of models some MB each."""
MOST_DEPTH = 16
"""Objects and arrays within each other."""
_MOST_NUMBER = 1 << 63

T = TypeVar("T")


class DocumentError(Exception):
    """A document is invalid: the place, and the reason. The message contains no value."""


class Secret:
    """A text that no `repr`, no log and no message shows. `text` is for the file or the request that needs it."""

    __slots__ = ("text",)

    def __init__(self, text: str) -> None:
        self.text = text

    def __repr__(self) -> str:
        return "Secret(…)"

    __str__ = __repr__

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Secret) and other.text == self.text

    def __hash__(self) -> int:
        return hash(self.text)


def parse_document(data: bytes) -> object:
    """Return the value of a JSON document. Raise DocumentError if it is too large or deep, or ambiguous."""
    if len(data) > MOST_BYTES:
        raise DocumentError(f"the document has more than {MOST_BYTES >> 20} MiB")
    try:
        value: object = json.loads(data, object_pairs_hook=_unique, parse_float=_finite, parse_constant=_finite)
    except (ValueError, RecursionError) as error:
        raise DocumentError(f"the document is not JSON: {type(error).__name__}") from None
    _require_depth(value)
    return value


def _unique(pairs: list[tuple[str, object]]) -> dict[str, object]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise DocumentError("a key of the document occurs twice")
    return found


def _finite(text: str) -> float:
    """Return a number of a document. Python reads `1e999` as infinite."""
    if not math.isfinite(number := float(text)):
        raise DocumentError("a number of the document is not finite")
    return number


def _require_depth(value: object) -> None:
    level: list[object] = [value]
    for _ in range(MOST_DEPTH):
        inner: list[object] = []
        for each in level:
            if isinstance(each, dict):
                inner += each.values()
            elif isinstance(each, list):
                inner += each
        if not inner:
            return
        level = inner
    raise DocumentError(f"the document has more than {MOST_DEPTH} levels")


def decode(kind: type[T], value: object) -> T:
    """Return a value of a frozen dataclass from parsed JSON. Raise DocumentError where a field does not match."""
    found: T = _decode(kind, value, kind.__name__)
    return found


def _decode(kind: Any, value: object, at: str) -> Any:
    if is_dataclass(kind):
        return _decode_fields(kind, value, at)
    if kind is Secret:
        return Secret(_require(str, value, at))
    origin, inner = get_origin(kind), get_args(kind)
    if origin is Literal:
        if not any(value == each and type(value) is type(each) for each in inner):
            raise DocumentError(f"{at} is not one of its values")
        return value
    if origin in (Union, types.UnionType):
        if value is None and type(None) in inner:
            return None
        return _decode(next(each for each in inner if each is not type(None)), value, at)
    if origin is tuple:
        return _decode_tuple(inner, _require(list, value, at), at)
    if origin is not None and issubclass(origin, Mapping):
        each_of = _require(dict, value, at).items()
        return {name: _decode(inner[1], each, f"{at}[…]") for name, each in each_of}
    if kind in (object, Any):
        return value
    return _decode_plain(kind, value, at)


def _decode_plain(kind: Any, value: object, at: str) -> Any:
    """Return a number, a text, or another value without parts. A host may return anything that JSON can express."""
    if isinstance(value, (int, float)) and not abs(value) < _MOST_NUMBER:
        raise DocumentError(f"{at} is too large")
    if kind is float and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    if isinstance(value, str) and not value.isascii() and any("\ud800" <= each <= "\udfff" for each in value):
        raise DocumentError(f"{at} is not a text")
    return _require(kind, value, at)


def _decode_tuple(inner: tuple[Any, ...], values: list[Any], at: str) -> tuple[Any, ...]:
    if inner[1:] == (...,):
        return tuple(_decode(inner[0], each, f"{at}[{index}]") for index, each in enumerate(values))
    if len(values) != len(inner):
        raise DocumentError(f"{at} does not have {len(inner)} items")
    pairs = zip(inner, values, strict=True)
    return tuple(_decode(kind, each, f"{at}[{index}]") for index, (kind, each) in enumerate(pairs))


def _decode_fields(kind: Any, value: object, at: str) -> Any:
    given = dict(_require(dict, value, at))
    found: dict[str, Any] = {}
    hints = _hints(kind)
    for each in fields(kind):
        if each.name in given:
            found[each.name] = _decode(hints[each.name], given.pop(each.name), f"{at}.{each.name}")
        elif each.default is MISSING and each.default_factory is MISSING:
            raise DocumentError(f"{at}.{each.name} is missing")
    if given:
        raise DocumentError(f"{at} has a field that this version does not have: {min(given)[:40]!r}")
    return kind(**found)


@cache
def _hints(kind: Any) -> dict[str, Any]:
    return get_type_hints(kind)


def _require(kind: type[T], value: object, at: str) -> T:
    if not isinstance(value, kind) or isinstance(value, bool) is not (kind is bool):
        raise DocumentError(f"{at} is not of type {kind.__name__}")
    return value


def encode(value: object) -> object:
    """Convert a value for `json.dumps`. It contains the texts of secrets: it is for a pipe or a 0600 file."""
    if isinstance(value, Secret):
        return value.text
    if is_dataclass(value):
        return {each.name: encode(getattr(value, each.name)) for each in fields(value)}
    if isinstance(value, Mapping):
        return {str(name): encode(each) for name, each in value.items()}
    if isinstance(value, (list, tuple)):
        return [encode(each) for each in value]
    if value is None or isinstance(value, (str, int, float)):
        return value
    return str(value)


def dump(value: object) -> str:
    """Return a value as one line of JSON, with its secrets."""
    return json.dumps(encode(value), separators=(",", ":"), ensure_ascii=False)
