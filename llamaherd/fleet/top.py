"""What each server process takes now: GPU memory, watts, processor, streams, context and speed. Queries and text."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from typing_extensions import override

from llamaherd.fleet.snapshot import ANSWERS, InstanceState
from llamaherd.fleet.status import PATIENCE, SECONDS, FleetQuery, check_status, planned_card, server_state, status_input
from llamaherd.fleet.status_text import Paint, count_of, table_lines, with_unit, wrapped
from llamaherd.host.protocol import UnexpectedLineError, query_verb
from llamaherd.host.remote import Remote
from llamaherd.inventory.schema import Rig
from llamaherd.measure.report.charts import NONE, Table
from llamaherd.onhost.status import CardStatus, GpuUse, ServerStatus, TopStatus
from llamaherd.plan import InstancePlan, Plan

HEADINGS = ("rig", "server", "state", "t/s", "streams", "context", "GPU", "GPU mem", "watts", "busy", "CPU", "RAM")
_OPTIONAL = ("RAM", "busy", "CPU")
_MOST_APPS, _MOST_FIGURE = 256, 1e15
_FINE = (None, "paused", *ANSWERS)
"""States of processes without a problem."""
_MIB, _GIB = 1 << 20, 1 << 30


@dataclass(frozen=True)
class GpuRow:
    """A GPU that a process uses: its name, bytes of the process there, and watts and percent of the whole GPU."""

    gpu: str
    memory: int | None
    watts: float | None
    busy: float | None


@dataclass(frozen=True)
class ProcessRow:
    """A server, or another program on a GPU, whose state is empty.

    `memory` is RAM in bytes, `cpu` percent of one core since the last query. `context` are the tokens that all slots
    hold, of those that they have room for.
    """

    name: str
    state: InstanceState | None
    gpus: tuple[GpuRow, ...] = ()
    memory: int | None = None
    cpu: float | None = None
    streams: int | None = None
    slots: int | None = None
    context: tuple[int, int] | None = None
    tokens_per_second: float | None = None


@dataclass(frozen=True)
class RigTop:
    """The processes of a rig. `away` is why its host did not respond. `why` is why its GPUs are unknown.

    `asleep`: its host does not respond, and a gateway can wake it.
    """

    rig: str
    processes: tuple[ProcessRow, ...] = ()
    why: str = ""
    away: str = ""
    asleep: bool = False

    @property
    def ok(self) -> bool:
        """Return whether the host responded, and all servers serve."""
        return not self.away and all(each.state in _FINE for each in self.processes)

    def as_json(self) -> dict[str, Any]:
        """Return the processes as plain JSON values."""
        return {**asdict(self), "ok": self.ok}


class TopQuery(FleetQuery[RigTop]):
    """Queries hosts for their processes, and remembers processor times for the next query."""

    def __init__(self, planned: Mapping[str, tuple[Rig, Plan]], patience: float = PATIENCE) -> None:
        super().__init__(planned, patience)
        self._before: dict[str, TopStatus] = {}

    @override
    def query(self, name: str, rig: Rig, plan: Plan) -> RigTop:
        """Return the processes of a rig. Raise RemoteError."""
        found = query_verb(Remote(rig.connect), "llamaherd.status.usage", status_input(plan), TopStatus, SECONDS)
        before, self._before[name] = self._before.get(name), found
        return rig_top(plan, found, before)

    @override
    def asleep(self, name: str) -> RigTop:
        """Return the state of a rig that sleeps."""
        return RigTop(name, asleep=True)

    @override
    def away(self, name: str, why: str) -> RigTop:
        """Return the state of a rig whose host did not respond."""
        return RigTop(name, away=why)


def rig_top(plan: Plan, found: TopStatus, before: TopStatus | None) -> RigTop:
    """Return the processes of a rig. Raise UnexpectedLineError if no host can have this state."""
    status = check_status(found.host, [each.service for each in plan.instances])
    _check_apps(found)
    cards = {each.uuid: each for each in status.cards}
    names = {card.uuid: gpu.name for gpu in plan.cards if (card := planned_card(gpu.at, status.cards))}
    servers = [_server(each, status.servers[each.service], found, before, cards, names) for each in plan.instances]
    return RigTop(plan.rig, (*servers, *_others(found, cards, names)), status.driver)


def _check_apps(found: TopStatus) -> None:
    figures = [*(each.used or 0 for each in found.apps), *(each.memory or 0 for each in found.processes.values())]
    if len(found.apps) > _MOST_APPS or not all(0 <= each < _MOST_FIGURE for each in figures):
        raise UnexpectedLineError("impossible figures of processes")


def _server(
    plan: InstancePlan,
    status: ServerStatus,
    found: TopStatus,
    before: TopStatus | None,
    cards: Mapping[str, CardStatus],
    names: Mapping[str, str],
) -> ProcessRow:
    state, _ = server_state(plan, status)
    process = found.processes.get(plan.service)
    serves = state == "serves"
    return ProcessRow(
        name=plan.name,
        state=state,
        gpus=tuple(_gpu_rows([each for each in found.apps if each.service == plan.service], cards, names)),
        memory=process.memory if process else None,
        cpu=_cpu(plan.service, found, before),
        streams=status.busy if serves else None,
        slots=(status.slots or plan.endpoint.streams) if serves else None,
        context=status.context if serves else None,
        tokens_per_second=status.wrote[0] * 1000 / status.wrote[1] if serves and status.wrote else None,
    )


def _others(found: TopStatus, cards: Mapping[str, CardStatus], names: Mapping[str, str]) -> Iterator[ProcessRow]:
    """Yield other programs on GPUs: they take memory that servers lack."""
    others = [each for each in found.apps if not each.service]
    for pid in dict.fromkeys(each.pid for each in others):
        uses = [each for each in others if each.pid == pid]
        yield ProcessRow(f"{uses[0].name} (pid {pid})", None, tuple(_gpu_rows(uses, cards, names)))


def _gpu_rows(uses: Sequence[GpuUse], cards: Mapping[str, CardStatus], names: Mapping[str, str]) -> Iterator[GpuRow]:
    """Yield a row for each GPU of a server: processes of one server are added up."""
    for uuid in dict.fromkeys(each.uuid for each in uses):
        amounts = [each.used for each in uses if each.uuid == uuid]
        memory = None if None in amounts else round(sum(each or 0 for each in amounts) * _MIB)
        card = cards.get(uuid)
        yield GpuRow(
            names.get(uuid) or (card.pci if card else uuid[:12]),
            memory,
            card.watts if card else None,
            card.busy if card else None,
        )


def _cpu(service: str, found: TopStatus, before: TopStatus | None) -> float | None:
    """Return the percent of one core that a server has used since the last query; None if it started since."""
    now, then = found.processes.get(service), before.processes.get(service) if before else None
    if not now or not then or not before or now.pid != then.pid or found.clock <= before.clock:
        return None
    return max(0.0, 100 * (now.computed - then.computed) / (found.clock - before.clock))


def top_lines(rigs: Sequence[RigTop], at: str, width: int | None, paint: Paint) -> Iterator[str]:
    """Yield all lines, each of at most `width` cells; of any length if that is None."""
    servers = [each for rig in rigs for each in rig.processes if each.state]
    streams = sum(each.streams or 0 for each in servers)
    speed = sum(each.tokens_per_second or 0 for each in servers)
    watts = sum({(rig.rig, gpu.gpu): gpu.watts or 0 for rig in rigs for p in rig.processes for gpu in p.gpus}.values())
    summary = [f"{streams} stream{'s' if streams != 1 else ''}", f"{speed:.0f} t/s"]
    yield paint(", ".join([*summary, *([f"{watts:.0f} W of GPUs"] if watts else []), at]), "bold")
    for rig in rigs:
        if rig.asleep:
            yield paint(f"{rig.rig}: asleep or off", "yellow")
        for problem in filter(None, (rig.away, rig.why and f"its GPUs are unknown: {rig.why}")):
            yield from (paint(line, "red") for line in wrapped(f"{rig.rig}: {problem}", width))
    rows = tuple(row for rig in rigs for process in rig.processes for row in _rows(rig.rig, process))
    if rows:
        yield ""
        yield from table_lines(Table("Processes", HEADINGS, rows), width, paint, _OPTIONAL)


def _rows(rig: str, each: ProcessRow) -> Iterator[tuple[str, ...]]:
    """Yield a row for each GPU of a process, at least one."""
    first = (
        rig,
        each.name,
        each.state or NONE,
        _rate(each),
        count_of(each.streams, each.slots),
        _context(each.context),
    )
    ends = (with_unit(each.cpu, "%"), _gib(each.memory))
    for number, gpu in enumerate(each.gpus or (GpuRow(NONE, None, None, None),)):
        middle = (gpu.gpu, _gib(gpu.memory), with_unit(gpu.watts, "W"), with_unit(gpu.busy, "%"))
        yield (*(first if number == 0 else (rig, *("",) * 5)), *middle, *(ends if number == 0 else ("",) * len(ends)))


def _context(tokens: tuple[int, int] | None) -> str:
    return f"{_thousands(tokens[0])} of {_thousands(tokens[1])}" if tokens else NONE


def _thousands(tokens: int) -> str:
    return f"{tokens / 1024:.0f}K" if tokens >= 10240 else f"{tokens / 1024:.1f}K"


def _rate(each: ProcessRow) -> str:
    """Return tokens a second, while there are requests."""
    return f"{each.tokens_per_second:.1f}" if each.streams and each.tokens_per_second is not None else NONE


def _gib(size: int | None) -> str:
    return NONE if size is None else f"{size / _GIB:.1f} GiB"
