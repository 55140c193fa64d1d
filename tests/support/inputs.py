"""Verbs of the program on hosts, and arbitrary values of their inputs."""

from __future__ import annotations

import importlib
import types
from collections.abc import Iterator, Mapping
from dataclasses import fields, is_dataclass
from functools import cache
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from hypothesis import strategies as st

from llamaherd.onhost.document import Secret
from llamaherd.onhost.verbs import Verb
from tests.support.rigs import ROOT

TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
JSON = st.one_of(st.none(), st.booleans(), st.integers(-(1 << 60), 1 << 60), st.floats(-1e18, 1e18), TEXTS)
OBJECTS = st.one_of(JSON, st.lists(JSON, max_size=2), st.dictionaries(TEXTS, JSON, max_size=2))


@cache
def all_verbs() -> dict[str, Verb[Any]]:
    """Return every verb by its name, but for those of all roles."""
    return dict(_verbs())


MOST = 1 << 63
"""No number of a document is larger."""


def _verbs() -> Iterator[tuple[str, Verb[Any]]]:
    for file in sorted((ROOT / "llamaherd" / "onhost").glob("[a-z]*.py")):
        for name, verb in getattr(importlib.import_module(f"llamaherd.onhost.{file.stem}"), "VERBS", {}).items():
            yield f"llamaherd.{file.stem}.{name}", verb
    for file in sorted((ROOT / "roles").glob("*/onhost/*.py")) + sorted((ROOT / "roles").glob("*/onhost.py")):
        parts = [part for part in file.relative_to(ROOT).with_suffix("").parts if part != "__init__"]
        for name, verb in getattr(importlib.import_module(".".join(parts)), "VERBS", {}).items():
            yield ".".join([*(part for part in parts[1:] if part != "onhost"), name]), verb


def values_of(kind: Any) -> st.SearchStrategy[Any]:
    """Return arbitrary values of a type that a document can hold."""
    simple = {
        str: TEXTS,
        int: st.integers(1 - MOST, MOST - 1),
        bool: st.booleans(),
        Secret: TEXTS.map(Secret),
        object: OBJECTS,
    }
    if kind in (float, Any):
        return st.floats(-MOST / 2, MOST / 2) if kind is float else OBJECTS
    if kind in simple:
        return simple[kind]
    if is_dataclass(kind):
        return _values_of_fields(kind)
    origin, inner = get_origin(kind), get_args(kind)
    if origin is Literal:
        return st.sampled_from(inner)
    if origin in (Union, types.UnionType):
        return st.one_of(*(st.none() if each is type(None) else values_of(each) for each in inner))
    if origin is tuple and inner[1:] == (...,):
        return st.lists(values_of(inner[0]), max_size=2).map(tuple)
    if origin is tuple:
        return st.tuples(*map(values_of, inner))
    assert issubclass(origin or object, Mapping), kind
    return st.dictionaries(TEXTS, values_of(inner[1]), max_size=2)


def _values_of_fields(kind: Any) -> st.SearchStrategy[Any]:
    hints = get_type_hints(kind)
    return st.builds(kind, **{each.name: values_of(hints[each.name]) for each in fields(kind)})
