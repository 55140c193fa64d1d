"""Run the meter on a host over SSH, and return the telemetry of requests, of rest and of all work."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from typing import Self

from llamaherd.diagnostics.findings import UserError
from llamaherd.host.remote import Patience, Shell
from llamaherd.host.ssh import RemoteError
from llamaherd.inventory.schema import Connect
from llamaherd.measure.meter.obstacles import HostSnapshot, host_snapshot
from llamaherd.measure.meter.readings import Hello, Line, Pong, Readings
from llamaherd.measure.meter.usage import Clocks, Usage, Window, match_clocks, usage_of, usage_telemetry
from llamaherd.measure.results.result import Run, Telemetry
from llamaherd.onhost.gauges import MeterInput
from llamaherd.plan import InstancePlan

OFTEN, SELDOM = 0.2, 1.0
"""Seconds between two readings: at first, and for a time longer than `_SHORT`."""
_SHORT, _LONGEST = 1200, 7200
_MOST = 64 << 20
"""Bytes of its output at most."""
_SILENCE = 60
"""Seconds without a line from us, after which it ends by itself; and without one from it, after which we give up."""
_LATE = 120
"""Seconds that it may end later than planned: it begins with an inspection, and drivers take their time."""
_PINGS, _PING_SECONDS = 5, 5.0
_ANSWER_SECONDS = 40
"""For an inspection: the driver and a busy server may take their time."""


def meter_input(instance: InstancePlan, seconds: float) -> MeterInput:
    """Return the input of the verb that watches the host of an instance, for so many seconds at most."""
    lasts = _lasts(seconds)
    return MeterInput(
        service=instance.service,
        backend=instance.backend,
        loaded=instance.model if instance.endpoint.swaps and not instance.members else "",
        every=OFTEN if lasts <= _SHORT else SELDOM,
        lasts=lasts,
        silence=float(_SILENCE),
        most=_MOST,
        port=instance.endpoint.port,
        metrics=tuple(instance.endpoint.metrics),
        key=instance.key_file or "",
    )


def _lasts(seconds: float) -> float:
    return min(_LONGEST, max(1.0, seconds))


class Meter:
    """The meter of a host, from `with` to its end. If this program is killed, the meter ends by itself.

    `readings` grow meanwhile, and `first_look` is the state of the host before. `error` is why no more readings arrive.
    """

    def __init__(self, connect: Connect, instance: InstancePlan, seconds: float) -> None:
        self.readings = Readings()
        self.error: UserError | None = None
        self.first_look: HostSnapshot
        self._connect, self._given = connect, meter_input(instance, seconds)
        self._total = _lasts(seconds) + _LATE
        self._heard = threading.Condition()
        self._asked: dict[str, float] = {}
        self._exchanges: list[tuple[float, float, float]] = []
        self._shell: Shell | None = None
        self._ending = False
        self._thread = threading.Thread(target=self._listen, name="meter", daemon=True)

    def __enter__(self) -> Self:
        """Start, and wait for the first inspection. Raise RemoteError if the host cannot be watched."""
        self._shell = Shell(self._connect)
        try:
            self._thread.start()
            self._wait(lambda: bool(self.readings.looks))
            self.first_look = self._last_look()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        """End it, and read its last lines."""
        if self._shell:
            with self._heard:
                self._ending = True
                self._shell.hang_up()
            self._thread.join(10)
            self._shell.close()

    @property
    def clocks(self) -> Clocks | None:
        """The host's clock relative to ours."""
        return match_clocks(self._exchanges)

    def mark(self, name: str) -> None:
        """Read the counters of the host, and wait for them: at the beginning and the end of a measurement.

        The counters of GPUs are read seldom otherwise. Raise RemoteError.
        """
        before = self.readings.marks
        self._tell(f"mark {name}")
        self._wait(lambda: self.readings.marks > before)

    def look(self) -> HostSnapshot:
        """Inspect the host again for other programs. Raise RemoteError."""
        before = len(self.readings.looks)
        self._tell("look")
        self._wait(lambda: len(self.readings.looks) > before)
        return self._last_look()

    def _last_look(self) -> HostSnapshot:
        found = host_snapshot(self.readings)
        assert found
        return found

    def _tell(self, line: str) -> None:
        assert self._shell
        if self.error:
            raise self.error
        self._shell.tell(line)

    def _wait(self, until: Callable[[], bool]) -> None:
        with self._heard:
            came = self._heard.wait_for(lambda: until() or self.error is not None, _ANSWER_SECONDS)
        if self.error:
            raise self.error
        if not came:
            raise RemoteError(
                f"the meter sent nothing for {_ANSWER_SECONDS} s", "check that `nvidia-smi` responds on the host"
            )

    def _listen(self) -> None:
        """Read lines until the meter ends."""
        assert self._shell
        try:
            patience = Patience(_SILENCE, self._total, "watching its server")
            for text in self._shell.converse("llamaherd.meter.watch", self._given, patience):
                with self._heard:
                    self._take(self.readings.take(text))
                    self._heard.notify_all()
            if self.readings.bye is None:
                reason = next(reversed(self._shell.complaints), "no error message")
                raise RemoteError(
                    f"watching the host ended halfway: {reason[:200]}", "check that the host has Python 3.10 or newer"
                )
        except UserError as error:
            with self._heard:
                self.error = error
                self._heard.notify_all()
        except (OSError, ValueError):
            # Ignored if the meter does not end in time: `__exit__` has closed its pipe.
            if not self._ending:
                raise

    def _take(self, line: Line) -> None:
        """Request the host's time now and then, which also keeps the meter alive."""
        now = time.monotonic()
        if isinstance(line, Pong) and line.n in self._asked:
            self._exchanges.append((self._asked.pop(line.n), line.t, now))
        last = max(self._asked.values(), default=self._exchanges[-1][0] if self._exchanges else 0.0)
        more = isinstance(line, Hello | Pong) and len(self._exchanges) < _PINGS
        if (more or now - last > _PING_SECONDS) and self._shell and not self._ending:
            number = str(len(self._exchanges) + len(self._asked))
            self._asked[number] = time.monotonic()
            self._shell.tell(f"ping {number}")


