"""What a coarser cache costs, asked of the engine's own tool on the host: a text read with f16, and with it."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from llamaherd.bench.arms.reading import Host, Reader
from llamaherd.plan import Reading
from llamaherd.tune.candidate import Candidate
from llamaherd.tune.quality import Judged

UnitOf = Callable[[Candidate, str, Reading, int], str]
"""The unit that reads the text with a candidate's weights, once with f16 and once with this cache."""


@dataclass(frozen=True)
class Judging:
    """The judge of a search. `readings` are ways in which the text could be read, the best one first."""

    host: Host
    unit_of: UnitOf
    readings: Callable[[Candidate], Iterable[Reading]]

    def judged(self, candidate: Candidate, kv: str, seconds: float) -> Judged:
        """What a cache costs with a candidate's weights, within so many seconds. Raises UserError where the host is
        gone: then nothing is known of it."""

        def unit(reading: Reading, longest: int) -> str:
            return self.unit_of(candidate, kv, reading, longest)

        found = Reader(self.host, unit, self.readings(candidate)).compared(seconds)
        return Judged.model_validate({**dict(found), "kv": kv})
