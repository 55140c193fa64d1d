"""What a search may change: axes, each a key of the inventory with the values that are worth a try. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal

from llamaherd.tune.candidate import Candidate, Value

How = Literal["climb", "each"]
"""Step by step from where it is, as long as it gets better; or every value."""


@dataclass(frozen=True)
class Axis:
    """A key and its values, in order where it is climbed. `needs` is a key without which it means nothing.

    `leaps` are keys together that are worth a try while it is off: one step alone may be no gain where two are.
    """

    key: str
    values: tuple[Value, ...]
    how: How = "climb"
    needs: str | None = None
    leaps: tuple[Mapping[str, Value], ...] = ()
    down_first: bool = False

    def among(self, candidate: Candidate) -> bool:
        """Whether it means something for this candidate."""
        return self.needs is None or candidate[self.needs] is not None

    def near(self, value: Value) -> int:
        """The number of a value, or of the one that is nearest to it."""
        if value in self.values:
            return self.values.index(value)
        numbers = [
            (abs(each - value), place)
            for place, each in enumerate(self.values)
            if isinstance(each, int | float) and isinstance(value, int | float)
        ]
        return min(numbers)[1] if numbers else 0


@dataclass(frozen=True)
class Space:
    """All axes, in the order in which they depend on each other, and what memory allows.

    `pack` puts as much of a candidate on its GPUs as arithmetic says they hold; None where it fits in no way. It sets
    the keys of `packed` alone.
    """

    axes: tuple[Axis, ...]
    pack: Callable[[Candidate], Candidate | None]
    packed: tuple[str, ...] = ()
    unpack: Callable[[Candidate], Candidate | None] = lambda _: None
    """The same with a step less on its GPUs, where arithmetic was wrong by a little; None at the end."""

    def axis(self, key: str) -> Axis:
        """The axis of a key. Raises KeyError."""
        found = next((each for each in self.axes if each.key == key), None)
        if found is None:
            raise KeyError(key)
        return found

    def tidy(self, candidate: Candidate) -> Candidate:
        """The same without keys that mean nothing for it: two that serve alike are one."""
        idle = [axis.key for axis in self.axes if not axis.among(candidate)]
        return candidate.with_keys(dict.fromkeys(idle)) if idle else candidate
