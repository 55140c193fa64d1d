"""Measure the energy of a candidate: watch its GPUs, and try one power limit after another without a restart."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import Protocol
from zlib import crc32

from llamaherd.inventory.schema import Connect
from llamaherd.measure.bench.energy import POWER_ROUNDS, SECONDS, SETTLES
from llamaherd.measure.bench.reservation import PowerHold, PowerRange
from llamaherd.measure.meter.meter import Meter, Watch
from llamaherd.measure.meter.obstacles import gpus_of
from llamaherd.measure.trials.trial import NotStartedError
from llamaherd.measure.trials.units import Arm
from llamaherd.measure.tune.candidate import Candidate
from llamaherd.measure.tune.evaluation import Evaluation, Gauge, NoAnswerError
from llamaherd.measure.tune.final_measurements import is_limit_measured
from llamaherd.measure.tune.journal import Limited, SearchJournal, keys_of
from llamaherd.measure.tune.objective import Sizes
from llamaherd.plan import InstancePlan
from llamaherd.text.numbers import show_seconds

_SECONDS = 1200.0
"""That one candidate is watched at most: as long as GPUs are read five times a second."""
_REST = 1.0
_WATCHED_LONGER = 2.0
"""How many times as long as expected power limits may take. Up to `_SECONDS`, GPUs are read as often as else."""


@contextmanager
def watch_gpus(connect: Connect, arm: Arm, seconds: float = _SECONDS) -> Iterator[Watch]:
    """Watch the GPUs that a candidate is on while it runs, for so long at most. Raises UserError."""
    server = arm.instance.server.model_copy(update={"service": arm.service})
    instance = arm.instance.model_copy(update={"server": server})
    with Meter(connect, instance, max(_SECONDS, seconds)) as meter:
        yield Watch(meter, gpus_of(meter.first_look, server.cards))


@contextmanager
def limit_gpus(connect: Connect, limits: Sequence[int], arm: Arm, seconds: float) -> Iterator[tuple[Watch, PowerHold]]:
    """Watch the GPUs of a candidate while it runs, and hold them to these limits, for about so long. Raises UserError.

    What they were held to is back afterwards.
    """
    longest = _WATCHED_LONGER * seconds
    with (
        watch_gpus(connect, arm, longest) as watch,
        PowerHold(connect, watch.uuids, limits, longest, within=True) as holding,
    ):
        yield watch, holding


def require_limits(connect: Connect, uuids: Sequence[str], limits: Sequence[int]) -> None:
    """Raise UserError where not all of these GPUs take all of these limits. Nothing is changed."""
    with PowerHold(connect, uuids, limits, _REST):
        pass


def probe_energy(connect: Connect, declared: InstancePlan) -> tuple[tuple[str, ...], str | None]:
    """The GPUs of an instance, and why their energy is not known; None where it is.

    Nothing is changed. Raises UserError.
    """
    with Meter(connect, declared, _SECONDS) as meter:
        uuids = gpus_of(meter.first_look, declared.server.cards)
        took = Watch(meter, uuids).rest(_REST)
        hello = meter.readings.hello
    if took and took.joules is not None:
        return uuids, None
    if hello and hello.no_smi:
        return uuids, f"nothing is known of its GPUs: {hello.no_smi}"
    return uuids, "its GPUs tell neither energy nor power" if uuids else "the host tells of no GPU that it is on"


_LONGER = 1.3
"""How many times as long all takes under lower limits, about."""
_ENOUGH = 0.8
"""Of the time that it takes, that must be left: it is known no better."""


class Hold(Protocol):
    """GPUs that can be held to power limits."""

    @property
    def ranges(self) -> tuple[PowerRange, ...]:
        """What they were held to, and what they take."""
        ...

    def hold(self, watts: int | None, /) -> None:
        """Hold each to so many watts; None: to what it was held to before."""
        ...


class PowerProgress(Protocol):
    """Who is told how it goes on."""

    def limiting(self, watts: int, number: int) -> None:
        """A limit is measured, in this round."""
        ...


@dataclass
class PowerSeries:
    """One series of power limits. `limited` watches the GPUs of a candidate and holds them, for so many seconds."""

    evaluation: Evaluation
    journal: SearchJournal
    limits: Sequence[int]
    limited: Callable[[Arm, float], AbstractContextManager[tuple[Gauge, Hold]]]
    teller: PowerProgress

    @property
    def seconds(self) -> float:
        """About how long it takes, as far as the first reading tells: the same when it is gone on with."""
        sizes, trials = self._sizes, self.journal.search.trials
        if sizes is None:
            return 0.0
        figures = trials[0].figures
        decode = min(figures.decode.values(), default=0.0) or sizes.written / SECONDS
        alone = self.evaluation.aim.purpose != "throughput"
        reading = sizes.prompts * sizes.read / sizes.prefill if alone and sizes.prefill else 0.0
        once = SETTLES + _LONGER * ((len(self.evaluation.aim.kinds) if alone else 1) * sizes.written / decode + reading)
        return (figures.load or 0.0) + POWER_ROUNDS * (len(self.limits) + 1) * once

    @property
    def _sizes(self) -> Sizes | None:
        """Long enough for energy; None where nothing has run."""
        known = self.journal.search
        if known.sizes is None or not known.trials:
            return None
        decode = min(known.trials[0].figures.decode.values(), default=0.0)
        return Sizes.of(decode, known.sizes.prefill, self.evaluation.context, energy=True)

    def measure(self, found: Candidate, left: float) -> str:
        """All limits in all rounds, within so many seconds; why not, where they are not. Raises UserError."""
        sizes, known = self._sizes, self.journal.search
        if sizes is None:
            return "nothing has run"
        if not known.limited and left < _ENOUGH * self.seconds:
            takes, there = show_seconds(self.seconds), show_seconds(max(0.0, left))
            return f"{len(self.limits)} of them take about {takes}, and {there} of the budget are left"
        arm = self.evaluation.arm_of(found, None)
        servers = self.evaluation.servers
        servers.place(arm, self.evaluation.longest)
        try:
            servers.start("C")
            with self.limited(arm, self.seconds) as (gauge, hold):
                return self._rounds(found, sizes, gauge, hold)
        except NotStartedError as error:
            return f"what was found does not start any more: {error.says}"
        except NoAnswerError as error:
            return f"what was found does not answer any more: {error}"
        finally:
            servers.stop()

    def _rounds(self, found: Candidate, sizes: Sizes, gauge: Gauge, hold: Hold) -> str:
        now = round(max(each.now or 0.0 for each in hold.ranges))
        alike = {round(each.now or 0.0) for each in hold.ranges} == {now}
        levels = sorted({*self.limits, now})
        known, salts = self.journal.search, len(self.journal.search.limited) * POWER_ROUNDS * len(levels)
        for number in range(POWER_ROUNDS):
            for watts in levels if self._up(number) else reversed(levels):
                if is_limit_measured(known, found, watts, number):
                    continue
                as_now = watts == now
                self.teller.limiting(watts, number + 1)
                began, salts = self.evaluation.servers.clock(), salts + 1
                hold.hold(None if as_now and (not alike or watts not in self.limits) else watts)
                gauge.rest(SETTLES)
                figures = self.evaluation.under(sizes, number, salts, gauge)
                aim = self.evaluation.aim
                speed, joules = aim.speed.score(figures), aim.joules(figures)
                if speed is None or joules is None:
                    return f"under {watts} W its GPUs told no energy, or it gave no answer"
                took = round(self.evaluation.servers.clock() - began, 3)
                self.journal.add(
                    Limited(
                        keys=keys_of(found),
                        watts=watts,
                        round=number,
                        speed=speed,
                        joules=joules,
                        as_now=as_now,
                        seconds=took,
                    )
                )
        return ""

    def _up(self, number: int) -> bool:
        """Up, down and up again, or the other way round: what drifts meanwhile falls out."""
        return (number + crc32(self.journal.search.head.identity.encode())) % 2 == 0
