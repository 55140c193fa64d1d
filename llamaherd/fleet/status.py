"""Query all hosts for their state, check it, and compare it with the plan: one connection a host, all at once."""

from __future__ import annotations

import math
import re
from abc import ABC, abstractmethod
from collections.abc import Collection, Iterator, Mapping, Sequence
from concurrent.futures import Future, wait
from dataclasses import dataclass, field, replace
from itertools import chain
from pathlib import Path
from threading import BoundedSemaphore, Thread
from typing import Generic, TypeVar

from typing_extensions import override

from llamaherd.fleet.gateway_snapshot import GatewaySnapshot, gateway_snapshot
from llamaherd.fleet.snapshot import (
    ANSWERS,
    CardSnapshot,
    InstanceSnapshot,
    InstanceState,
    LastChange,
    RigSnapshot,
    Speed,
    judge_gateways,
)
from llamaherd.host.protocol import UnexpectedLineError, query_verb
from llamaherd.host.remote import Remote, RemoteError
from llamaherd.host.ssh import UnreachableError
from llamaherd.host.state import find_gpu
from llamaherd.inventory.schema import Rig
from llamaherd.measure.results.comparison import fastest_decode
from llamaherd.measure.results.store import last_result
from llamaherd.onhost.gateway import GatewayState
from llamaherd.onhost.server_control import LONGEST_PAUSE
from llamaherd.onhost.status import (
    ABSENT,
    MOST_CARDS,
    CardStatus,
    GatewayError,
    HostStatus,
    ServerInput,
    ServerStatus,
    StatusInput,
)
from llamaherd.pipeline.history import Release, release_of
from llamaherd.plan import Endpoint, InstancePlan, Plan
from llamaherd.plan.plan import instance_names, instances_of
from llamaherd.text.numbers import show_hours

_MOST_COUNT = 10**15
_WORD = re.compile(r"[a-z-]{0,30}")
_HTTP = re.compile(r"(?:[0-9]{3}|refused|silent|broken)?")
_STILL = ("", "stopped", "idle")
_MOST_MODELS, _MOST_CHARACTERS = 64, 200
_MOST_FIGURE = 1e9
_MOST_PAUSE = 2 * LONGEST_PAUSE


@dataclass
class CheckedStatus:
    """The state of a host. `driver` contains why it lists no GPUs, `holder` the run that holds the host's lock."""

    servers: Mapping[str, ServerStatus]
    cards: Sequence[CardStatus] = field(default_factory=list)
    driver: str = ""
    release: tuple[int, Release] | None = None
    gateway: GatewayState | GatewayError | None = None
    holder: str = ""


def check_status(found: HostStatus, services: Collection[str]) -> CheckedStatus:
    """Return the state of a host that has these servers. Raise UnexpectedLineError if no host can have this state."""
    try:
        if unknown := found.servers.keys() - {*services}:
            raise ValueError(f"a server {min(unknown)!r}")
        if len(found.cards) > MOST_CARDS:
            raise ValueError(f"{len(found.cards)} GPUs")
        servers = {name: _check_server(found.servers.get(name, ServerStatus())) for name in services}
    except ValueError as error:
        raise UnexpectedLineError(str(error)) from None
    # A release of a later version is left out.
    release = release_of(found.release.text.encode()) if found.release else None
    return CheckedStatus(
        servers=servers,
        cards=[*map(check_card, found.cards)],
        driver=found.driver[:_MOST_CHARACTERS],
        release=(found.release.number, release) if found.release and release else None,
        gateway=found.gateway or found.gateway_error,
        holder=found.holder[:_MOST_CHARACTERS],
    )


