"""Candidates that run side by side with the running server: where both fit by the plan, and what a host receives.

Whether both fit by what a host reports is in `onhost/test_room_beside.py`.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from llamaherd.host.state import HostState
from llamaherd.layout import candidate_service
from llamaherd.memory.instances import SYSTEM_RAM
from llamaherd.onhost.servers import ContainerState, ServingState, UnitState
from llamaherd.plan import Estimate, Holds, InstancePlan, Plan
from llamaherd.plan.backends import BACKENDS
from roles.serve.blue_green import candidate_input, candidate_spec, fits_side_by_side, redirect_rule
from roles.serve.changes import server_changes
from tests.support.ours import parse_state
from tests.support.recording import switch_of
from tests.support.rigs import KEY, converged, cpu_rig, planned
from tests.support.states import edited, host_with, updated

GIB = 1 << 30
PLAN = planned(cpu_rig())
CHAT = next(each for each in PLAN.instances if each.backend == "systemd")
DRAFTER = next(each for each in PLAN.instances if each.backend == "compose")


def held(size: int, of: int = 8 * GIB, *doubts: str) -> Estimate:
    """What takes so many bytes of the RAM, of which there are so many."""
    return Estimate(
        source="arithmetic",
        holds=(Holds(where="RAM", size=of, weights=size, kv=0, state=0, compute=0, draft=0),),
        doubts=doubts,
    )


def taking(chat: Estimate | None, drafter: Estimate | None) -> Plan:
    memory = {CHAT.name: chat, DRAFTER.name: drafter}
    instances = tuple(each.model_copy(update={"memory": memory[each.name]}) for each in PLAN.instances)
    return PLAN.model_copy(update={"instances": instances})


def of(plan: Plan, like: InstancePlan) -> InstancePlan:
    return next(each for each in plan.instances if each.name == like.name)


def host(plan: Plan = PLAN) -> HostState:
    """Both serve, each as something else than planned."""
    chat, drafter = of(plan, CHAT), of(plan, DRAFTER)
    return host_with(
        units={CHAT.service: UnitState("active", "enabled", False, "run", "other", chat.endpoint.port)},
        containers={DRAFTER.service: ContainerState("running", "healthy", "id", "other", drafter.endpoint.port)},
    )


@pytest.mark.parametrize(
    ("chat", "drafter", "fits"),
    [
        (held(3 * GIB), held(1 * GIB), True),
        # Twice 3, 1, and one for the system.
        (held(3 * GIB), held(1 * GIB + 1), False),
        (held(GIB, 8 * GIB, "who knows"), held(GIB), False),
        (None, held(GIB), False),
        # What another takes is not known.
        (held(GIB), None, False),
    ],
)
def test_two_must_fit_by_the_plan(chat: Estimate | None, drafter: Estimate | None, fits: bool) -> None:
    plan = taking(chat, drafter)
    assert fits_side_by_side(plan, of(plan, CHAT), host()) is fits


@pytest.mark.parametrize("like", [CHAT, DRAFTER])
def test_only_what_serves_as_something_else_is_replaced_so(like: InstancePlan) -> None:
    plan = taking(held(GIB), held(GIB))
    instance, state = of(plan, like), host()
    assert fits_side_by_side(plan, instance, state)
    assert not fits_side_by_side(plan, instance, HostState())
    hanging = updated(state, serving={like.service: ServingState(hangs="it does not respond")})
    assert not fits_side_by_side(plan, instance, hanging)
    untried = updated(state, serving={like.service: ServingState(untried=("other",))})
    assert not fits_side_by_side(plan, instance, untried)
    units = {name: replace(each, port=1) for name, each in state.servers.units.items()}
    containers = {name: replace(each, port=1) for name, each in state.servers.containers.items()}
    assert not fits_side_by_side(plan, instance, edited(state, units=units, containers=containers))
    same = edited(
        state,
        units={name: replace(each, spec=instance.spec) for name, each in state.servers.units.items()},
        containers={name: replace(each, spec=instance.spec) for name, each in state.servers.containers.items()},
    )
    assert not fits_side_by_side(plan, instance, same)


@pytest.mark.parametrize("like", [CHAT, DRAFTER])
def test_it_differs_by_its_name_and_its_port_alone(like: InstancePlan) -> None:
    server = candidate_spec(like.server, 61000)
    text, other = (BACKENDS[like.backend](each, like.spec).text for each in (like.server, server))
    was = str(like.endpoint.port)
    assert other.replace("61000", was).replace(candidate_service(like.name), like.service) == text
    assert was not in other


def test_its_port_is_no_declared_one() -> None:
    plan = taking(held(GIB), held(GIB))
    first = candidate_input(plan, of(plan, CHAT)).port
    taken = CHAT.server.model_copy(update={"endpoint": CHAT.endpoint.model_copy(update={"port": first})})
    plan = PLAN.model_copy(update={"instances": (of(plan, CHAT).model_copy(update={"server": taken}),)})
    assert candidate_input(plan, plan.instances[0]).port == first + 1


@pytest.mark.parametrize("like", [CHAT, DRAFTER])
def test_the_input_of_a_candidate(like: InstancePlan) -> None:
    plan = taking(held(3 * GIB), held(GIB))
    instance = of(plan, like)
    candidate = candidate_input(plan, instance)
    assert instance.memory
    assert candidate.ram == instance.memory.holds[0].total + SYSTEM_RAM
    assert candidate.gpus == ()
    assert candidate.rule == redirect_rule(instance.endpoint.listen, instance.endpoint.port, candidate.port)
    assert (candidate.listen, candidate.group) == (instance.endpoint.listen, instance.server.user)
    # Gone with the next boot, with nothing of a key in it.
    folders = ("/run/systemd/system/", "/run/llamaherd/beside/")
    assert all(each.path.startswith(folders) and each.owner == "root" for each in candidate.files)
    assert len(candidate.files) == (1 if like is CHAT else 2)
    assert str(candidate.question["url"]).startswith(f"http://127.0.0.1:{candidate.port}/")
    assert candidate.question["floor"] == 0, "another server is at work side by side with it"


def test_no_candidate_where_a_key_is_written() -> None:
    """Two servers would read it from the same place."""
    plan = taking(held(GIB), held(GIB))
    instance, state = of(plan, CHAT), parse_state(converged(PLAN, {"chat": KEY}))
    candidate = candidate_input(plan, instance)
    state = updated(state, units={CHAT.service: replace(state.servers.units[CHAT.service], spec="other")})
    (change,) = server_changes(instance, state, KEY, candidate=candidate)
    assert switch_of(change).candidate == candidate
    (change,) = server_changes(instance, state, "another key", candidate=candidate)
    assert switch_of(change).candidate is None


@pytest.mark.parametrize(
    ("listen", "rule"),
    [
        ("127.0.0.1", "ip daddr 127.0.0.1 tcp dport 8080 {syn} dnat ip to 127.0.0.1:61000"),
        ("fd00::20", "ip6 daddr fd00::20 tcp dport 8080 {syn} dnat ip6 to [fd00::20]:61000"),
        ("0.0.0.0", "meta nfproto ipv4 fib daddr type local tcp dport 8080 {syn} redirect to :61000"),
        ("::", "fib daddr type local tcp dport 8080 {syn} redirect to :61000"),
    ],
)
def test_new_connections_alone_are_led_to_it(listen: str, rule: str) -> None:
    """Of those that there are, the middle of a stream would arrive there."""
    assert redirect_rule(listen, 8080, 61000) == rule.format(syn="tcp flags & (fin | syn | rst | ack) == syn")
