"""What went wrong, said so that a person can act on it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(eq=False)
class SaidError(Exception):
    """One sentence that says what is wrong, and a way out. Neither may hold a secret or a URL's query."""

    message: str
    help: str

    def __str__(self) -> str:
        return f"{self.message}\n  help: {self.help}"
