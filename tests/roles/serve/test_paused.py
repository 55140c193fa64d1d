"""What a run does with a server that is paused or was stopped, and what a verification finds."""

from __future__ import annotations

from dataclasses import replace

import pytest

from llamaherd.host.state import HostState
from llamaherd.inventory.schema import Connect, Rig
from llamaherd.onhost.servers import ServingState
from llamaherd.plan import Plan
from llamaherd.role.role import Judging, Run
from roles.serve import tasks
from roles.serve.exchange import exchanging
from roles.serve.onhost.model import ServerFound, VerifiedServers
from roles.serve.removal import coming_instances
from roles.serve.verify import judge_servers
from tests.support.ours import parse_state
from tests.support.rigs import GONE, KEY, changed, converged, cpu_rig, planned
from tests.support.states import updated

RUN = Run(Connect(host="box"))
PLAN = planned(cpu_rig())
OTHER = planned(changed(cpu_rig(), {"instances/chat/context": 2048, "instances/drafter/context": 2048}))


@pytest.fixture(autouse=True)
def key(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have the key."""
    monkeypatch.setenv("CHAT_KEY", KEY)


def stopped(*, pause_left: float | None, chat: str = "inactive", drafter: str = "exited") -> HostState:
    """Return a host whose servers do not run."""
    state = parse_state(converged(PLAN, {"chat": KEY}))
    unit, container = state.servers.units["llama-chat"], state.servers.containers["llama-drafter"]
    units = {"llama-chat": replace(unit, active=chat, enabled="disabled", spec="" if chat == "inactive" else unit.spec)}
    containers = {"llama-drafter": replace(container, status=drafter, health="")}
    serving = {
        name: replace(state.servers.serving.get(name, ServingState()), pause_left=pause_left)
        for name in ("llama-chat", "llama-drafter")
    }
    return updated(state, units=units, containers=containers, serving=serving)


def done(plan: Plan, state: HostState) -> list[str]:
    """Return the changes of a run."""
    return [f"{each.action} {each.name}" for task in tasks(plan) for each in task.changes(state, RUN)]


def notes(plan: Plan, state: HostState) -> list[str]:
    """Return the sentences of a run."""
    executing = replace(RUN, executing=False)
    return [note for task in tasks(plan) if task.notes for note in task.notes(state, executing)]


@pytest.mark.parametrize("plan", [PLAN, OTHER], ids=["as before", "with another context"])
def test_a_run_leaves_paused_servers_as_they_are_and_reports_them(plan: Plan) -> None:
    state = stopped(pause_left=3600)
    assert done(plan, state) == []
    assert notes(plan, state) == [
        "chat stays paused for 1 h 00 min more; `herd resume box/chat` starts it",
        "drafter stays paused for 1 h 00 min more; `herd resume box/drafter` starts it",
    ]
    assert exchanging(plan, state) == {}
    assert coming_instances(plan, state) == []


def test_a_run_starts_servers_that_were_stopped() -> None:
    state = stopped(pause_left=None)
    assert done(PLAN, state) == ["restart llama-chat", "start llama-drafter"]
    assert notes(PLAN, state) == []


def test_a_server_that_runs_is_not_paused_whatever_is_recorded() -> None:
    state = stopped(pause_left=3600, chat="active", drafter="running")
    assert done(PLAN, state) == ["start llama-chat", "start llama-drafter"]
    assert notes(PLAN, state) == []


def test_a_server_that_is_not_declared_any_more_does_not_wait_for_a_paused_one() -> None:
    plan = planned(changed(cpu_rig(), {"instances/drafter": GONE}))
    assert done(plan, stopped(pause_left=60)) == ["remove llama-drafter"]


def found(server: ServerFound) -> list[tuple[bool, str, str]]:
    """Return what a verification finds of a server."""
    judging = Judging(Rig.model_validate(cpu_rig()), PLAN, {}, {}, {VerifiedServers: VerifiedServers({"chat": server})})
    report = judge_servers(judging).instances[0]
    assert report.name == "chat"
    return [(each.ok, each.name, each.detail) for each in report.checks]


def test_a_paused_server_is_verified_as_paused() -> None:
    assert found(ServerFound(pause_left=90)) == [(True, "paused", "for 2 min more; `herd resume box/chat` starts it")]


def test_a_program_at_the_port_of_a_paused_server_is_a_fault() -> None:
    why = "it cannot start after its pause: port 8080 is in use by python3 (process 7)"
    assert found(ServerFound(pause_left=90, holder="python3 (process 7)")) == [(False, "paused", why)]
