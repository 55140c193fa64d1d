"""Small queries of a host: which servers have a key, and the texts of files."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from llamaherd.layout import KEYS
from llamaherd.onhost.files import resolve
from llamaherd.onhost.system import System
from llamaherd.onhost.verbs import Verb

MOST_TEXT = 256 << 10
"""Bytes of a file that are read; the largest of llamaherd's has some 30 kB."""


@dataclass(frozen=True)
class KeysInput:
    """Names of servers."""

    names: tuple[str, ...]


@dataclass(frozen=True)
class KeysFound:
    """The servers that have a key on the host. The keys stay there."""

    names: tuple[str, ...]


@dataclass(frozen=True)
class TextsInput:
    """Paths of files."""

    paths: tuple[str, ...]


@dataclass(frozen=True)
class TextsFound:
    """The beginnings of the files that are there, by their paths. Bytes that are no UTF-8 are replaced."""

    texts: Mapping[str, str]


def find_keys(given: KeysInput, system: System) -> KeysFound:
    """Return which servers have a key."""
    return KeysFound(tuple(name for name in given.names if system.entry(f"{KEYS}/{name}")))


def read_texts(given: TextsInput, system: System) -> TextsFound:
    """Return the texts of files. A path that is not a file is left out: opening a pipe may block for ever."""
    found = {}
    for path in given.paths:
        there = resolve(path, system)
        text = system.read(path, MOST_TEXT) if there and there.kind == "file" else None
        if text is not None:
            found[path] = text
    return TextsFound(found)


VERBS = {"keys": Verb(KeysInput, find_keys), "texts": Verb(TextsInput, read_texts)}