_SETTLE, _POLL = 0.6, 0.01
"""Seconds to wait for readings after a request, and between two checks for them."""


class Watch:
    """The GPUs of a server and its host. Times are ours, of the monotonic clock."""

    def __init__(self, meter: Meter, uuids: Sequence[str]) -> None:
        self.uuids = tuple(uuids)
        self._meter = meter

    def rest(self, seconds: float) -> Telemetry | None:
        """Measure the host for so many seconds without requests."""
        begin = self.begin()
        time.sleep(seconds)
        return self.end(begin)

    def begin(self) -> float:
        """Read the counters now, and return the time."""
        self._meter.mark("begin")
        return time.monotonic()

    def end(self, begin: float) -> Telemetry | None:
        """Return the telemetry from then until now; None if the host's clock is unknown."""
        end = time.monotonic()
        self._meter.mark("end")
        self._settle(end)
        used = self.use(begin, end)
        return usage_telemetry(used, self.uuids) if used else None

    def use(self, begin: float, end: float) -> Usage | None:
        """Return what was used in a window of time; None if the host's clock is unknown."""
        clocks = self._meter.clocks
        if clocks is None:
            return None
        return usage_of(self._meter.readings, Window(clocks.on_host(begin), clocks.on_host(end)), self.uuids)

    def use_since(self, begin: float) -> Usage | None:
        """Return what was used from a time on, up to the last reading of the host: there is one each second."""
        clocks, readings = self._meter.clocks, self._meter.readings
        if clocks is None or not readings.figures or readings.figures[-1].t <= clocks.on_host(begin):
            return None
        return usage_of(readings, Window(clocks.on_host(begin), readings.figures[-1].t), self.uuids)

    @property
    def server_is_there(self) -> bool:
        """Check that the server still ran at the last reading."""
        readings = self._meter.readings
        return bool(readings.figures and readings.figures[-1].server)

    def _settle(self, end: float) -> None:
        """Wait for the first readings after a time: there are five each second."""
        clocks, readings = self._meter.clocks, self._meter.readings
        if clocks is None:
            return
        there, until = clocks.on_host(end), time.monotonic() + _SETTLE
        while time.monotonic() < until and self._meter.error is None:
            last = [samples[-1].at for uuid, samples in readings.gpus.items() if uuid in self.uuids]
            last += [readings.counters[-1].t] if readings.counters else []
            if all(at >= there for at in last):
                return
            time.sleep(_POLL)


def with_telemetry(run: Run, took: Telemetry | None) -> Run:
    """Return a run with its energy and heat: of all GPUs, and without one of the processor."""
    if took is None:
        return run
    joules = took.joules if took.gpus else took.processor_joules
    heat = [gpu.celsius_most for gpu in took.gpus if gpu.celsius_most is not None]
    clocks = [gpu.sm_mhz for gpu in took.gpus if gpu.sm_mhz is not None]
    return run.model_copy(
        update={
            "joules": joules,
            "watts": round(joules / took.seconds, 2) if joules is not None and took.seconds else None,
            "celsius": max(heat, default=took.processor_celsius),
            "sm_mhz": min(clocks, default=None),
        }
    )