def _check_server(found: ServerStatus) -> ServerStatus:
    """Return a server's state. Raise ValueError if no server can have it."""
    for word in (found.active, found.doing, found.ended, *found.models.values()):
        _require(bool(_WORD.fullmatch(word)), word)
    _require(bool(_HTTP.fullmatch(found.health)), found.health)
    _require(found.still in _STILL, found.still)
    _require(len(found.models) <= _MOST_MODELS, f"{len(found.models)} models")
    counts = (found.slots, found.busy, found.reading, found.waiting, *(found.wrote or ()), *(found.context or ()))
    for count in counts:
        _require(count is None or 0 <= count <= _MOST_COUNT, str(count))
    _require(found.pause_left is None or 0 <= found.pause_left <= _MOST_PAUSE, str(found.pause_left))
    _require(found.wrote is None or found.wrote[1] > 0, "0 milliseconds")
    return replace(found, models={name[:_MOST_CHARACTERS]: word for name, word in found.models.items()})


def _require(is_possible: bool, what: str) -> None:
    if not is_possible:
        raise ValueError(what)


def check_card(found: CardStatus) -> CardStatus:
    """Return a GPU with figures that a GPU can have."""
    return CardStatus(
        uuid=found.uuid[:_MOST_CHARACTERS],
        pci=found.pci[:_MOST_CHARACTERS],
        used=_check_figure(found.used),
        total=_check_figure(found.total),
        watts=_check_figure(found.watts),
        limit=_check_figure(found.limit),
        celsius=_check_figure(found.celsius),
        busy=_check_figure(found.busy),
        name=found.name[:_MOST_CHARACTERS],
    )


def _check_figure(value: float | None) -> float | None:
    return value if value is not None and math.fabs(value) < _MOST_FIGURE else None


_MIB = 1 << 20
_RUNS = ("active", "running")
_STOPPED = ("inactive", "exited")
"""systemd and Docker start a server again that ends by itself: only one that was stopped is in these states."""
_STARTS = ("activating", "reloading", "starting")


def rig_snapshot(plan: Plan, found: CheckedStatus, measured: Mapping[str, Speed]) -> RigSnapshot:
    """Return the state of a rig; `measured` by instance."""
    servers = [(each, found.servers[each.service]) for each in plan.instances]
    instances = [tuple(_instances(each, server, measured)) for each, server in servers]
    gateway, wrong = _gateway(plan, found.gateway)
    down = chain(
        *(_down(each, server, now, found.holder) for (each, server), now in zip(servers, instances, strict=True))
    )
    problems = [*down, *_missing(plan, found), *wrong]
    return RigSnapshot(
        name=plan.rig,
        instances=tuple(chain(*instances)),
        cards=tuple(_cards(plan, found)),
        change=_change(*found.release) if found.release else None,
        problems=tuple(problems),
        gateway=gateway,
        declared=len(instance_names(plan)),
    )


def _instances(plan: InstancePlan, status: ServerStatus, measured: Mapping[str, Speed]) -> Iterator[InstanceSnapshot]:
    """Yield a server by itself, or each instance of a group."""
    state, why = server_state(plan, status)
    for each in instances_of(plan):
        of_model = _group_state(status.models.get(each.model)) if plan.members and state == "serves" else (state, why)
        yield _instance(each, status, measured.get(each.name), *of_model, plan.name if plan.members else None)


_ASLEEP = "its model is unloaded until the next request"


def _group_state(word: str | None) -> tuple[InstanceState, str]:
    """Return the state of one of several models whose server runs, from that server's report."""
    match word:
        case "loaded":
            return "serves", ""
        case "sleeping":
            return "asleep", _ASLEEP
        case "loading":
            return "loads", "its model is being loaded"
        case "failed":
            return "down", "its model ended with an error when it was last loaded"
        case _:
            return "waits", "its model is not loaded"


def _instance(
    plan: InstancePlan, status: ServerStatus, measured: Speed | None, state: InstanceState, why: str, group: str | None
) -> InstanceSnapshot:
    serves = state == "serves"
    return InstanceSnapshot(
        name=plan.name,
        model=" or ".join(plan.endpoint.models),
        port=plan.endpoint.port,
        state=state,
        why=why,
        streams=status.busy if serves else None,
        slots=(status.slots or plan.endpoint.streams) if serves else None,
        reading=status.reading if serves else None,
        waiting=status.waiting if serves else None,
        tokens_per_second=status.wrote[0] * 1000 / status.wrote[1] if serves and status.wrote else None,
        measured=measured,
        expected=plan.expect.decode if plan.expect else None,
        group=group,
    )


