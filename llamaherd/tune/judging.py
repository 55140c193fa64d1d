"""What a candidate costs, asked of the engine's own tool on the host: a text read exactly, and as it does."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass

from llamaherd.bench.arms.reading import Host, Reader
from llamaherd.plan import Reading
from llamaherd.tune.candidate import Candidate
from llamaherd.tune.quality import Judged, Precision

UnitOf = Callable[[Candidate, Precision, Reading, int], str]
"""The unit that reads the text twice: exactly, and as a candidate does."""


@dataclass(frozen=True)
class Judging:
    """The judge of a search. `readings` are ways in which the text could be read, the best one first."""

    host: Host
    unit_of: UnitOf
    readings: Callable[[Candidate, Precision], Iterable[Reading]]

    def judged(self, candidate: Candidate, precision: Precision, seconds: float) -> Judged:
        """What a candidate's precision costs, within so many seconds. Raises UserError where the host is gone: then
        nothing is known of it."""

        def unit(reading: Reading, longest: int) -> str:
            return self.unit_of(candidate, precision, reading, longest)

        found = Reader(self.host, unit, self.readings(candidate, precision)).compared(seconds)
        return Judged.model_validate({**dict(found), **asdict(precision)})
