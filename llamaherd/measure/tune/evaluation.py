"""Measure one candidate on its host: its speed, its energy, and its speed under power limits."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field
from itertools import groupby
from typing import Protocol
from zlib import crc32

from llamaherd.diagnostics.findings import InventoryError, UserError
from llamaherd.host.ssh import RemoteError
from llamaherd.inventory.schema import Connect
from llamaherd.measure.bench.job import PowerHold, PowerRange
from llamaherd.measure.bench.series import POWER_ROUNDS, SECONDS, SETTLES
from llamaherd.measure.client.http_client import Failure
from llamaherd.measure.client.requests import RequestSpec, ended_early, long_prompt, run_from_response
from llamaherd.measure.meter.meter import Meter, Watch, gpus_of
from llamaherd.measure.results.metrics import DECODE, PREFILL
from llamaherd.measure.results.result import Condition, Run, Start, Telemetry
from llamaherd.measure.statistics import rate
from llamaherd.measure.trials.trial import NotStartedError, TrialServers, Variant, is_out_of_memory
from llamaherd.measure.tune.candidate import FIRST_SIZES, Candidate, Figures, Objective, Probe, Sizes, Why, figures_of
from llamaherd.measure.tune.final_measurements import is_limit_measured
from llamaherd.measure.tune.journal import Deep, Limited, SearchJournal, TriedCandidate, keys_of
from llamaherd.plan import InstancePlan
from llamaherd.text.numbers import show_seconds

_LETTERS = 300
_APART = 1000
"""The first cache buster of responses that belong to no candidate, so that no later request finds them in a cache."""
_LEAST_LOAD, _LOADS = 30, 5
"""Limits of the load of a candidate: the least seconds, and a multiple of the load of the declared server."""

MakeVariant = Callable[[Candidate, int | None], Variant]


class ReplaceableServers(TrialServers, Protocol):
    """Starts candidates, one at a time."""

    def place(self, variant: Variant, /) -> None:
        """Replace the previous candidate."""
        ...


class Gauge(Protocol):
    """Measures the energy of the GPUs of a server."""

    def begin(self) -> float:
        """Start to count energy, and return the time."""
        ...

    def end(self, begin: float, /) -> Telemetry | None:
        """Return the energy from `begin` until now."""
        ...

    def rest(self, seconds: float, /) -> Telemetry | None:
        """Return the energy of some seconds without requests."""
        ...


class NoResponseError(Exception):
    """A server stopped responding."""


@dataclass
class Evaluation:
    """Measures candidates. `gauge` meters the GPUs of a candidate, if the objective is energy.

    `climb` lets the running server read a prompt of some length and write after it, and returns the runs of both.
    """

    servers: ReplaceableServers
    make_variant: MakeVariant
    aim: Objective
    context: int
    drafts: Callable[[Candidate], bool]
    sizes: Sizes | None = None
    load: float | None = None
    gauge: Callable[[Variant], AbstractContextManager[Gauge]] | None = None
    climb: Callable[[int], Sequence[Run]] | None = None
    _text: str = field(default="", init=False)

    def measure(
        self, candidate: Candidate, rounds: int, worth: Callable[[TriedCandidate], bool] = lambda _: True
    ) -> TriedCandidate:
        """Measure a candidate in some rounds of requests; stop after the first unless it is `worth` more."""
        began = self.servers.clock()
        trial = self._tried(candidate, rounds, worth)
        return trial.model_copy(update={"seconds": round(self.servers.clock() - began, 3)})

    def _tried(self, candidate: Candidate, rounds: int, worth: Callable[[TriedCandidate], bool]) -> TriedCandidate:
        try:
            load_seconds = None if self.load is None else max(_LEAST_LOAD, round(_LOADS * self.load))
            variant = self.make_variant(candidate, load_seconds)
        except InventoryError as error:
            return _failed(candidate, "load", "; ".join(each.message for each in error.findings))
        except UserError as error:
            return _failed(candidate, "load", error.message)
        self.servers.place(variant)
        try:
            start = self.servers.start("C")
            self.load = self.load or start.ready_seconds or None
            with self.gauge(variant) if self.gauge else nullcontext() as gauge:
                return self._asked(candidate, start, rounds, worth, gauge)
        except NotStartedError as error:
            return _failed(candidate, "memory" if is_out_of_memory(error.says) else "load", error.says)
        except NoResponseError as error:
            return _failed(candidate, "answer", str(error))
        finally:
            self.servers.stop()

    def measure_depth(self, candidate: Candidate, depth: int) -> Deep:
        """Measure a candidate at a depth, after one start."""
        began = self.servers.clock()
        found = self._deep(candidate, depth)
        return found.model_copy(update={"seconds": round(self.servers.clock() - began, 3)})

    def _deep(self, candidate: Candidate, depth: int) -> Deep:
        assert self.climb
        keys = keys_of(candidate)
        self.servers.place(self.make_variant(candidate, None))
        try:
            self.servers.start("C")
            runs = [run for run in self.climb(depth) if not run.excluded]
        except RemoteError:
            raise
        except UserError as error:
            says = error.says if isinstance(error, NotStartedError) else error.message
            return Deep(keys=keys, depth=depth, says=says[:_LETTERS])
        finally:
            self.servers.stop()
        read = [sample for run in runs if run.prompt_n and (sample := PREFILL.of(run))]
        decode = tuple(sample.rate for run in runs if (sample := DECODE.of(run)))
        says = "" if read and decode else "its responses did not count"
        return Deep(keys=keys, depth=depth, prefill=rate(read) if read else None, decode=decode, says=says)

    def _asked(
        self,
        candidate: Candidate,
        start: Start,
        rounds: int,
        worth: Callable[[TriedCandidate], bool],
        gauge: Gauge | None,
    ) -> TriedCandidate:
        probe = self._probe()
        self._request(probe.warm_up())
        runs: list[tuple[int, Run]] = []
        totals: list[float] = []
        trial = TriedCandidate(keys=keys_of(candidate))
        for number in range(rounds):
            if self.aim.purpose == "throughput":
                totals.append(self._at_once(probe, number))
            runs += self._round(probe, number, gauge)
            total = sum(totals) / len(totals) if totals else None
            figures = figures_of(self.aim, runs, start.ready_seconds, total)
            trial = trial.model_copy(update={"figures": figures})
            if number == 0 and not worth(trial):
                break
        if self.aim.score(trial.figures) is None:
            missing = "its GPUs reported no energy" if self.aim.of_energy else "it reported no times"
            says = next((run.excluded for _, run in runs if run.excluded), missing)
            return trial.model_copy(update={"why": "answer", "says": says})
        if self.drafts(candidate) and trial.figures.accepted is None:
            return trial.model_copy(update={"why": "draft", "says": "it should draft, but does not"})
        return trial

    def under(self, sizes: Sizes, number: int, salts: int, gauge: Gauge) -> Figures:
        """Measure the speed and energy of the running server in a round, for any objective.

        `salts` is the number of the cache buster: no two calls for one server may share one.
        """
        if self.aim.purpose == "throughput":
            began, at = gauge.begin(), self.servers.clock()
            total = self._at_once(Probe(self.aim, sizes, ""), number, salts)
            seconds, took = self.servers.clock() - at, gauge.end(began)
            joules = took.joules / (total * seconds) if took and took.joules and total else None
            return Figures(total=total or None, together=joules)
        aim = Objective(purpose="efficiency")
        if not self._text:
            self._text = long_prompt(sizes.read, self.servers.count)
        return figures_of(aim, self._round(Probe(aim, sizes, self._text), number, gauge, salts), None)

    def _round(self, probe: Probe, number: int, gauge: Gauge | None, salts: int | None = None) -> list[tuple[int, Run]]:
        """Send all requests of a round. Those of one condition share their energy by their tokens."""
        conditions = probe.conditions()
        found: list[tuple[int, Run]] = []
        for cell, requests in groupby(probe.requests(number, salts), key=lambda request: request.cell):
            assert cell is not None
            began = gauge.begin() if gauge else 0.0
            runs = [self._request(request, conditions[cell]) for request in requests]
            took = gauge.end(began) if gauge else None
            found += [(cell, run) for run in _with_joules(runs, took)]
        return found

    def _at_once(self, probe: Probe, number: int, salts: int | None = None) -> float:
        """Return the tokens per second of one request for each stream."""
        streams = self.aim.streams
        first = (number if salts is None else salts) * streams
        turns = range(streams)
        requests = [request for turn in turns for request in probe.requests(number * streams + turn, first + turn)][
            :streams
        ]
        began = self.servers.clock()
        with ThreadPoolExecutor(len(requests)) as pool:
            runs = list(pool.map(self._request, requests))
        return sum(run.predicted_n or 0 for run in runs) / max(1e-6, self.servers.clock() - began)

    def _request(self, request: RequestSpec, condition: Condition | None = None) -> Run:
        response = self.servers.request(request)
        if isinstance(response, Failure) and response.why != "empty":
            raise NoResponseError(response.message[:_LETTERS])
        return run_from_response(response, condition or Condition(kind="code"), at=0.0)

    def _probe(self) -> Probe:
        """Return the requests for every candidate. The first server that runs determines their lengths."""
        if self.sizes is None:
            self.sizes = self._sized()
        if self.aim.reads and not self._text:
            self._text = long_prompt(self.sizes.read, self.servers.count)
        return Probe(self.aim, self.sizes, self._text)

    def _sized(self) -> Sizes:
        text = long_prompt(FIRST_SIZES.read, self.servers.count)
        probe = Probe(Objective(), FIRST_SIZES, text)
        self._request(probe.warm_up())
        figures = figures_of(Objective(), self._round(probe, 0, None), None)
        decode = min(figures.decode.values(), default=0.0)
        sizes = Sizes.of(decode, figures.prefill or 0.0, self.context, energy=self.aim.of_energy)
        return sizes.model_copy(update={"past_end": sizes.past_end or self._ends_early(sizes)})

    def _ends_early(self, sizes: Sizes) -> bool:
        """Return whether the response to some kind of text ends before it is long enough."""
        probe = Probe(self.aim, sizes, "")
        requests = zip(probe.conditions(), probe.requests(0, salts=_APART), strict=False)
        written = [(condition, request) for condition, request in requests if condition.generated]
        return any(ended_early(self._request(request, condition), condition) for condition, request in written)


def _with_joules(runs: list[Run], took: Telemetry | None) -> Iterable[Run]:
    """Return runs with their energy: each run's share of the tokens."""
    whole = sum(map(_tokens, runs))
    if took is None or took.joules is None or not whole:
        return runs
    return [run.model_copy(update={"joules": took.joules * _tokens(run) / whole}) for run in runs]