def server_state(plan: InstancePlan, status: ServerStatus) -> tuple[InstanceState, str]:
    """Return the state of an instance, and the reason if it does not serve."""
    what = "unit" if plan.backend == "systemd" else "container"
    if status.pause_left is not None:
        return "paused", f"for {show_hours(status.pause_left)} more"
    if status.active in _STOPPED:
        return "down", "it was stopped"
    if status.active == ABSENT:
        return "down", f"its {what} does not exist"
    if status.doing.startswith("auto-restart") or status.active == "restarting":
        return "down", f"its {what} fails, and is started again{_ended(status)}"
    if status.asleep:
        return "asleep", _ASLEEP
    if status.still:
        return "hangs", "its process is stopped" if status.still == "stopped" else "it does not respond, and is idle"
    starts = status.active in _STARTS or (what == "container" and status.doing in _STARTS)
    match status.health:
        case "200":
            return ("busy", "it responds later than in 2 s") if status.silent else ("serves", "")
        case "" if status.active in _RUNS:  # it has begun to respond, and continues
            return "busy", "it responds later than in 2 s"
        case "silent":
            return "busy", "it responds later than in 2 s"
        case "503":
            return "loads", "it reports that it is not ready"
        case "refused" if starts:
            return "loads", "it starts"
        case "refused":
            return "down", f"nothing listens at port {plan.endpoint.port}"
        case "broken":
            return "down", f"the program at port {plan.endpoint.port} breaks off"
        case "":
            return "down", f"its {what} is {status.active}{_ended(status)}" if status.active else "its state is unknown"
        case code:
            return "down", f"it returns {code} when its health is requested"


def _ended(status: ServerStatus) -> str:
    """Describe how a unit ended, if that was a failure."""
    return f" ({status.ended})" if status.ended not in ("", "success") else ""


def _down(plan: InstancePlan, status: ServerStatus, found: Sequence[InstanceSnapshot], holder: str) -> Iterator[str]:
    """Yield the servers, and models of a group, that serve no requests; and their fixes."""
    state, why = server_state(plan, status)
    down = [(plan.name, state, why)] if state not in ANSWERS else [(each.name, each.state, each.why) for each in found]
    for name, state, why in down:
        if state not in ANSWERS and state != "paused":
            verb = "is down" if state == "down" else state
            yield f"{name} {verb}: {why}; {_suggestion(plan, state, status, holder)}"


def _suggestion(plan: InstancePlan, state: InstanceState, status: ServerStatus, holder: str) -> str:
    """Return the fix. While a run changes the host, that is to wait for it."""
    if holder:
        return f"a run is at work there, by {holder}"
    if status.active == ABSENT:
        return f"`herd up {plan.server.rig}` creates it"
    if state == "hangs":
        return f"`herd up {plan.server.rig}` starts it again"
    target = f"{plan.server.rig}/{plan.name}"
    if status.active in _STOPPED:
        return f"`herd start {target}` starts it"
    return f"see `herd logs {target}`"


def _missing(plan: Plan, found: CheckedStatus) -> Iterator[str]:
    """Yield GPUs that are declared and do not exist."""
    if found.driver:
        yield f"its GPUs are unknown: {found.driver}; `herd preflight {plan.rig}` reports more"
        return
    for card in plan.cards:
        if card.at and not planned_card(card.at, found.cards):
            yield f"GPU {card.name} does not exist; `herd preflight {plan.rig}` lists the missing ones"


