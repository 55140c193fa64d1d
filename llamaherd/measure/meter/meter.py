"""Run the meter on a host over SSH: telemetry of requests, rest and work, and obstacles to a measurement."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Self

from llamaherd.diagnostics.findings import UserError
from llamaherd.host.remote import Patience, Shell
from llamaherd.host.ssh import RemoteError
from llamaherd.inventory.schema import Connect
from llamaherd.measure.meter.readings import GpuFacts, GpuSample, Hello, Line, Pong, Readings
from llamaherd.measure.meter.usage import (
    HEAT,
    POWER_CAP,
    Clocks,
    Usage,
    Window,
    match_clocks,
    slowdown_reasons,
    usage_of,
    usage_telemetry,
)
from llamaherd.measure.results.result import Run, Telemetry
from llamaherd.onhost.gauges import MeterInput
from llamaherd.plan import GpuRef, InstancePlan, Plan
from llamaherd.reference.cards import is_pci_address, pci_address
from llamaherd.text.numbers import show_size, whole_number

_SWAPPED = 1 << 20
"""Bytes in swap that are negligible."""
_BUSY = 0.5
"""Processors that other programs may use."""
_BELOW = 1.0
"""Watts by which drivers round a limit."""


class OtherProgram(NamedTuple):
    """Another program on the host: its name, its unit or container, and how many processors it uses."""

    name: str
    unit: str
    processors: float

    def __str__(self) -> str:
        return f"{self.name} of {self.unit}" if self.unit else self.name


class GpuProcess(NamedTuple):
    """A process on a GPU; `size` is the GPU memory that it holds, if the driver reports it."""

    uuid: str
    pid: int
    size: int | None
    name: str
    unit: str


@dataclass(frozen=True)
class HostSnapshot:
    """The state of a server's host. `apps` is None if the driver does not report the processes on GPUs.

    `listens`: whether the server itself listens at its port; None if no process does. `gpus` are the last readings.
    """

    running: bool
    spec: str
    listens: bool | None
    in_flight: int | None
    others: tuple[OtherProgram, ...]
    apps: tuple[GpuProcess, ...] | None
    ours: frozenset[int]
    swapped_bytes: int
    on_battery: bool | None
    load: float
    gpus: dict[str, GpuSample]
    facts: dict[str, GpuFacts]


@dataclass(frozen=True)
class Obstacle:
    """Why a measurement would be misleading. `help` is empty if no fix is certainly right.

    `code` is a word that does not change: what was overruled is stored by it.
    """

    code: str
    message: str
    help: str = ""


def host_snapshot(readings: Readings) -> HostSnapshot | None:
    """Return the last inspection; None before the first one."""
    hello, snapshot = readings.hello, readings.snapshots[-1] if readings.snapshots else None
    if hello is None or snapshot is None:
        return None
    server = readings.figures[-1].server if readings.figures else {}
    return HostSnapshot(
        running=bool(snapshot.ours),
        spec=hello.server.spec,
        listens=snapshot.listens,
        in_flight=snapshot.in_flight,
        others=tuple(OtherProgram(*each) for each in snapshot.others),
        apps=None if snapshot.apps is None else tuple(GpuProcess(*each) for each in snapshot.apps),
        ours=frozenset(snapshot.ours),
        swapped_bytes=server.get("swap", 0),
        on_battery=snapshot.battery,
        load=snapshot.load,
        gpus={uuid: samples[-1] for uuid, samples in readings.gpus.items()},
        facts=readings.facts,
    )


def gpus_of(snapshot: HostSnapshot, refs: Iterable[GpuRef]) -> tuple[str, ...]:
    """Return the UUIDs of a server's GPUs: those that it runs on, else those of its plan; all if it may use any."""
    own = tuple(dict.fromkeys(app.uuid for app in snapshot.apps or () if app.pid in snapshot.ours))
    if own:
        return own
    given = [ref.at for ref in refs]
    return tuple(snapshot.gpus) if "any" in given else tuple(uuid for at in given if (uuid := find_gpu(snapshot, at)))


def find_gpu(snapshot: HostSnapshot, at: str) -> str | None:
    """Find the UUID of the GPU that a plan means by UUID, address, or number in the order of addresses."""
    facts = [gpu for gpu in snapshot.facts.values() if gpu.address and is_pci_address(gpu.address)]
    in_order = sorted(facts, key=lambda gpu: pci_address(gpu.address or ""))
    if (place := whole_number(at)) is not None:
        return in_order[place].uuid if place < len(in_order) else None
    return next((gpu.uuid for gpu in in_order if at.upper() in (gpu.uuid.upper(), (gpu.address or "").upper())), None)


def obstacles(snapshot: HostSnapshot, plan: Plan, instance: InstancePlan) -> tuple[Obstacle, ...]:
    """Return what prevents a valid measurement of an instance, the gravest first."""
    uuids = gpus_of(snapshot, instance.server.cards)
    return tuple(_server(snapshot, plan.rig, instance)) or (
        *_alone(snapshot, instance, uuids),
        *_slow(snapshot, uuids),
        *(each for uuid in uuids for each in _held(snapshot, plan, uuid)),
    )


def _server(snapshot: HostSnapshot, rig: str, instance: InstancePlan) -> Iterator[Obstacle]:
    """Yield why the running server is not the planned one: then nothing else counts."""
    name = instance.name
    if not snapshot.running:
        yield Obstacle("server-down", f"{name} does not run", f"`herd up {rig}` starts it")
    elif snapshot.spec != instance.spec:
        yield Obstacle("not-as-planned", f"the running {name} differs from the plan", f"`herd plan {rig}` shows why")
    elif snapshot.listens is False and (instance.backend == "systemd" or instance.server.host_network):
        yield Obstacle("port-taken", f"a program other than {name} listens at port {instance.endpoint.port}")


