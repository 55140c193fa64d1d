"""Keys that are indented too far, or not far enough: where they belong, and the edit that moves them there."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel

from llamaherd.checks.suggestions import keys_of_model
from llamaherd.diagnostics.findings import Edit
from llamaherd.inventory.exact_edits import moved_key
from llamaherd.inventory.schema import Rig
from llamaherd.inventory.schema.keys import container_type, declared_at, value_at
from llamaherd.inventory.yaml_file import Document, Path_
from llamaherd.text.quoting import comment
from llamaherd.text.textfile import lines_of

_FEWEST = 2
"""The fewest keys by which a mapping is recognised as an instance, a model, an engine or a GPU."""


@dataclass(frozen=True)
class Misplaced:
    """A key at a wrong depth: the sentence, the fix, its right path, its edits, and the keys that belong below it."""

    message: str
    help: str
    right: Path_
    edits: tuple[Edit, ...]
    below: frozenset[Path_]


def misplaced_key(document: Document, path: Path_) -> Misplaced | None:
    """Return where a key belongs that is unknown only because of its indentation; None for other keys."""
    place = document.keys.get(path)
    text = document.texts.get(place.file) if place else None
    if place is None or text is None or lines_of(text)[place.line - 1][: place.column - 1].strip():
        return None  # inherited, or within braces
    model, _ = _kinds(path[:-1])
    if model is not None and path[-1] in keys_of_model(model):
        return None
    value = value_at(document.data, path)
    below = frozenset(_followers(document.data, path)) if value is None else frozenset[Path_]()
    if value is None:
        value = value_at(document.data, path[:-1])
        value = {str(each[-1]): value[each[-1]] for each in below}
    outer = next((path[:n] for n in range(len(path) - 2, -1, -1) if _fits(document, path[:n], path[-1], value)), None)
    parent = outer if outer is not None else _inner(document, path, value)
    if parent is None:
        return None
    name, around = comment(str(path[-1])), comment(".".join(map(str, path[:-1])))
    where = f"below `{around}`" if around else "at the left edge"
    too = "indented too far" if outer is not None else "not indented enough"
    target = f"below `{comment('.'.join(map(str, parent)))}`" if parent else "at the left edge"
    moved = moved_key(document, path, parent)
    depth = f"indent it with {moved.depth} spaces, " if moved.depth else "write it "
    return Misplaced(
        f"`{name}` is {too}: it stands {where}", f"{depth}{target}", (*parent, path[-1]), moved.edits, below
    )


def _followers(data: Any, path: Path_) -> Iterator[Path_]:
    """Yield the keys that follow a key in its mapping."""
    around = value_at(data, path[:-1])
    keys = list(around) if isinstance(around, dict) else []
    for key in keys[keys.index(path[-1]) + 1 :] if path[-1] in keys else ():
        yield (*path[:-1], key)


def _fits(document: Document, parent: Path_, key: Any, value: Any) -> bool:
    """Return whether a key with a value belongs into a mapping that does not have it yet."""
    around = value_at(document.data, parent) if parent else document.data
    if around is not None and (not isinstance(around, dict) or key in around):
        return False
    model, item = _kinds(parent)
    if model is not None:
        return key in keys_of_model(model)
    known = keys_of_model(item) if item is not None and isinstance(value, Mapping) else ()
    matching = sum(each in known for each in value) if known else 0
    return matching >= _FEWEST and 2 * matching >= len(value)


def _kinds(parent: Path_) -> tuple[type[BaseModel] | None, type[BaseModel] | None]:
    """Return the model of a mapping, or of the named things in it."""
    found = declared_at(parent)
    if found.path != parent:
        return None, None
    kind = container_type(found.annotation) if parent else Rig
    if isinstance(kind, type) and issubclass(kind, BaseModel):
        return kind, None
    item = container_type(declared_at((*parent, "name")).annotation)
    return None, item if isinstance(item, type) and issubclass(item, BaseModel) else None


def _inner(document: Document, path: Path_, value: Any) -> Path_ | None:
    """Return the mapping above a key, in the lines of the file, that it belongs into."""
    around = value_at(document.data, path[:-1]) if len(path) > 1 else document.data
    keys = list(around) if isinstance(around, dict) else []
    model, _ = _kinds(path[:-1])
    for sibling in reversed(keys[: keys.index(path[-1])] if path[-1] in keys else []):
        at: Path_ | None = (*path[:-1], sibling)
        while at is not None:
            if _fits(document, at, path[-1], value):
                return at
            inside = value_at(document.data, at)
            at = (*at, next(reversed(inside))) if isinstance(inside, dict) and inside else None
        if model is None or sibling in keys_of_model(model):
            return None
    return None
