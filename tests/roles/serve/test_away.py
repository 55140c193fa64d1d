"""How long a server will be away, as `herd plan` says it: by its last start, or by the size of its model."""

from __future__ import annotations

from llamaherd.host.state import HostState
from llamaherd.inventory.schema import Connect
from llamaherd.onhost.servers import Loaded, ServingState, UnitState
from llamaherd.plan import InstancePlan, Plan
from llamaherd.role.changes import Downtime
from llamaherd.role.role import Run
from roles.serve import tasks
from roles.serve.changes import estimate_downtime
from tests.support.rigs import cpu_rig, planned
from tests.support.states import host_with

PLAN = planned(cpu_rig())
CHAT = next(each for each in PLAN.instances if each.backend == "systemd")


def host(active: str = "active", told: tuple[str, ...] = (), stored: int = 0) -> HostState:
    """A host on which `chat` runs as something else, its model lying there in so many bytes."""
    loaded = Loaded(int(told[0]) / 1000, told[1:]) if told else None
    model = next(each for each in PLAN.models if each.folder == CHAT.model_folder)
    return host_with(
        units={CHAT.service: UnitState(active, "enabled", False, "run", "other")},
        serving={CHAT.service: ServingState(loaded=loaded)},
        stored={model.folder: {file.name: (stored, 0.0) for file in model.files}},
    )


def said(plan: Plan, instance: InstancePlan, state: HostState) -> str:
    """What people read."""
    return str(estimate_downtime(plan, instance, state))


def test_as_its_last_start() -> None:
    state = host(told=("12345", *CHAT.server.folders))
    assert said(PLAN, CHAT, state) == "downtime about 12 s (measured at its last start)"


def test_by_the_size_of_its_model_where_another_was_read() -> None:
    state = host(told=("12345", "/var/lib/llamaherd/models/other"), stored=20_000_000_000)
    assert said(PLAN, CHAT, state) == "downtime about 22 s (by the size of its model)"


def test_one_that_does_not_serve_is_not_missed() -> None:
    assert estimate_downtime(PLAN, CHAT, host(active="failed")) is None


def test_the_change_says_it() -> None:
    run = Run(connect=Connect(host="duo.lan"), executing=False)
    keyless = CHAT.server.model_copy(update={"endpoint": CHAT.endpoint.model_copy(update={"key": None})})
    plan = PLAN.model_copy(update={"instances": (CHAT.model_copy(update={"server": keyless}),)})
    task = next(each for each in tasks(plan) if each.name.startswith(f"{CHAT.name} "))
    (change,) = task.changes(host(told=("3000", *CHAT.server.folders)), run)
    assert change.action == "restart"
    assert change.away == Downtime(3.0, measured=True)
    assert "away" not in str(change)
