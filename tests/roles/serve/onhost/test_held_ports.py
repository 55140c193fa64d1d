"""Who holds ports that servers are planned to have: by a real socket, and by a played /proc."""

from __future__ import annotations

import os
import socket
from pathlib import Path

import pytest

from llamaherd.onhost.servers import Holder
from llamaherd.onhost.system import Ended, Host, UnknownStateError
from roles.serve.onhost.inspection import inspect_ports
from roles.serve.onhost.model import UsedPort
from tests.support.inspected_host import InspectedHost
from tests.support.played_host import File

HEAD = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n"
INSIDE = "d7" * 32


@pytest.mark.parametrize("address", ["127.0.0.1", "::1"])
def test_a_real_socket(address: str) -> None:
    with socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET) as held:
        held.bind((address, 0))
        held.listen()
        port = held.getsockname()[1]
        host = Host(lambda _: None, lambda _: None)
        (found,) = inspect_ports([port], (), host, docker=False)
        assert inspect_ports([port], {port}, host, docker=False) == []
    program = Path("/proc/self/comm").read_text(encoding="utf-8").strip()
    assert found == UsedPort(port, "", Holder(os.getpid(), program, ""))


def holding(pid: int = 7, *, cgroup: str = "0::/user.slice", program: str = "nc") -> InspectedHost:
    """Return a host where a process listens at port 8080."""
    host = InspectedHost()
    host.files["/proc/net/tcp"] = File(
        f"{HEAD}   0: 0100007F:1F90 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 4711 1\n"
        "   1: 0100007F:1F91 00000000:0000 01 00000000:00000000 00:00000000 00000000     0        0 4712 1\n"
        "broken line\n"
    )
    host.process(pid, program)
    host.files[f"/proc/{pid}/comm"] = File(f"{program}\n")
    host.files[f"/proc/{pid}/cgroup"] = File(f"{cgroup}\n")
    host.links = {f"/proc/{pid}/fd/0": "/dev/null", f"/proc/{pid}/fd/3": "socket:[4711]"}
    return host


def test_a_connection_is_no_listener_and_another_port_is_not_asked_for() -> None:
    host = holding()
    assert inspect_ports([8081, 9090], (), host, docker=True) == []
    assert host.ran == []


def test_a_program_of_others() -> None:
    host = holding(program="n\tc d")
    host.answers["docker ps"] = Ended(0, "")
    assert inspect_ports([8080], (), host, docker=True) == [UsedPort(8080, "", Holder(7, "nc d", ""))]
    assert host.ran == [["docker", "ps", "--filter", "publish=8080", "--format", "{{.Names}}"]]


def test_of_processes_that_share_a_socket_the_first_holds_it() -> None:
    host = holding(17)
    host.process(9, "sshd")
    host.links["/proc/9/fd/5"] = "socket:[4711]"
    (found,) = inspect_ports([8080], (), host, docker=False)
    assert found.holder.pid == 9


def test_a_process_that_nobody_has() -> None:
    host = holding()
    host.links.clear()
    assert inspect_ports([8080], (), host, docker=True) == []


@pytest.mark.parametrize("by", ["environment", "file", ""])
def test_a_process_in_the_control_group_of_a_unit_of_ours(by: str) -> None:
    host = holding(cgroup="0::/system.slice/llama-chat.service/inner")
    if by == "environment":
        host.process(7, "llama-server", LLAMAHERD_SPEC="0a1b")
        host.files["/proc/7/cgroup"] = File("12:pids:/other\n0::/system.slice/llama-chat.service\n")
    if by == "file":
        host.files["/etc/systemd/system/llama-chat.service"] = File("# Written by llamaherd\n[Unit]\n")
    (found,) = inspect_ports([8080], (), host, docker=False)
    assert found.unit == ("llama-chat" if by else "")


def test_a_container_by_the_process_in_it() -> None:
    host = holding(cgroup=f"0::/system.slice/docker-{INSIDE}.scope")
    host.answers["docker inspect"] = Ended(0, "/web\n")
    (found,) = inspect_ports([8080], (), host, docker=True)
    assert found.holder.container == "web"
    assert host.ran[-1][-1] == INSIDE


def test_a_container_by_the_port_that_it_publishes() -> None:
    host = holding(program="docker-proxy")
    host.answers["docker ps"] = Ended(0, "web\nother\n")
    (found,) = inspect_ports([8080], (), host, docker=True)
    assert found.holder == Holder(7, "docker-proxy", "web")


@pytest.mark.parametrize(
    ("cgroup", "program", "unknown"),
    [
        ("0::/user.slice", "docker-proxy", True),
        (f"0::/docker/{INSIDE}", "x", True),
        (f"0::/system.slice/docker-{INSIDE}.scope", "x", True),
        (f"0::/lxc/{INSIDE}", "x", False),
        ("0::/docker/?", "x", False),
    ],
)
def test_where_docker_does_not_respond_it_may_be_one_of_ours(cgroup: str, program: str, unknown: bool) -> None:
    host = holding(cgroup=cgroup, program=program)
    if unknown:
        with pytest.raises(UnknownStateError, match="Docker"):
            inspect_ports([8080], (), host, docker=False)
    else:
        assert inspect_ports([8080], (), host, docker=False)[0].holder.container == ""


def test_a_docker_that_stops_to_respond() -> None:
    host = holding()
    host.answers["docker ps"] = Ended(124)
    with pytest.raises(UnknownStateError, match="Docker"):
        inspect_ports([8080], (), host, docker=True)
