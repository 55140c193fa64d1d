"""What is tried beside what serves: where both fit, by the plan and by a host. nvidia-smi and nft are fakes."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from llamaherd.backends import BACKENDS
from llamaherd.host.serving import ContainerState, ServingState, UnitState
from llamaherd.host.state import HostState
from llamaherd.layout import beside_of
from llamaherd.plan import Estimate, Holds, InstancePlan, Plan
from llamaherd.resources import ROOT
from roles.serve.beside import beside, fits_beside, lead, moved
from tests.support.rigs import cpu_rig, planned

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
    return HostState(
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
    assert fits_beside(plan, of(plan, CHAT), host()) is fits


@pytest.mark.parametrize("like", [CHAT, DRAFTER])
def test_only_what_serves_as_something_else_is_replaced_so(like: InstancePlan) -> None:
    plan = taking(held(GIB), held(GIB))
    instance, state = of(plan, like), host()
    assert fits_beside(plan, instance, state)
    assert not fits_beside(plan, instance, HostState())
    hanging = replace(state, serving={like.service: ServingState(hangs="it answers nobody")})
    assert not fits_beside(plan, instance, hanging)
    untried = replace(state, serving={like.service: ServingState(untried=["other"])})
    assert not fits_beside(plan, instance, untried)
    units = {name: replace(each, port=1) for name, each in state.units.items()}
    containers = {name: replace(each, port=1) for name, each in state.containers.items()}
    assert not fits_beside(plan, instance, replace(state, units=units, containers=containers))
    same = replace(
        state,
        units={name: replace(each, spec=instance.spec) for name, each in state.units.items()},
        containers={name: replace(each, spec=instance.spec) for name, each in state.containers.items()},
    )
    assert not fits_beside(plan, instance, same)


@pytest.mark.parametrize("like", [CHAT, DRAFTER])
def test_it_differs_by_its_name_and_its_port_alone(like: InstancePlan) -> None:
    server = moved(like.server, 61000)
    text, other = (BACKENDS[like.backend](each, like.spec).text for each in (like.server, server))
    was = str(like.endpoint.port)
    assert other.replace("61000", was).replace(beside_of(like.name), like.service) == text
    assert was not in other


def test_its_port_is_no_declared_one() -> None:
    first = beside(PLAN, CHAT)["beside_port"]
    taken = CHAT.server.model_copy(update={"endpoint": CHAT.endpoint.model_copy(update={"port": first})})
    plan = PLAN.model_copy(update={"instances": (CHAT.model_copy(update={"server": taken}),)})
    assert beside(plan, plan.instances[0])["beside_port"] == first + 1


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
    assert lead(listen, 8080, 61000) == rule.format(syn="tcp flags & (fin | syn | rst | ack) == syn")


ASKED = {"ram": 1 << 20, "gpus": [], "listen": "127.0.0.1", "port": 0, "for_others": False}


@pytest.fixture
def room(tmp_path: Path) -> Path:
    """A folder of programs, with an nft that says nothing."""
    nft = tmp_path / "nft"
    nft.write_text('#!/bin/sh\nprintf %s "$RULES"\n')
    nft.chmod(0o755)
    return tmp_path


def lacks(room: Path, rules: str = "", smi: str = "", **asked: object) -> str:
    """What the script says is lacking."""
    (room / "nvidia-smi").write_text(f"#!/bin/sh\n{smi}\n")
    (room / "nvidia-smi").chmod(0o755)
    program = (ROOT / "templates" / "serve" / "beside-room.py").read_text()
    assert '"/usr/sbin/nft"' in program
    ended = subprocess.run(
        [sys.executable, "-I", "-", json.dumps(ASKED | asked)],
        input=program.replace("/usr/sbin/nft", str(room / "nft")),
        env={"PATH": f"{room}:{os.environ['PATH']}", "RULES": rules},
        capture_output=True,
        text=True,
        check=False,
    )
    assert ended.stderr == ""
    assert ended.returncode == bool(ended.stdout)
    return ended.stdout


def test_a_host_has_room(room: Path) -> None:
    assert lacks(room) == ""


def test_a_host_without_nft(room: Path) -> None:
    (room / "nft").unlink()
    assert lacks(room) == "there is no nft (package nftables) to lead connections to it"


def test_a_firewall_knows_the_declared_port_alone(room: Path) -> None:
    rules = "table inet filter { chain in { type filter hook input priority 0; policy drop; } }"
    assert lacks(room, rules, for_others=True) == "a firewall here filters by port"
    assert lacks(room, rules) == ""


def test_a_port_that_somebody_has(room: Path) -> None:
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        held.listen()
        port = held.getsockname()[1]
        assert lacks(room, port=port) == f"its port {port} cannot be had (Address already in use)"


def test_ram_that_is_not_free(room: Path) -> None:
    assert "of RAM are free, and it takes 1125899.9 GB with what the system needs" in lacks(room, ram=1 << 50)


@pytest.mark.parametrize(
    ("smi", "why"),
    [
        ("echo '00000000:01:00.0, GPU-a, 24000'", ""),
        ("echo '00000000:01:00.0, GPU-a, 3000'", "GPU big has 3.1 GB free, and it takes 8.0 GB"),
        ("exit 9", "this host does not say (Command "),
        ("echo '00000000:01:00.0, GPU-a, [N/A]'", "this host does not say (invalid literal "),
        ("echo '00000000:02:00.0, GPU-b, 24000'", "this host does not say ("),
    ],
)
def test_a_gpu_must_surely_have_room(room: Path, smi: str, why: str) -> None:
    said = lacks(room, smi=smi, gpus=[{"name": "big", "at": "GPU-a", "need": 8_000_000_000}])
    assert said.startswith(why)
    assert bool(said) == bool(why)