def _alone(snapshot: HostSnapshot, instance: InstancePlan, uuids: Sequence[str]) -> Iterator[Obstacle]:
    """Yield other programs and other clients."""
    if snapshot.in_flight:
        plural = "s" if snapshot.in_flight > 1 else ""
        message = f"{instance.name} serves {snapshot.in_flight} request{plural} of other clients"
        yield Obstacle("busy", message, "wait, or keep its clients away meanwhile")
    for app in snapshot.apps or ():
        if app.uuid in uuids and app.pid not in snapshot.ours:
            holds = f", with {show_size(app.size)}" if app.size else ""
            who = f"{app.name} of {app.unit}" if app.unit else app.name or f"process {app.pid}"
            yield Obstacle("gpu-shared", f"{who} is on GPU {app.uuid} as well{holds}")
    used = sum(other.processors for other in snapshot.others)
    if used > _BUSY:
        names = ", ".join(dict.fromkeys(map(str, snapshot.others[:3])))
        yield Obstacle("host-busy", f"other programs use {used:.1f} processors: {names}")


def _slow(snapshot: HostSnapshot, uuids: Iterable[str]) -> Iterator[Obstacle]:
    """Yield what makes the server slower than it could be."""
    if snapshot.swapped_bytes > _SWAPPED:
        size = show_size(snapshot.swapped_bytes)
        yield Obstacle("swapped", f"{size} of the server lie in swap", "end what else takes RAM there, then restart it")
    if snapshot.on_battery:
        yield Obstacle("on-battery", "the machine runs on its battery", "plug it in")
    for uuid in uuids:
        sample = snapshot.gpus.get(uuid)
        for reason in sorted(slowdown_reasons(sample.reasons or 0) - {POWER_CAP}) if sample else ():
            wait = "let it cool down" if reason == HEAT else ""
            yield Obstacle("gpu-slowed", f"GPU {uuid} is slowed now: {reason}", wait)


def _held(snapshot: HostSnapshot, plan: Plan, uuid: str) -> Iterator[Obstacle]:
    """Yield a power limit that is lower than it should be: a forgotten manual setting."""
    ours = plan.power.cards if plan.power else ()
    declared = next((gpu.limit for gpu in (*ours, *plan.windows_power) if find_gpu(snapshot, gpu.at) == uuid), None)
    default = snapshot.facts[uuid].power_default_watts if uuid in snapshot.facts else None
    limit = snapshot.gpus[uuid].limit if uuid in snapshot.gpus else None
    if limit is None:
        return
    if declared is not None and limit < declared - _BELOW:
        message = f"GPU {uuid} is limited to {limit:.0f} W, but {declared:.0f} W are declared"
        # Under WSL, Windows sets the limit.
        yield Obstacle("power-held", message, f"`herd up {plan.rig}` sets it" if ours else "")
    if declared is None and default is not None and limit < default - _BELOW:
        message = f"GPU {uuid} is limited to {limit:.0f} W of {default:.0f} W, and no limit is declared"
        yield Obstacle("power-held", message, f"declare its `power_limit`, or set it to {default:.0f} W")


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

    `readings` grow meanwhile, and `first_snapshot` is the state of the host before. `error` is why no more readings
    arrive.
    """

    def __init__(self, connect: Connect, instance: InstancePlan, seconds: float) -> None:
        self.readings = Readings()
        self.error: UserError | None = None
        self.first_snapshot: HostSnapshot
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
            self._wait(lambda: bool(self.readings.snapshots))
            self.first_snapshot = self._last_snapshot()
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

    def snapshot(self) -> HostSnapshot:
        """Inspect the host again for other programs. Raise RemoteError."""
        before = len(self.readings.snapshots)
        self._tell("look")
        self._wait(lambda: len(self.readings.snapshots) > before)
        return self._last_snapshot()

    def _last_snapshot(self) -> HostSnapshot:
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
        self.meter = meter

    def rest(self, seconds: float) -> Telemetry | None:
        """Measure the host for so many seconds without requests."""
        begin = self.begin()
        time.sleep(seconds)
        return self.end(begin)

    def begin(self) -> float:
        """Read the counters now, and return the time."""
        self.meter.mark("begin")
        return time.monotonic()

    def end(self, begin: float) -> Telemetry | None:
        """Return the telemetry from then until now; None if the host's clock is unknown."""
        end = time.monotonic()
        self.meter.mark("end")
        self._settle(end)
        used = self.use(begin, end)
        return usage_telemetry(used, self.uuids) if used else None

    def use(self, begin: float, end: float) -> Usage | None:
        """Return what was used in a window of time; None if the host's clock is unknown."""
        clocks = self.meter.clocks
        if clocks is None:
            return None
        return usage_of(self.meter.readings, Window(clocks.on_host(begin), clocks.on_host(end)), self.uuids)

    def use_since(self, begin: float) -> Usage | None:
        """Return what was used from a time on, up to the last reading of the host: there is one each second."""
        clocks, readings = self.meter.clocks, self.meter.readings
        if clocks is None or not readings.figures or readings.figures[-1].t <= clocks.on_host(begin):
            return None
        return usage_of(readings, Window(clocks.on_host(begin), readings.figures[-1].t), self.uuids)

    @property
    def server_is_there(self) -> bool:
        """Check that the server still ran at the last reading."""
        readings = self.meter.readings
        return bool(readings.figures and readings.figures[-1].server)

    def _settle(self, end: float) -> None:
        """Wait for the first readings after a time: there are five each second."""
        clocks, readings = self.meter.clocks, self.meter.readings
        if clocks is None:
            return
        there, until = clocks.on_host(end), time.monotonic() + _SETTLE
        while time.monotonic() < until and self.meter.error is None:
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
