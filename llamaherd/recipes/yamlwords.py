"""Values of a YAML file as text of which each character has its place."""

from __future__ import annotations

from bisect import bisect_left

from llamaherd.inventory.yamlfile import Document, Path_
from llamaherd.recipes.tokens import Text


def text_at(document: Document, whole: Text, path: Path_, value: str) -> Text:
    """A value with the position of each of its characters, whether it is quoted, folded or plain. `whole` is all of
    the file."""
    place = document.value(path)
    start = bisect_left(whole.at, (place.line, place.column))
    positions: list[tuple[int, int]] = []
    here = start
    if whole.chars[start : start + 1] in {">", "|"}:
        here = max(whole.chars.find("\n", start), start)
    for char in value:
        found = here if char.isspace() else whole.chars.find(char, here)
        if found < 0 or found >= len(whole.at):
            return Text(value, ((place.line, place.column),) * len(value))
        positions.append(whole.at[found])
        here = found + 1 if not char.isspace() else here
    return Text(value, tuple(positions))
