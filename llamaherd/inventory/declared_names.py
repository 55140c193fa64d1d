"""Names that a rig declares, and by what else people call the things that they stand for."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from llamaherd.diagnostics.findings import nearest
from llamaherd.diagnostics.near import begun, slip
from llamaherd.reference.cards import known_as

OF: Mapping[str, tuple[str, ...]] = {
    "engine": ("engines",),
    "model": ("models",),
    "card": ("gpus", "cards"),
}
"""Where things are declared, by what they are."""
_TOLD_BY: Mapping[str, tuple[str, ...]] = {
    "engine": ("kind", "ref", "image"),
    "model": ("hf", "file", "quant"),
    "card": ("model", "uuid", "pci", "index"),
}
"""The keys whose values people give in place of the name."""
_LONGEST = 300
"""Characters of the longest word that is compared with names: a comparison takes time that grows with the length."""


def declared_of(data: Mapping[str, Any], what: str) -> dict[str, Any]:
    """What a rig's YAML declares of a kind, by name; nothing where it is not readable."""
    found: Any = data
    for key in OF[what]:
        found = found.get(key) if isinstance(found, Mapping) else None
    return {str(name): each for name, each in found.items()} if isinstance(found, Mapping) else {}


def meant_name(data: Mapping[str, Any], what: str, word: str) -> str | None:
    """The name that was surely meant: misspelt, or told by what the thing is."""
    if len(word) > _LONGEST:
        return None
    declared = declared_of(data, what)
    if close := slip(word, declared) or begun(word, declared):
        return close
    told = [name for name, each in declared.items() if _is_told(each, what, word)]
    return told[0] if len(told) == 1 else None


def way_out(data: Mapping[str, Any], what: str, word: str) -> str:
    """What to write for a name that is not declared: a question, or all that are."""
    if meant := meant_name(data, what, word):
        return f"did you mean `{meant}`?"
    names = declared_of(data, what)
    if not names:
        example = {
            "card": "under `gpus`, as in `cards: {main: {model: RTX 3090}}`",
            "engine": "under `engines`, as in `main: {kind: llama.cpp, ref: b11434}`",
            "model": "under `models`, as in `small: {hf: bartowski/google_gemma-3-4b-it-GGUF, quant: Q4_K_M}`",
        }[what]
        return f"declare it {example}"
    return nearest("", names)


def _is_told(declared: Any, what: str, word: str) -> bool:
    values = [declared.get(key) for key in _TOLD_BY[what]] if isinstance(declared, Mapping) else []
    plain = _plain(word)
    if what == "card" and (card := known_as(word)):
        return bool(values) and known_as(str(values[0])) == card
    return any(
        plain in (_plain(str(value)), _plain(str(value).rpartition("/")[2])) for value in values if value is not None
    )


def _plain(word: str) -> str:
    return re.sub(r"[\s_-]+", "-", word.strip().lower()).removesuffix("-gguf")
