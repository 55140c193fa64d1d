"""What others than its own host can reach on it, beside what is declared for them. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator

from llamaherd.host.answers import Answers
from llamaherd.layout import EXPORTER_UNIT
from llamaherd.plan import Plan
from llamaherd.role.report import Check
from llamaherd.text.numbers import parse_whole, whole

_WAY_IN = frozenset({"sshd", "sshd-session"})
_SSH_UNITS = ("ssh.socket", "ssh.service", "sshd.service", "sshd.socket")
_OURS = "llamaherd-share.service"
"""What lends models to a neighbour."""
_PROXY = "docker-proxy"
"""What listens for a container: Docker itself says for which."""
_PUBLISHED = re.compile(r"(?P<address>\S+):(?P<port>[0-9-]+)->")
_LOOPBACK = ("127.", "[::1]")


def exposed(plan: Plan, answers: Answers) -> Iterator[Check]:
    """Who listens for others: nothing fails by it, for a machine may serve more than models; but it is said."""
    if ("listens", "") not in answers:
        return
    open_ = _declared(plan)
    told = plan.monitoring is not None and plan.monitoring.exporter is not None
    fine: list[str] = []
    strange: list[str] = []
    for line in filter(None, answers["listens", ""].split("\n")):
        port, pid, program, of = line.split(" ", 3)
        if whole(port) in open_:
            fine.append(f"{open_[parse_whole(port)]} ({port})")
        elif program in _WAY_IN or of in _SSH_UNITS:
            fine.append(f"ssh ({port})")
        elif of == _OURS:
            fine.append(f"models for neighbours ({port})")
        elif told and of == EXPORTER_UNIT:
            fine.append(f"figures of this host ({port})")
        elif program != _PROXY:
            strange.append(f"{_named(program, pid, of)} listens at {port} for others")
    strange += _published(answers.get(("publishes", ""), ""), set(open_))
    detail = "; ".join(dict.fromkeys(strange)) + ": not declared" if strange else ", ".join(dict.fromkeys(fine))
    yield Check("exposed", True, detail or "nothing listens for others", doubt=bool(strange))


def _declared(plan: Plan) -> dict[int, str]:
    """Ports that are open to others, and what is there. Figures are for the rig that watches alone."""
    found = {each.endpoint.port: each.service for each in plan.instances if each.endpoint.for_others}
    if plan.gateway and plan.gateway.for_others:
        found[plan.gateway.port] = "the gateway"
    if plan.gateway and plan.gateway.figures and plan.gateway.figures.asker:
        found[plan.gateway.figures.port] = "figures of the gateway"
    return found


def _named(program: str, pid: str, of: str) -> str:
    if program == "-":
        return "a program that does not show"
    return f"{program} ({of})" if of.endswith(".service") else f"{program} (process {pid})"


def _published(said: str, declared: set[int]) -> Iterator[str]:
    """Containers of others, or at other ports: what Docker publishes goes past the firewall of ufw and firewalld."""
    for line in filter(None, said.split("\n")):
        name, _, ports = line.partition(" ")
        found = (match for match in _PUBLISHED.finditer(ports) if not match["address"].startswith(_LOOPBACK))
        open_ = dict.fromkeys(match["port"] for match in found)
        if strange := [port for port in open_ if whole(port) not in declared]:
            yield f"container {name} publishes {', '.join(strange)}, past most firewalls"
