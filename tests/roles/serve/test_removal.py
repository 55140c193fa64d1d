"""What goes, and when: not before what comes in its place serves, and by itself where nothing comes."""

from __future__ import annotations

from dataclasses import replace

import pytest

from llamaherd.diagnostics.findings import UserError
from llamaherd.host.state import HostState
from llamaherd.inventory.schema import Connect
from llamaherd.onhost.servers import Refused, ServingState, UnitState
from llamaherd.onhost.system import FailedError
from llamaherd.plan import Plan
from llamaherd.role.changes import Change
from llamaherd.role.role import Run
from roles.serve import tasks
from roles.serve.onhost.model import ReplacedServer, Room, SwitchInput
from roles.serve.onhost.switch import switch as run_switch
from roles.serve.removal import coming_instances, replaced_servers
from roles.serve.transaction import attempt_identity
from tests.support.ours import parse_state
from tests.support.recording import RecordingHost, recording, switch_of
from tests.support.rigs import GONE, KEY, Declared, changed, converged, cpu_rig, planned
from tests.support.states import edited, updated
from tests.support.switches import serving_host

CONNECT = Connect(host="box")
THEN = planned(cpu_rig())


@pytest.fixture(autouse=True)
def key(monkeypatch: pytest.MonkeyPatch) -> None:
    """The key is at hand."""
    monkeypatch.setenv("CHAT_KEY", KEY)


def there() -> HostState:
    """A host where `chat` and `drafter` serve."""
    return parse_state(converged(THEN, {"chat": KEY}))


def renamed(port: int = 8081) -> Declared:
    """The drafter under another name; `chat` has the threads that it had."""
    return changed(
        cpu_rig(), {"instances/drafter": GONE, "instances/talk": cpu_rig()["instances"]["drafter"] | {"port": port}}
    )


def done(plan: Plan, state: HostState, *, failed: bool = False) -> dict[str, list[str]]:
    """What each task would do to a host that looks so, where it does anything."""
    run = Run(CONNECT, failed=failed)
    found = {task.name: [f"{each.action} {each.name}" for each in task.changes(state, run)] for task in tasks(plan)}
    return {name: each for name, each in found.items() if each}


def switch(plan: Plan, name: str, state: HostState) -> Change:
    """The switch of an instance."""
    (task,) = (task for task in tasks(plan) if task.name.startswith(f"{name} ("))
    return task.changes(state, Run(CONNECT))[0]


def comes(plan: Plan, state: HostState, name: str) -> HostState:
    """An instance serves as planned, by its unit."""
    (instance,) = (each for each in plan.instances if each.name == name)
    unit = UnitState("active", "enabled", False, "1", instance.spec, instance.endpoint.port)
    return updated(state, units={instance.service: unit})


def test_nothing_waits_where_nothing_comes() -> None:
    plan = planned(changed(cpu_rig(), {"instances/drafter": GONE}))
    assert done(plan, there()) == {
        "instances no longer declared": ["remove llama-drafter"],
        "chat (systemd)": ["restart llama-chat"],
    }


def test_what_goes_waits_for_what_comes() -> None:
    """And is listed, all the same, where that was not tried and failed."""
    plan = planned(renamed())
    assert [each.name for each in coming_instances(plan, there())] == ["talk"]
    assert done(plan, there()) == {"talk (compose)": ["create llama-talk", "remove llama-drafter"]}


@pytest.mark.parametrize(
    "name", ["llama-a b", "llama-$(id)", "llama-a\\x20b", "llama-'", "llama-\N{LATIN SMALL LETTER U WITH DIAERESIS}"]
)
def test_a_unit_that_herd_cannot_have_written_is_left_alone(name: str) -> None:
    plan, state = planned(renamed(8082)), there()
    before = done(plan, state)
    state = updated(state, units={name: UnitState("active", "enabled", False, "1", "", 8099)})
    assert done(plan, state) == before


def test_it_goes_with_the_last_that_comes() -> None:
    plan = planned(changed(renamed(), {"instances/zoe": cpu_rig()["instances"]["chat"] | {"port": 9001}}))
    found = done(plan, there())
    assert found["talk (compose)"] == ["create llama-talk"]
    assert found["zoe (systemd)"] == ["create llama-zoe", "remove llama-drafter"]


def test_it_stays_where_one_has_failed() -> None:
    plan = planned(changed(renamed(), {"instances/zoe": cpu_rig()["instances"]["chat"] | {"port": 9001}}))
    state = there()
    state = edited(state, builds={build.id: "done" for build in plan.builds})
    found = done(plan, state, failed=True)
    assert "remove llama-drafter" not in [each for changes in found.values() for each in changes]


