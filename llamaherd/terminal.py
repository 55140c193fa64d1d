"""Text of others on a terminal."""

from __future__ import annotations


def printable(text: str) -> str:
    """One line for rich, without control characters: models and names say what they like, and a terminal obeys."""
    from rich.markup import escape

    return escape("".join(c for c in " ".join(text.split()) if c.isprintable()))