def _cards(plan: Plan, status: CheckedStatus) -> Iterator[CardSnapshot]:
    """Yield the declared GPUs, in that order, then all others of the host."""
    named = {id(found): card.name for card in plan.cards if (found := planned_card(card.at, status.cards))}
    order = [*named, *(id(each) for each in status.cards if id(each) not in named)]
    for card in sorted(status.cards, key=lambda each: order.index(id(each))):
        yield CardSnapshot(
            name=named.get(id(card), card.pci),
            model=card.name,
            memory_used=None if card.used is None else round(card.used * _MIB),
            memory_total=None if card.total is None else round(card.total * _MIB),
            watts=card.watts,
            limit_watts=card.limit,
            celsius=card.celsius,
            busy_percent=card.busy,
        )


def planned_card(at: str, cards: Sequence[CardStatus]) -> CardStatus | None:
    """Return the GPU that a plan means; a host's only one needs no address."""
    return find_gpu(at, cards) if at else next(iter(cards), None) if len(cards) == 1 else None


def _change(number: int, release: Release) -> LastChange:
    at = release.at.replace("T", " ").replace("+00:00", " UTC")
    return LastChange(number, at, release.origin.user, release.changes, release.failed)


def _gateway(plan: Plan, found: GatewayState | GatewayError | None) -> tuple[GatewaySnapshot | None, list[str]]:
    """Return the state of the gateway on this rig, and its problems."""
    if plan.gateway is None:
        return None, []
    if not isinstance(found, GatewayState):
        return None, [f"{found.message}; {found.fix}"] if found else []
    try:
        now = gateway_snapshot(found)
    except RemoteError as error:
        return None, [f"{error.message}; {error.help}"]
    served = [(model.name, server.name) for model in plan.gateway.models for server in model.servers]
    return now, [f"{server} is not at the gateway yet; `herd up {plan.rig}` adds it" for server in now.absent(served)]


PATIENCE = 15
"""Seconds to wait for hosts: a query takes little more than one, and twelve if everything on the host hangs."""
_AT_ONCE = 64
"""Hosts that are queried at the same time: so many may hang before another one has to wait for them."""
SECONDS = 30
"""Seconds after which a host without a response is given up."""


Snapshot = TypeVar("Snapshot")


class FleetQuery(ABC, Generic[Snapshot]):
    """Hosts that are queried repeatedly. A late host is not waited for a second time."""

    def __init__(self, planned: Mapping[str, tuple[Rig, Plan]], patience: float = PATIENCE) -> None:
        self._planned, self._patience = planned, patience
        self._under_way: dict[str, Future[Snapshot]] = {}
        self._turns = BoundedSemaphore(_AT_ONCE)

    @abstractmethod
    def query(self, name: str, rig: Rig, plan: Plan) -> Snapshot:
        """Return the state of a rig. Raise RemoteError."""

    @abstractmethod
    def asleep(self, name: str) -> Snapshot:
        """Return the state of a rig that does not respond, and that a gateway can wake."""

    @abstractmethod
    def away(self, name: str, why: str) -> Snapshot:
        """Return the state of a rig whose host did not respond."""

    def ask(self) -> tuple[Snapshot, ...]:
        """Return the state of all of them, in their order. A host that does not respond in time is unreachable."""
        begun = [name for name in self._planned if name not in self._under_way]
        self._under_way |= {name: self._begin(name) for name in begun}
        wait([self._under_way[name] for name in begun], self._patience)
        return tuple(self._found(name) for name in self._planned)

    def _begin(self, name: str) -> Future[Snapshot]:
        """Start a query, in a thread that does not delay the end of the program."""
        answer: Future[Snapshot] = Future()
        Thread(target=self._ask, args=(name, answer), daemon=True).start()
        return answer

    def _ask(self, name: str, answer: Future[Snapshot]) -> None:
        try:
            with self._turns:
                answer.set_result(self.query(name, *self._planned[name]))
        except RemoteError as error:
            sleeps = isinstance(error, UnreachableError) and self._planned[name][0].wake is not None
            why = f"{error.message}; {error.help}"
            answer.set_result(self.asleep(name) if sleeps else self.away(name, why))
        except BaseException as error:
            answer.set_exception(error)

    def _found(self, name: str) -> Snapshot:
        if not self._under_way[name].done():
            late = f"it has not responded within {self._patience:g} s; check the host's load and the connection"
            return self.away(name, late)
        return self._under_way.pop(name).result()


