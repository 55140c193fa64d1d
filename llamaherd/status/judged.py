"""What a host told, beside what is planned for it: states of instances, GPUs by their names, and problems. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import chain

from llamaherd.gateway.now import GatewayNow, gateway_now
from llamaherd.history.release import Release
from llamaherd.host.nvidia_smi import find_gpu
from llamaherd.host.remote import RemoteError
from llamaherd.onhost.gateway import GatewayState
from llamaherd.onhost.status import ABSENT, CardStatus, GatewayError
from llamaherd.onhost.status_probe import ServerStatus
from llamaherd.plan import InstancePlan, Plan
from llamaherd.plan.loaded import instances_of
from llamaherd.status.now import ANSWERS, CardNow, ChangeNow, InstanceNow, RigNow, Speed, State
from llamaherd.status.told import HostTold

_MIB = 1 << 20
_RUNS = ("active", "running")
_STARTS = ("activating", "reloading", "starting")


def rig_now(plan: Plan, told: HostTold, measured: Mapping[str, Speed]) -> RigNow:
    """A rig now; `measured` by instance."""
    servers = told.servers
    found = [(each, servers[each.service]) for each in plan.instances]
    instances = [tuple(_instances(each, server, measured)) for each, server in found]
    gateway, wrong = _gateway(plan, told.gateway)
    down = chain(*(_down(each, server, now) for (each, server), now in zip(found, instances, strict=True)))
    problems = [*down, *_missing(plan, told), *wrong]
    return RigNow(
        name=plan.rig,
        instances=tuple(chain(*instances)),
        cards=tuple(_cards(plan, told)),
        change=_change(*told.release) if told.release else None,
        problems=tuple(problems),
        gateway=gateway,
    )


def _instances(plan: InstancePlan, told: ServerStatus, measured: Mapping[str, Speed]) -> Iterator[InstanceNow]:
    """A server by itself, or each instance of a group."""
    state, why = _state(plan, told)
    for each in instances_of(plan):
        of_model = _in_turn(told.models.get(each.model)) if plan.members and state == "serves" else (state, why)
        yield _instance(each, told, measured.get(each.name), *of_model, plan.name if plan.members else None)


def _in_turn(said: str | None) -> tuple[State, str]:
    """What one of several models does whose server serves, by what that says of it."""
    match said:
        case "loaded" | "sleeping":
            return "serves", ""
        case "loading":
            return "loads", "its model is being loaded"
        case "failed":
            return "down", "its model ended with an error when it was last loaded"
        case _:
            return "waits", "its model is not loaded"


def _instance(
    plan: InstancePlan, told: ServerStatus, measured: Speed | None, state: State, why: str, group: str | None
) -> InstanceNow:
    serves = state == "serves"
    return InstanceNow(
        name=plan.name,
        model=" or ".join(plan.endpoint.models),
        port=plan.endpoint.port,
        state=state,
        why=why,
        streams=told.busy if serves else None,
        slots=(told.slots or plan.endpoint.streams) if serves else None,
        reading=told.reading if serves else None,
        waiting=told.waiting if serves else None,
        tokens_per_second=told.wrote[0] * 1000 / told.wrote[1] if serves and told.wrote else None,
        measured=measured,
        expected=plan.expect.decode if plan.expect else None,
        group=group,
    )


def _state(plan: InstancePlan, told: ServerStatus) -> tuple[State, str]:
    """What it is, and why, where it does not serve."""
    what = "unit" if plan.backend == "systemd" else "container"
    if told.active == ABSENT:
        return "down", f"there is no {what} of it"
    if told.doing.startswith("auto-restart") or told.active == "restarting":
        return "down", f"its {what} fails, and is started again{_ended(told)}"
    if told.still:
        return "hangs", "its process is stopped" if told.still == "stopped" else "it answers nobody, and does nothing"
    starts = told.active in _STARTS or (what == "container" and told.doing in _STARTS)
    match told.health:
        case "200":
            return ("busy", "it answers later than in 2 s") if told.silent else ("serves", "")
        case "" if told.active in _RUNS:  # it has begun to answer, and goes on with that
            return "busy", "it answers later than in 2 s"
        case "silent":
            return "busy", "it answers later than in 2 s"
        case "503":
            return "loads", "it says that it is not ready"
        case "refused" if starts:
            return "loads", "it starts"
        case "refused":
            return "down", f"nothing listens at port {plan.endpoint.port}"
        case "broken":
            return "down", f"what listens at port {plan.endpoint.port} breaks off"
        case "":
            return "down", f"its {what} is {told.active}{_ended(told)}" if told.active else "nothing is known of it"
        case status:
            return "down", f"it answers {status} when it is asked for its health"


def _ended(told: ServerStatus) -> str:
    """How a unit ended, where that was not as it should."""
    return f" ({told.ended})" if told.ended not in ("", "success") else ""


def _down(plan: InstancePlan, told: ServerStatus, found: Sequence[InstanceNow]) -> Iterator[str]:
    """That a server serves nobody, or a group one of its models; and where to look."""
    state, why = _state(plan, told)
    down = [(plan.name, state, why)] if state not in ANSWERS else [(each.name, each.state, each.why) for each in found]
    for name, state, why in down:
        if state not in ANSWERS:
            verb = "is down" if state == "down" else state
            yield f"{name} {verb}: {why}; {_way_out(plan, state, told)}"


def _way_out(plan: InstancePlan, state: State, told: ServerStatus) -> str:
    """What a person can do."""
    if told.active == ABSENT:
        return f"`herd up {plan.server.rig}` makes it"
    if state == "hangs":
        return f"`herd up {plan.server.rig}` starts it again"
    log = "journalctl -u" if plan.backend == "systemd" else "docker logs"
    return f"see `{log} {plan.service}` there"


def _missing(plan: Plan, told: HostTold) -> Iterator[str]:
    """GPUs that are declared and not there."""
    if told.driver:
        yield f"its GPUs are not known: {told.driver}; `herd preflight {plan.rig}` says more"
        return
    for card in plan.cards:
        if card.at and not _found(card.at, told.cards):
            yield f"GPU {card.name} is not there; `herd preflight {plan.rig}` says which are"


def _cards(plan: Plan, told: HostTold) -> Iterator[CardNow]:
    """Those that are declared, in that order, then all others of the host."""
    named = {id(found): card.name for card in plan.cards if (found := _found(card.at, told.cards))}
    order = [*named, *(id(each) for each in told.cards if id(each) not in named)]
    for card in sorted(told.cards, key=lambda each: order.index(id(each))):
        yield CardNow(
            name=named.get(id(card), card.pci),
            model=card.name,
            memory_used=None if card.used is None else round(card.used * _MIB),
            memory_total=None if card.total is None else round(card.total * _MIB),
            watts=card.watts,
            limit_watts=card.limit,
            celsius=card.celsius,
            busy_percent=card.busy,
        )


def _found(at: str, cards: Sequence[CardStatus]) -> CardStatus | None:
    """The GPU that a plan means; a host's only one needs no address."""
    return find_gpu(at, cards) if at else next(iter(cards), None) if len(cards) == 1 else None


def _change(number: int, release: Release) -> ChangeNow:
    at = release.at.replace("T", " ").replace("+00:00", " UTC")
    return ChangeNow(number, at, release.origin.user, release.changes, release.failed)


def _gateway(plan: Plan, found: GatewayState | GatewayError | None) -> tuple[GatewayNow | None, list[str]]:
    """What the gateway does that is on this rig, and what is wrong with it."""
    if plan.gateway is None:
        return None, []
    if not isinstance(found, GatewayState):
        return None, [f"{found.message}; {found.fix}"] if found else []
    try:
        now = gateway_now(found)
    except RemoteError as error:
        return None, [f"{error.message}; {error.help}"]
    served = [(model.name, server.name) for model in plan.gateway.models for server in model.servers]
    wrong = [f"the gateway finds {server} down; `herd gateway status` says more" for server in now.down]
    wrong += [
        f"{server} is not at the gateway yet; `herd up {plan.rig}` puts it there" for server in now.absent(served)
    ]
    return now, wrong
