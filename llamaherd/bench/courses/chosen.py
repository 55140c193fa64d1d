"""The series that somebody has asked for beside the quick measurement, as far as a server can be measured so."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from llamaherd.bench.asking.endpoint import Served
from llamaherd.bench.asking.suite import suite
from llamaherd.bench.courses.course import Course
from llamaherd.bench.courses.energy import REST, long_enough
from llamaherd.bench.courses.ladder import Ladder, fitting
from llamaherd.bench.courses.load import KIND, SECONDS, Load, queued
from llamaherd.bench.courses.power import ROUNDS, PowerSeries, power_series
from llamaherd.bench.courses.separate import Separate
from llamaherd.bench.courses.soak import Soak
from llamaherd.bench.job import Known
from llamaherd.bench.schedule import Series

_LADDER, _ENERGY, _LIMIT = 3600, 300, 60
"""Seconds that a prefill of hundreds of thousands of tokens may take, long answers, and a power limit in a round."""

_ANEW = "depths are read anew each: the server does not take tokens, as llama.cpp does"

REST_SECONDS = 2.0
"""How long nothing is asked, for what is taken at rest."""


@dataclass(frozen=True)
class Chosen:
    """Depths, numbers of requests at once, seconds of a soak, energy, power limits; nothing that was not asked for."""

    depths: tuple[int, ...] = ()
    levels: tuple[int, ...] = ()
    soak: float = 0.0
    energy: bool = False
    limits: tuple[int, ...] = ()

    @property
    def most_seconds(self) -> float:
        """How long they may take beside the quick measurement: nobody knows beforehand how slow a server is."""
        more = _LADDER * bool(self.depths) + 2 * SECONDS * len(self.levels)
        return more + 1.2 * self.soak + _ENERGY * self.energy + ROUNDS * _LIMIT * len(self.limits)

    @property
    def rest_seconds(self) -> float:
        """How long nothing is asked before all else."""
        return REST if self.energy else REST_SECONDS

    def series(self, known: Known) -> tuple[Series, ...]:
        """Those of single requests."""
        found: list[Series] = []
        if self.energy and (energy := long_enough(suite().prompts["prose"][0], known)):
            found.append(energy)
        if self.soak:
            found.append(Soak(suite().prompts["code"][0], self.soak))
        if self.limits:
            found.append(power_series(known, self.limits))
        return tuple(found)

    @staticmethod
    def beforehand(series: Sequence[Series]) -> tuple[str, ...]:
        """Sentences of what is done to the host, and for how long."""
        return tuple(each.beforehand for each in series if isinstance(each, PowerSeries))

    def courses(self, served: Served) -> tuple[tuple[Course, ...], tuple[str, ...]]:
        """What can be measured, and sentences of what cannot, or otherwise than somebody may think."""
        found = [*self._ladder(served), *self._load(served)]
        courses = tuple(course for course, _ in found if course is not None)
        return courses, tuple(said for _, said in found if said)

    def _ladder(self, served: Served) -> Iterator[tuple[Course | None, str | None]]:
        if not self.depths:
            return
        ladder, left = fitting(Ladder(self.depths), served.context)
        if ladder.depths and not served.native:
            yield (
                Separate(ladder.depths),
                _ANEW,
            )
        elif ladder.depths:
            yield ladder, None
        yield None, left

    def _load(self, served: Served) -> Iterator[tuple[Course | None, str | None]]:
        if self.levels:
            yield Load(self.levels, suite().prompts[KIND]), queued(self.levels, served.slots)


NOTHING_MORE = Chosen()
