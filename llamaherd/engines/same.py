"""Frozen values as keys of caches, however large: what is worked out of one is worked out once."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Generic, TypeVar

T = TypeVar("T")


@dataclass(frozen=True, eq=False)
class Same(Generic[T]):
    """A frozen value that is the same as itself alone.

    A key keeps its value alive, so that no other one can come to its place in memory.
    """

    value: T

    def __eq__(self, other: object) -> bool:
        """Whether it is that very value."""
        return isinstance(other, Same) and self.value is other.value

    def __hash__(self) -> int:
        """A hash that costs nothing to find."""
        return id(self.value)