def test_it_goes_at_once_where_what_came_serves_already() -> None:
    """The run that brought it was killed before it could remove what went."""
    plan = planned(changed(renamed(), {"instances/talk/backend": "systemd"}))
    state = comes(plan, there(), "talk")
    assert done(plan, state)["instances no longer declared"] == ["remove llama-drafter"]


def test_one_that_has_answered_no_prompt_has_not_come() -> None:
    plan = planned(changed(renamed(), {"instances/talk/backend": "systemd"}))
    state = comes(plan, there(), "talk")
    state = updated(state, serving={"llama-talk": ServingState(untried=(state.servers.units["llama-talk"].spec,))})
    assert "instances no longer declared" not in done(plan, state)


def replacing(port: int = 8081) -> tuple[RecordingHost, SwitchInput]:
    """Return a host where the drafter serves, and the switch of its successor."""
    host = recording(serving_host(THEN, "drafter"))
    return host, switch_of(switch(planned(renamed(port)), "talk", there()))


STOP, START = ("docker", "stop", "llama-drafter"), ("docker", "compose", "/etc/llamaherd/compose/talk/compose.yaml")
MARK = "/var/lib/llamaherd/kept/llama-drafter/aside"


def test_a_port_is_given_over_in_the_switch() -> None:
    host, given = replacing()
    assert given.replaced == (ReplacedServer("drafter", "llama-drafter", takes_port=True),)
    assert given.leaving == ("llama-drafter",), "what it holds counts as free"
    run_switch(given, host, host)
    assert host.index("write", MARK) < host.index(*STOP) < host.index(*START)
    assert "stopping llama-drafter, which is not declared any more: its port is to be that of llama-talk" in host.log
    assert host.running("llama-talk") == given.server.spec
    assert MARK not in host.files, "it does not come back"


def test_one_that_gave_its_port_comes_back_where_what_is_new_fails() -> None:
    host, given = replacing()
    before = host.running("llama-drafter")
    host.fates[given.server.spec] = "does not answer"
    with pytest.raises(FailedError):
        run_switch(given, host, host)
    assert host.running("llama-drafter") == before
    assert host.running("llama-talk") == ""
    assert MARK not in host.files


def test_one_that_waits_for_its_restart_gives_its_port_over_too() -> None:
    """At a boot, or after it could not have its port: else it would start while another is tried there."""
    plan = planned(changed(cpu_rig(), {"instances/talk": cpu_rig()["instances"]["chat"], "instances/chat": GONE}))
    state = there()
    waiting = replace(state.servers.units["llama-chat"], active="activating", port=None, waits_for=8080)
    state = updated(state, units={"llama-chat": waiting})
    (talk,) = (each for each in plan.instances if each.name == "talk")
    assert [(each.name, each.port, each.serves) for each in replaced_servers(plan, talk, state)] == [
        ("chat", True, False)
    ]


@pytest.mark.parametrize("room", [True, False])
def test_at_another_port_it_goes_on_if_there_is_room(room: bool) -> None:
    host, given = replacing(8085)
    assert given.replaced == (ReplacedServer("drafter", "llama-drafter", takes_port=False),)
    host.room = room
    run_switch(replace(given, replaced_room=Room(1 << 30, ())), host, host)
    assert host.has_done(*STOP) is not room
    assert host.running("llama-talk") == given.server.spec


def test_without_certainty_of_what_it_takes_the_other_one_is_stopped() -> None:
    host, given = replacing(8085)
    assert given.replaced_room is None
    host.room = True
    run_switch(given, host, host)
    assert host.has_done(*STOP)
    why = "how much llama-talk takes is not certain"
    assert f"stopping llama-drafter, which is not declared any more: {why}" in host.log


def test_others_that_change_are_not_disturbed_by_what_goes() -> None:
    """Only what is there and not declared steps aside, and only while something comes."""
    plan = planned(changed(cpu_rig(), {"instances/chat/context": 1024}))
    assert replaced_servers(plan, plan.instances[0], there()) == ()
    given = switch_of(switch(plan, "chat", there()))
    assert (given.replaced, given.leaving) == ((), ())


def test_what_failed_in_its_place_is_not_tried_again() -> None:
    plan, state = planned(renamed()), there()
    (talk,) = (each for each in plan.instances if each.name == "talk")
    refused = Refused(attempt_identity(talk), "2026-11-23 09:00:00", "it did not load")
    state = updated(state, serving={"llama-talk": ServingState(refused=refused)})
    with pytest.raises(UserError) as raised:
        switch(plan, "talk", state)
    assert raised.value.message == (
        "llama-drafter serves in place of talk: what is declared was tried on 2026-11-23 09:00:00, and it did not load"
    )
    exited = replace(state.servers.containers["llama-drafter"], status="exited")
    state = updated(state, containers={"llama-drafter": exited})
    assert switch(plan, "talk", state).action == "create"
