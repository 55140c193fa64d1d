"""Servers that exchange something in one run: which change together, and what is done to them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from llamaherd.diagnostics.findings import UserError
from llamaherd.host.state import HostState
from llamaherd.inventory.schema import Connect
from llamaherd.layout import EXCHANGE
from llamaherd.memory.instances import MARGIN, SYSTEM_RAM
from llamaherd.onhost.servers import ContainerState, Holding, Loaded, Refused, ServingState, UnitState
from llamaherd.onhost.system import FailedError
from llamaherd.plan import RAM, Estimate, Grows, Holds, Plan
from llamaherd.role.changes import Change, RunVerb
from llamaherd.role.role import Run
from roles.serve import tasks
from roles.serve.exchange import CUT_OFF, cut_off_changes, exchanging
from roles.serve.onhost.exchange import exchange as run_exchange
from roles.serve.onhost.model import CutOffInput, ExchangeInput
from roles.serve.onhost.switch import JOURNAL
from roles.serve.state import ServeState
from roles.serve.transaction import attempt_identity
from tests.support.ours import parse_state
from tests.support.played_host import PlayedHost
from tests.support.recording import RecordingHost, input_of, recording
from tests.support.rigs import converged, cpu_rig, planned
from tests.support.states import edited, updated
from tests.support.switches import one_run

NAMES = ("a", "b", "c")
GIB = 1 << 30
CONNECT = Connect(host="box")


def words(text: str) -> dict[str, tuple[int, str]]:
    """Read ports and backends of `a`, `b` and `c`: the last digit of each port, and `'` behind those in containers."""
    found = {}
    for name, word in zip(NAMES, text.split(), strict=False):
        if word != "-":
            found[name] = (9000 + int(word.rstrip("'")), "compose" if word.endswith("'") else "systemd")
    return found


def plan_of(text: str, **models: str) -> Plan:
    """Plan a rig of these instances; `models` are those of instances that serve another one than `moe`."""
    rig = cpu_rig()
    like = rig["instances"]["drafter"]
    del like["draft"]
    rig["instances"] = {
        name: {**like, "port": port, "backend": backend, "model": models.get(name, "moe")}
        for name, (port, backend) in words(text).items()
    }
    return planned(rig)


def state_of(text: str) -> HostState:
    """Return a host on which these serve, none of them as planned."""
    state = HostState()
    for name, (port, backend) in words(text).items():
        if backend == "systemd":
            state = updated(state, units={f"llama-{name}": UnitState("active", "enabled", False, "1", "before", port)})
        else:
            container = ContainerState("running", "healthy", "1", "before", port)
            state = updated(state, containers={f"llama-{name}": container})
            state = edited(state, projects={*ServeState.of(state).projects, name})
    return state


def together(plan: Plan, state: HostState) -> set[str]:
    """Return the groups of instances that change together, each as its names."""
    return {"".join(each.name for each in group) for group in exchanging(plan, state).values()}


@pytest.mark.parametrize(
    ("then", "now", "groups"),
    [
        ("1 2", "1 2", set()),
        ("1 2", "3 4", set()),
        ("1 2", "2 1", {"ab"}),
        ("1 2", "2 3", {"ab"}),
        ("1 2", "3 1", {"ab"}),
        ("1 2 3", "2 3 1", {"abc"}),
        ("1 2 3", "2 3 4", {"abc"}),
        ("1 2 3", "2 1 3", {"ab"}),
        ("1 2'", "2 1'", {"ab"}),
        ("1 2'", "2' 1", {"ab"}),
        ("1 2'", "1' 2", {"ab"}),
        ("1 2", "1' 2'", set()),
        ("1' 2'", "2' 1'", {"ab"}),
        ("1 -", "2 1'", {"ab"}),
        ("- 1", "1 2", {"ab"}),
        ("- -", "1 2", set()),
        # One that goes gives its port to an instance alone, and makes a group of those that it joins.
        ("1 2", "- 1", set()),
        ("1 2 3", "2 3 -", {"ab"}),
    ],
)
def test_ports_and_backends_that_change_hands(then: str, now: str, groups: set[str]) -> None:
    assert together(plan_of(now), state_of(then)) == groups


def test_one_that_waits_for_its_restart_has_its_port() -> None:
    state = state_of("1 2")
    state = updated(state, units={"llama-b": UnitState("activating", "enabled", False, "1", "", None, 9002)})
    assert together(plan_of("2 3"), state) == {"ab"}


def test_what_is_stopped_gives_nothing_up() -> None:
    state = state_of("1 2")
    state = updated(state, units={"llama-b": UnitState("failed", "enabled", False, "1", "", None, 9002)})
    assert together(plan_of("2 3"), state) == set()


def serving(plan: Plan, state: HostState, **models: str) -> HostState:
    """Have the host remember the models that servers read at their last start."""
    folders = {each.model: each.server.folders for each in plan.instances}
    for name, model in models.items():
        state = updated(state, serving={f"llama-{name}": ServingState(loaded=Loaded(1, folders[model]))})
    return state


@pytest.mark.parametrize(
    ("then", "now", "groups"),
    [
        ({"a": "moe", "b": "gemma"}, {"a": "gemma", "b": "moe"}, {"ab"}),
        # What one serves from now on, the other gives up: without it nobody would serve it.
        ({"a": "moe", "b": "gemma"}, {"a": "gemma", "b": "gemma"}, set()),
        ({"a": "moe", "b": "moe"}, {"a": "gemma", "b": "moe"}, set()),
    ],
)
def test_models_that_change_names(then: dict[str, str], now: dict[str, str], groups: set[str]) -> None:
    plan = plan_of("1 2 3", **now, c="gemma" if "gemma" not in now.values() else "moe")
    state = serving(plan, state_of("1 2 3"), **then)
    state = updated(state, units={"llama-c": UnitState("active", "enabled", False, "1", plan.instances[2].spec, 9003)})
    assert together(plan, state) == groups


def holding(plan: Plan, needs: Mapping[str, dict[str, int]], sizes: Mapping[str, int]) -> Plan:
    """Plan what instances hold: bytes by place."""

    def estimate(name: str) -> Estimate:
        places = tuple(
            Holds(where=where, size=sizes[where], weights=size, kv=0, state=0, compute=0, draft=0)
            for where, size in needs[name].items()
        )
        return Estimate(source="arithmetic", holds=places, grows=Grows(), resident=needs[name].get(RAM, 0))

    instances = tuple(each.model_copy(update={"memory": estimate(each.name)}) for each in plan.instances)
    return plan.model_copy(update={"instances": instances})


ROOM: dict[str, tuple[dict[str, int], dict[str, int], str]] = {
    "one shrinks, and another grows": ({"a": 6, "b": 1}, {"a": 1, "b": 6}, "ab"),
    "both grow": ({"a": 1, "b": 1}, {"a": 3, "b": 3}, ""),
    "there is room before one shrinks": ({"a": 3, "b": 1}, {"a": 1, "b": 4}, ""),
    "one that serves nowhere yet takes what another gives up": ({"a": 6}, {"a": 1, "b": 6}, "ab"),
    "what goes gives room to two": ({"a": 1, "c": 7}, {"a": 4, "b": 4}, "ab"),
    "what goes gives room to one": ({"c": 7}, {"a": 4}, ""),
}


@pytest.mark.parametrize("case", ROOM)
def test_room_that_changes_hands(case: str) -> None:
    then, now, group = ROOM[case]
    ports = {"a": "1", "b": "2", "c": "3"}
    plan = plan_of(" ".join(ports[name] if name in now else "-" for name in NAMES))
    plan = holding(plan, {name: {RAM: size * GIB} for name, size in now.items()}, {RAM: 8 * GIB + SYSTEM_RAM})
    state = state_of(" ".join(ports[name] if name in then else "-" for name in NAMES))
    for name, size in then.items():
        state = updated(state, serving={f"llama-{name}": ServingState(holding=Holding("before", {RAM: size * GIB}))})
    assert together(plan, state) == ({group} if group else set())


def test_what_another_spec_held_says_nothing() -> None:
    plan = holding(plan_of("1 2"), {"a": {RAM: GIB}, "b": {RAM: 6 * GIB}}, {RAM: 8 * GIB + max(SYSTEM_RAM, MARGIN)})
    state = state_of("1 2")
    state = updated(state, serving={"llama-a": ServingState(holding=Holding("another", {RAM: 6 * GIB}))})
    assert together(plan, state) == set()


def ready(plan: Plan, state: HostState) -> HostState:
    """Have all there that instances need."""
    builds = {build.id: "done" for build in plan.builds}
    return edited(state, builds=builds, images={image.tag for image in plan.images})


def done(plan: Plan, state: HostState, **run: Any) -> dict[str, list[Change]]:
    """Return what each task would do to a host that looks so, where it does anything."""
    found = {task.name: list(task.changes(state, Run(CONNECT, **run))) for task in tasks(plan)}
    return {name: changes for name, changes in found.items() if changes}


def test_one_change_is_that_of_all() -> None:
    plan, state = plan_of("2 1'"), state_of("1 2'")
    found = done(plan, ready(plan, state))
    assert list(found) == ["a (systemd)"]
    (change,) = found["a (systemd)"]
    assert [(each.action, each.name) for each in change.parts] == [("restart", "llama-a"), ("restart", "llama-b")]
    assert [each.reasons[-1] for each in change.parts] == [
        "it changes together with llama-b",
        "it changes together with llama-a",
    ]
    assert isinstance(change.how, RunVerb)
    assert change.how.verb == "serve.exchange.run"
    given = input_of(change, ExchangeInput)
    assert [(each.server.service, each.restart, each.moves) for each in given.members] == [
        ("llama-a", True, False),
        ("llama-b", True, False),
    ]
    # What the other one holds counts as free, and no server runs side by side with one that gives its port up.
    assert [each.leaving for each in given.members] == [("llama-b",), ("llama-a",)]
    assert [each.candidate for each in given.members] == [None, None]
    assert (given.names, given.ports) == ("llama-a, llama-b", (9001, 9002))


def serving_exchange() -> tuple[RecordingHost, ExchangeInput]:
    """Return a host on which a unit and a container serve, and the change that exchanges their ports."""
    then, plan = plan_of("1 2'"), plan_of("2 1'")
    played = PlayedHost({})
    for name in ("a", "b"):
        assert one_run(played, then, name) == ""
    (change,) = done(plan, ready(plan, state_of("1 2'")))["a (systemd)"]
    return recording(played), input_of(change, ExchangeInput)


def test_all_is_checked_and_on_the_disk_before_the_first_is_stopped() -> None:
    host, given = serving_exchange()
    run_exchange(given, host, host)
    written = host.index("rename", str(EXCHANGE))
    stops = [next(at for at, each in enumerate(host.done) if set(words) <= set(each)) for words in STOPS]
    starts = [host.index(*words) for words in STARTS]
    assert host.index("setpriv", "--version") < written < min(stops) < max(stops) < min(starts)
    assert host.files.get(JOURNAL) is None
    assert [host.running(each.server.service) for each in given.members] == [each.server.spec for each in given.members]


STOPS = (("systemctl", "stop", "llama-a.service"), ("docker", "stop", "llama-b"))
STARTS = (("systemctl", "restart", "llama-a.service"), ("docker", "compose", "up"))


@pytest.mark.parametrize("failing", [0, 1])
def test_all_serve_as_before_where_one_fails(failing: int) -> None:
    host, given = serving_exchange()
    before = [host.running(each.server.service) for each in given.members]
    host.fates[given.members[failing].server.spec] = "does not answer"
    with pytest.raises(FailedError, match="llama-a, llama-b serve as before, since they change together"):
        run_exchange(given, host, host)
    assert [host.running(each.server.service) for each in given.members] == before
    assert given.members[failing].server.tried in host.files[given.members[failing].server.refused].text
    assert host.files.get(JOURNAL) is None


def test_none_changes_where_one_cannot() -> None:
    plan, state = plan_of("2 1'"), state_of("1 2'")
    (a, _) = plan.instances
    refused = Refused(attempt_identity(a), "2026-11-27 10:00:00", "it did not serve")
    state = ready(plan, updated(state, serving={a.service: ServingState(refused=refused)}))
    with pytest.raises(UserError) as raised:
        done(plan, state)
    assert raised.value.message == (
        "a serves as before: what is declared was tried on 2026-11-27 10:00:00, and it did not serve; "
        "llama-b would change together with it"
    )
    assert list(done(plan, state, retry=True)) == ["a (systemd)"]


def test_one_that_lacks_its_image_stops_no_other() -> None:
    """The other one would take its port."""
    plan, before = plan_of("2 3'"), state_of("1 2'")
    state = parse_state(converged(plan, {}))
    state = edited(state, units=before.servers.units, containers=before.servers.containers, images=set())
    with pytest.raises(UserError, match=r"b is left as it is: its image .* is not made; llama-a would change together"):
        done(plan, state, failed=True)


def test_one_that_never_served_is_not_tried_again_where_others_serve() -> None:
    plan, state = plan_of("2 1"), state_of("1 -")
    b = plan.instances[1]
    refused = Refused(attempt_identity(b), "2026-11-27 10:00:00", "it did not serve")
    state = ready(plan, updated(state, serving={b.service: ServingState(refused=refused)}))
    with pytest.raises(UserError, match="llama-a serves in place of b: what is declared was tried on"):
        done(plan, state)


def test_what_was_cut_off_is_ended_first() -> None:
    plan = plan_of("2 1")
    state = state_of("1 2")
    state = edited(state, cut_off="llama-a, llama-b")
    (change,) = cut_off_changes(state)
    assert str(change) == f"restart server llama-a, llama-b: {CUT_OFF}"
    assert isinstance(change.how, RunVerb)
    assert (change.how.verb, change.how.given) == ("serve.exchange.end", CutOffInput("llama-a, llama-b"))
    assert next(iter(done(plan, ready(plan, state)))) == "servers that change together"
    assert cut_off_changes(state_of("1 2")) == []