def _tokens(run: Run) -> int:
    return (run.prompt_n or 0) + (run.predicted_n or 0)


def _failed(candidate: Candidate, why: Why, says: str) -> TriedCandidate:
    return TriedCandidate(keys=keys_of(candidate), why=why, says=says[:_LETTERS])


_SECONDS = 1200.0
"""Seconds that one candidate is metered at most: so long, GPUs are read five times a second."""
_REST = 1.0
_WATCHED_LONGER = 2.0
"""How many times the expected seconds power limits may take. Up to `_SECONDS`, GPUs are read at the usual rate."""


@contextmanager
def watch_gpus(connect: Connect, variant: Variant, seconds: float = _SECONDS) -> Iterator[Watch]:
    """Watch the GPUs of a running candidate for at most some seconds. Raise UserError."""
    server = variant.instance.server.model_copy(update={"service": variant.service})
    instance = variant.instance.model_copy(update={"server": server})
    with Meter(connect, instance, max(_SECONDS, seconds)) as meter:
        yield Watch(meter, gpus_of(meter.first_snapshot, server.cards))


@contextmanager
def limit_gpus(
    connect: Connect, limits: Sequence[int], variant: Variant, seconds: float
) -> Iterator[tuple[Watch, PowerHold]]:
    """Watch the GPUs of a running candidate, and set their power limits, for about some seconds. Raise UserError.

    Their previous limits are restored afterwards.
    """
    longest = _WATCHED_LONGER * seconds
    with (
        watch_gpus(connect, variant, longest) as watch,
        PowerHold(connect, watch.uuids, limits, longest, within=True) as holding,
    ):
        yield watch, holding


