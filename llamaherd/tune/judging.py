"""What a coarser cache costs, asked of the engine's own tool on the host: a text read with f16, and with it."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from itertools import islice
from typing import Protocol

from llamaherd.bench.arms.host import Ran
from llamaherd.diagnostics.findings import InventoryError, UserError
from llamaherd.tune.candidate import Candidate
from llamaherd.tune.passes import Reading
from llamaherd.tune.quality import Judged, NoFiguresError, quality_of

_SPARE = 1 << 30
"""Bytes that are left free on the disk."""
_TRIES = 3
"""Ways of reading the text, each a shorter one, where there is no room for the one before."""
_RUNS = 2
"""Of the tool: one keeps the logits of f16, and the other one compares."""
_LETTERS = 300
_NO_ROOM = re.compile(
    r"out of memory|for want of RAM|failed to allocate|unable to allocate|cudaMalloc|bad_alloc|no room in", re.I
)

UnitOf = Callable[[Candidate, str, Reading, int], str]
"""The unit that reads the text with a candidate's weights, once with f16 and once with this cache."""


class Host(Protocol):
    """What runs a unit in the place of a candidate."""

    def run_to_end(self, unit: str, room: int, /) -> Ran:
        """Run it to its end, with so many bytes of room on the disk."""
        ...

    def stop(self) -> None:
        """Stop it: what it keeps goes with it."""
        ...

    def clock(self) -> float:
        """Seconds."""
        ...


@dataclass(frozen=True)
class Judging:
    """The judge of a search. `readings` are ways in which the text could be read, the best one first."""

    host: Host
    unit_of: UnitOf
    readings: Callable[[Candidate], Iterable[Reading]]

    def judged(self, candidate: Candidate, kv: str, seconds: float) -> Judged:
        """What a cache costs with a candidate's weights, within so many seconds. Raises UserError where the host is
        gone: then nothing is known of it."""
        began = self.host.clock()
        found = Judged(kv=kv, says="in no way is there memory for it")
        for reading in islice(self.readings(candidate), _TRIES):
            left = seconds - (self.host.clock() - began)
            found = self._read(candidate, kv, reading, max(1, int(left / _RUNS)))
            if found.quality or not _NO_ROOM.search(found.says):
                break
        return found.model_copy(update={"seconds": round(self.host.clock() - began, 3)})

    def _read(self, candidate: Candidate, kv: str, reading: Reading, seconds: int) -> Judged:
        found = Judged(kv=kv, context=reading.context, chunks=reading.chunks)
        try:
            unit = self.unit_of(candidate, kv, reading, seconds)
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
