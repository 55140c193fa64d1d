"""What others can reach on a host, as `herd verify` says it."""

from __future__ import annotations

import pytest

from llamaherd.plan import TextFile
from llamaherd.plan.fleet import ExporterPlan, GatewayFigures, MonitoringPlan
from roles.serve.onhost.model import Listening, VerifiedServers
from roles.serve.verify import exposure_checks
from tests.support.gateway import gateway_of, gateway_plans
from tests.support.rigs import cpu_rig, planned

OPEN = planned(cpu_rig(), {"instances/chat/listen": "0.0.0.0"})
SHUT = planned(cpu_rig())
SSH = "22 7 sshd ssh.service"


def listening(*lines: str) -> tuple[Listening, ...]:
    """Return what listens by lines of port, process, program, and unit."""
    rows = (line.split(" ") for line in lines)
    return tuple(Listening(int(port), int(pid), program, unit) for port, pid, program, unit in rows)


def said(*lines: str, publishes: str = "", shut: bool = False, unknown: tuple[str, ...] = ()) -> tuple[bool, str]:
    """Whether it is in doubt, and what is said."""
    published = tuple(filter(None, publishes.split("\n")))
    found = VerifiedServers(listening=listening(*lines), published=published, unknown=unknown)
    (check,) = exposure_checks(SHUT if shut else OPEN, found)
    assert check.ok
    return check.doubt, check.detail


def test_what_is_declared() -> None:
    lines = (
        SSH,
        "2222 1 systemd ssh.socket",
        "8080 70 llama-server llama-chat.service",
        "8970 9 x llamaherd-share.service",
    )
    assert said(*lines) == (False, "ssh (22), ssh (2222), llama-chat (8080), models for peers (8970)")


def test_a_gateway_for_others_is_declared_and_one_for_its_own_host_is_not() -> None:
    lan, _ = gateway_plans()
    alone = lan.model_copy(update={"gateway": gateway_of(lan).model_copy(update={"listen": "127.0.0.1"})})
    found = VerifiedServers(listening=listening("8000 70 haproxy llamaherd-gateway.service"))
    assert [(each.doubt, each.detail) for each in exposure_checks(lan, found)] == [(False, "the gateway (8000)")]
    assert [each.doubt for each in exposure_checks(alone, found)] == [True]


def test_figures_for_the_rig_that_watches_are_declared() -> None:
    lines = ("9100 60 prometheus-node llamaherd-exporter.service", "8405 70 haproxy llamaherd-gateway.service")
    found = VerifiedServers(listening=listening(*lines))
    unit = TextFile(path="/etc/systemd/system/llamaherd-exporter.service", text="")
    watched = MonitoringPlan(exporter=ExporterPlan(listen="0.0.0.0", asker="192.0.2.7", unit=unit))
    lan, _ = gateway_plans()
    gateway = gateway_of(lan)
    told = gateway.model_copy(update={"figures": GatewayFigures(listen="0.0.0.0", port=8405, asker="192.0.2.7")})
    both = lan.model_copy(update={"monitoring": watched, "gateway": told})
    (check,) = exposure_checks(both, found)
    assert (check.doubt, check.detail) == (False, "figures of this host (9100), figures of the gateway (8405)")
    (check,) = exposure_checks(lan.model_copy(update={"gateway": gateway}), found)
    assert check.doubt
    assert check.detail.count("listens at") == 2


def test_nothing() -> None:
    assert said() == (False, "nothing listens for others")


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("8000 70 python3 session-3.scope", "python3 (process 70) listens at 8000 for others"),
        ("445 71 smbd smbd.service", "smbd (smbd.service) listens at 445 for others"),
        ("9 0  ", "a program that does not show listens at 9 for others"),
    ],
)
def test_what_is_not_declared(line: str, words: str) -> None:
    assert said(SSH, line) == (True, f"{words}: not declared")


def test_a_server_that_is_declared_for_its_own_host_alone() -> None:
    assert said("8080 70 llama-server llama-chat.service", shut=True)[0]


@pytest.mark.parametrize(
    ("publishes", "doubt"),
    [
        ("web 0.0.0.0:80->80/tcp, [::]:80->80/tcp", True),
        ("web 10.0.0.5:8000-8010->8000-8010/tcp", True),
        ("web 127.0.0.1:80->80/tcp, [::1]:80->80/tcp", False),
        ("web 80/tcp", False),
        ("llama-chat 0.0.0.0:8080->8080/tcp", False),
    ],
)
def test_containers_that_publish(publishes: str, doubt: bool) -> None:
    found = said("80 9 docker-proxy docker.service", publishes=publishes)
    assert found[0] == doubt
    assert ("container web publishes " in found[1]) == doubt


def test_a_host_that_was_not_asked() -> None:
    assert list(exposure_checks(OPEN, VerifiedServers())) == []


def test_what_docker_publishes_is_unknown_where_it_does_not_respond() -> None:
    words = "the ports that it publishes are unknown"
    doubt, detail = said(SSH, unknown=("Docker",))
    assert (doubt, detail) == (True, f"ssh (22); Docker did not respond, so {words}")
    assert said(SSH, unknown=("systemd",)) == (False, "ssh (22)")