class StatusQuery(FleetQuery[RigSnapshot]):
    """Queries hosts for their servers, GPUs and last change."""

    def __init__(
        self,
        planned: Mapping[str, tuple[Rig, Plan]],
        measured: Mapping[tuple[str, str], Speed],
        patience: float = PATIENCE,
    ) -> None:
        super().__init__(planned, patience)
        self._measured = measured

    @override
    def ask(self) -> tuple[RigSnapshot, ...]:
        """Return the state of all of them, in their order, with the problems of their gateways."""
        return judge_gateways(super().ask())

    @override
    def query(self, name: str, rig: Rig, plan: Plan) -> RigSnapshot:
        """Return the state of a rig. Raise RemoteError."""
        measured = {instance: speed for (of, instance), speed in self._measured.items() if of == name}
        found = query_verb(Remote(rig.connect), "llamaherd.status.inspect", status_input(plan), HostStatus, SECONDS)
        status = check_status(found, [instance.service for instance in plan.instances])
        return rig_snapshot(plan, status, measured)

    @override
    def asleep(self, name: str) -> RigSnapshot:
        """Return what is known of a rig that sleeps: its servers respond once a request has woken it."""
        _, plan = self._planned[name]
        status = ServerStatus(asleep=True)
        found = tuple(
            _instance(each, status, None, "asleep", "its rig sleeps", server.name if server.members else None)
            for server in plan.instances
            for each in instances_of(server)
        )
        return RigSnapshot(name, found, declared=len(found), asleep=True)

    @override
    def away(self, name: str, why: str) -> RigSnapshot:
        """Return what is known of a rig whose host could not be queried."""
        _, plan = self._planned[name]
        return RigSnapshot(name, away=why, declared=len(instance_names(plan)))


def status_input(plan: Plan) -> StatusInput:
    """Return the input of a query of a host's state: its servers, GPUs and gateway. It contains no secret."""
    servers = tuple(
        ServerInput(
            name=instance.service,
            backend=instance.backend,
            host=instance.endpoint.local_address,
            port=instance.endpoint.port,
            health=instance.endpoint.health_path,
            figures=_figure_paths(instance.endpoint),
            in_turn=tuple(instance.endpoint.models) if instance.endpoint.swaps else (),
            models=instance.endpoint.models_path,
            key=str(instance.key_file) if instance.key_file else None,
            one_process=instance.server.one_process,
            props=instance.endpoint.props_path or "" if instance.endpoint.unloads else "",
        )
        for instance in plan.instances
    )
    return StatusInput(servers, gpus=bool(plan.cards), gateway=plan.gateway is not None)


def _figure_paths(endpoint: Endpoint) -> tuple[tuple[str, str], ...]:
    """Return the paths of its slots and metrics; of a server of several models, a pair for each model."""
    paths = ("/slots", endpoint.metrics_path)
    every = ((endpoint.of_model(paths[0], model), endpoint.of_model(paths[1], model)) for model in endpoint.models)
    return tuple(dict.fromkeys(every))


def measured_speeds(planned: Mapping[str, tuple[Rig, Plan]], results: Path) -> dict[tuple[str, str], Speed]:
    """Return the last measurements of instances, by rig and instance."""
    found: dict[tuple[str, str], Speed] = {}
    for name, (_, plan) in planned.items():
        for instance in chain(*map(instances_of, plan.instances)):
            last = last_result(results, name, instance.name)
            decode = fastest_decode(last) if last else None
            if last and decode:
                found[name, instance.name] = Speed(decode.value, decode.low, decode.high, last.began, decode.counted)
    return found