def require_limits(connect: Connect, uuids: Sequence[str], limits: Sequence[int]) -> None:
    """Raise UserError unless all GPUs accept all limits. Change nothing."""
    with PowerHold(connect, uuids, limits, _REST):
        pass


def probe_energy(connect: Connect, declared: InstancePlan) -> tuple[tuple[str, ...], str | None]:
    """Return the GPUs of an instance, and why their energy cannot be measured; None if it can.

    Change nothing. Raise UserError.
    """
    with Meter(connect, declared, _SECONDS) as meter:
        uuids = gpus_of(meter.first_snapshot, declared.server.cards)
        took = Watch(meter, uuids).rest(_REST)
        hello = meter.readings.hello
    if took and took.joules is not None:
        return uuids, None
    if hello and hello.no_smi:
        return uuids, f"nothing is known of its GPUs: {hello.no_smi}"
    return uuids, "its GPUs report neither energy nor power" if uuids else "the host reports no GPU that it is on"


_LONGER = 1.3
"""About how many times longer requests take under lower limits."""
_ENOUGH = 0.8
"""The share of the expected seconds that must be left, as the expectation is rough."""


class Hold(Protocol):
    """GPUs whose power limits can be set."""

    @property
    def ranges(self) -> tuple[PowerRange, ...]:
        """The limits before, and the range of each GPU."""
        ...

    def hold(self, watts: int | None, /) -> None:
        """Set the limit of each GPU in watts; None restores the previous limit."""
        ...


