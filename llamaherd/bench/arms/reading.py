"""A text read in two ways on a host by the engine's own tool, to know how far they are from each other."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from itertools import islice
from typing import Protocol

from llamaherd.bench.arms.divergence import Compared, NoFiguresError, quality_of
from llamaherd.bench.arms.host import Ran
from llamaherd.bench.arms.out_of_memory import lacked_memory
from llamaherd.bench.arms.units import SCRATCH
from llamaherd.bench.asking.suite import long_text
from llamaherd.diagnostics.findings import InventoryError, UserError
from llamaherd.memory.reading import MOST_TOKENS
from llamaherd.plan import Reading

LOGITS = f"{SCRATCH}/logits"
"""Where one run keeps them for the other."""
_LETTERS_A_TOKEN = 6
"""At most, on average: so many of the text are sent for each token that is to be read."""
_SPARE = 1 << 30
"""Bytes that are left free on the disk."""
_TRIES = 3
"""Ways of reading the text, each a shorter one, where there is no room for the one before."""
_RUNS = 2
"""Of the tool: one keeps logits, and the other one compares."""
_LETTERS = 300
_NO_DISK = "no room in"
"""What the script says of a disk: a shorter way needs less of that, too."""

UnitOf = Callable[[Reading, int], str]
"""The unit that reads the text in both ways, one after the other, each for so many seconds at most."""


class Host(Protocol):
    """What runs a unit in the place of a server."""

    def run_to_end(self, unit: str, room: int, /) -> Ran:
        """Run it to its end, with so many bytes of room on the disk."""
        ...

    def stop(self) -> None:
        """Stop it: what it keeps goes with it."""
        ...

    def clock(self) -> float:
        """Seconds."""
        ...


def read_text() -> str:
    """What is read: our own text, long enough."""
    return long_text(_LETTERS_A_TOKEN * MOST_TOKENS)


@dataclass(frozen=True)
class Reader:
    """Has a text read on a host. `readings` are ways in which it could be, the best one first."""

    host: Host
    unit_of: UnitOf
    readings: Iterable[Reading]

    def compared(self, seconds: float) -> Compared:
        """What comes of it within so many seconds. Raises UserError where the host is gone: then nothing is known."""
        began = self.host.clock()
        found = Compared(says="in no way is there memory for it")
        for reading in islice(self.readings, _TRIES):
            left = seconds - (self.host.clock() - began)
            found = self._read(reading, max(1, int(left / _RUNS)))
            if found.quality or not (lacked_memory(found.says) or _NO_DISK in found.says):
                break
        return found.model_copy(update={"seconds": round(self.host.clock() - began, 3)})

    def _read(self, reading: Reading, seconds: int) -> Compared:
        found = Compared(context=reading.context, chunks=reading.chunks)
        try:
            unit = self.unit_of(reading, seconds)
        except InventoryError as error:
            return found.model_copy(update={"says": "; ".join(each.message for each in error.findings)[:_LETTERS]})
        except UserError as error:
            return found.model_copy(update={"says": error.message[:_LETTERS]})
        try:
            ran = self.host.run_to_end(unit, reading.bytes + _SPARE)
        finally:
            self.host.stop()
        if not ran.well:
            return found.model_copy(update={"says": ran.says[-_LETTERS:] or "it ended, and says nothing"})
        try:
            return found.model_copy(update={"quality": quality_of(ran.says)})
        except NoFiguresError as error:
            return found.model_copy(update={"says": str(error)})
