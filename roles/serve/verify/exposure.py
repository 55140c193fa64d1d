"""What others than its own host can reach on it, beside what is declared for them. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from llamaherd.layout import EXPORTER_UNIT
from llamaherd.plan import Plan
from llamaherd.role.report import Check
from llamaherd.text.numbers import whole
from roles.serve.onhost.verified import Found, Listening

_WAY_IN = frozenset({"sshd", "sshd-session"})
_SSH_UNITS = ("ssh.socket", "ssh.service", "sshd.service", "sshd.socket")
_OURS = "llamaherd-share.service"
"""What lends models to a neighbour."""
_PROXY = "docker-proxy"
"""What listens for a container: Docker itself says for which."""
_PUBLISHED = re.compile(r"(?P<address>\S+):(?P<port>[0-9-]+)->")
_LOOPBACK = ("127.", "[::1]")


def exposed(plan: Plan, found: Found) -> Iterator[Check]:
    """Who listens for others: nothing fails by it, for a machine may serve more than models; but it is said."""
    if found.listening is None:
        return
    open_ = _declared(plan)
    told = plan.monitoring is not None and plan.monitoring.exporter is not None
    fine: list[str] = []
    strange: list[str] = []
    for each in found.listening:
        if each.port in open_:
            fine.append(f"{open_[each.port]} ({each.port})")
        elif each.program in _WAY_IN or each.unit in _SSH_UNITS:
            fine.append(f"ssh ({each.port})")
        elif each.unit == _OURS:
            fine.append(f"models for neighbours ({each.port})")
        elif told and each.unit == EXPORTER_UNIT:
            fine.append(f"figures of this host ({each.port})")
        elif each.program != _PROXY:
            strange.append(f"{_named(each)} listens at {each.port} for others")
    strange += _published(found.published, set(open_))
    detail = "; ".join(dict.fromkeys(strange)) + ": not declared" if strange else ", ".join(dict.fromkeys(fine))
    silent = "Docker did not respond, so the ports that it publishes are unknown" if "Docker" in found.unknown else ""
    shown = "; ".join(filter(None, [detail or "nothing listens for others", silent]))
    yield Check("exposed", True, shown, doubt=bool(strange or silent))


def _declared(plan: Plan) -> dict[int, str]:
    """Ports that are open to others, and what is there. Figures are for the rig that watches alone."""
    found = {each.endpoint.port: each.service for each in plan.instances if each.endpoint.for_others}
    if plan.gateway and plan.gateway.for_others:
        found[plan.gateway.port] = "the gateway"
    if plan.gateway and plan.gateway.figures and plan.gateway.figures.asker:
        found[plan.gateway.figures.port] = "figures of the gateway"
    return found


def _named(each: Listening) -> str:
    if not each.program:
        return "a program that does not show"
    return f"{each.program} ({each.unit})" if each.unit.endswith(".service") else f"{each.program} (process {each.pid})"


def _published(lines: Iterable[str], declared: set[int]) -> Iterator[str]:
    """Containers of others, or at other ports: what Docker publishes goes past the firewall of ufw and firewalld."""
    for line in lines:
        name, _, ports = line.partition(" ")
        found = (match for match in _PUBLISHED.finditer(ports) if not match["address"].startswith(_LOOPBACK))
        open_ = dict.fromkeys(match["port"] for match in found)
        if strange := [port for port in open_ if whole(port) not in declared]:
            yield f"container {name} publishes {', '.join(strange)}, past most firewalls"