HoldLimits = Callable[[Variant, float], AbstractContextManager[tuple[Gauge, Hold]]]
"""Watches the GPUs of a candidate, and sets their power limits, for some seconds."""


@dataclass
class PowerSeries:
    """One series of measurements under power limits, those of the search. `report` gets the limit and the round."""

    evaluation: Evaluation
    journal: SearchJournal
    limited: HoldLimits
    report: Callable[[int, int], None]

    @property
    def limits(self) -> Sequence[int]:
        """Watts for each GPU."""
        return self.journal.search.head.watts

    @property
    def seconds(self) -> float:
        """The expected seconds by the first measurement, so that a resumed search plans the same."""
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
        """Lengths of requests that suffice for energy; None before the first measurement."""
        known = self.journal.search
        if known.sizes is None or not known.trials:
            return None
        decode = min(known.trials[0].figures.decode.values(), default=0.0)
        return Sizes.of(decode, known.sizes.prefill, self.evaluation.context, energy=True)

    def measure(self, found: Candidate, left: float) -> str:
        """Measure all limits within some seconds. Return why some were left out; empty if none was. Raise UserError."""
        sizes, known = self._sizes, self.journal.search
        if sizes is None:
            return "nothing has run"
        if not known.limited and left < _ENOUGH * self.seconds:
            takes, there = show_seconds(self.seconds), show_seconds(max(0.0, left))
            return f"{len(self.limits)} of them take about {takes}, and {there} of the budget are left"
        variant = self.evaluation.make_variant(found, None)
        servers = self.evaluation.servers
        servers.place(variant)
        try:
            servers.start("C")
            with self.limited(variant, self.seconds) as (gauge, hold):
                return self._rounds(found, sizes, gauge, hold)
        except NotStartedError as error:
            return f"the best candidate does not start any more: {error.says}"
        except NoResponseError as error:
            return f"the best candidate does not respond any more: {error}"
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
                self.report(watts, number + 1)
                began, salts = self.evaluation.servers.clock(), salts + 1
                hold.hold(None if as_now and (not alike or watts not in self.limits) else watts)
                gauge.rest(SETTLES)
                figures = self.evaluation.under(sizes, number, salts, gauge)
                aim = self.evaluation.aim
                speed, joules = aim.speed.score(figures), aim.joules(figures)
                if speed is None or joules is None:
                    return f"under {watts} W its GPUs reported no energy, or it did not respond"
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
        """Return whether limits go up in a round. Directions alternate, so that a drift of the machine cancels out."""
        return (number + crc32(self.journal.search.head.identity.encode())) % 2 == 0
