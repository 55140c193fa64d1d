"""Who listens on a host for others, and who holds a port: by a real socket, and by a played /proc."""

from __future__ import annotations

import os
import socket
from pathlib import Path

import pytest

from llamaherd.onhost.system import Host
from roles.serve.onhost.model import Listening
from roles.serve.onhost.verification import find_holder, find_listening
from tests.support.played_host import File
from tests.support.verified_host import VerifiedHost


def host(*sockets: str, table: str = "tcp") -> VerifiedHost:
    """Return a host where sshd has the socket 4711 open."""
    each = VerifiedHost()
    each.listens(*sockets, table=table)
    each.process(7, "sshd")
    each.files |= {"/proc/7/comm": File("sshd\n"), "/proc/7/cgroup": File("0::/system.slice/ssh.service\n")}
    each.opens(7, "/dev/null", "socket:[4711]")
    return each


@pytest.mark.parametrize(("address", "others"), [("0.0.0.0", True), ("127.0.0.1", False), ("::", True), ("::1", False)])
def test_a_real_socket(address: str, others: bool) -> None:
    system = Host(lambda _: None, lambda _: None)
    with socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET) as held:
        held.bind((address, 0))
        held.listen()
        port = held.getsockname()[1]
        found = [each for each in find_listening(system) if each.port == port]
        holder = find_holder(port, system)
    program = Path("/proc/self/comm").read_text(encoding="utf-8").strip()
    assert [(each.pid, each.program) for each in found] == [(os.getpid(), program)] * others
    assert holder == f"{program} (process {os.getpid()})"
    assert find_holder(port, system) == ""


@pytest.mark.parametrize(
    ("table", "address", "others"),
    [
        ("tcp", "00000000", True),
        ("tcp", "0200000A", True),
        ("tcp", "0100007F", False),
        ("tcp", "0503007F", False),
        ("tcp6", "00000000000000000000000000000000", True),
        ("tcp6", "00000000000000000000000001000000", False),
        ("tcp6", "0000000000000000FFFF00000100007F", False),
        ("tcp6", "0000000000000000FFFF00000200000A", True),
    ],
)
def test_loopback_is_for_no_others(table: str, address: str, others: bool) -> None:
    found = find_listening(host(f"{address}:0016 4711", table=table))
    assert found == (Listening(22, 7, "sshd", "ssh.service"),) * others


@pytest.mark.parametrize(
    ("group", "unit"),
    [
        ("0::/system.slice/ssh.service\n", "ssh.service"),
        ("12:pids:/x\n1:name=systemd:/system.slice/ssh.service\n", "ssh.service"),
        ("0::/user.slice/user-1000.slice/session-3.scope\n", "session-3.scope"),
        ("0::/\n", ""),
        ("", ""),
    ],
)
def test_the_unit_of_a_process(group: str, unit: str) -> None:
    each = host("00000000:0016 4711")
    each.files["/proc/7/cgroup"] = File(group)
    assert [found.unit for found in find_listening(each)] == [unit]


def test_a_socket_without_a_process_is_listed_and_holds_no_name() -> None:
    each = host("00000000:0009 1")
    assert find_listening(each) == (Listening(9, 0, "", ""),)
    assert find_holder(9, each) == ""


def test_a_process_is_listed_once_for_a_port() -> None:
    each = host("00000000:0016 4711", "0200000A:0016 4712")
    each.opens(7, "socket:[4711]", "socket:[4712]")
    assert [found.port for found in find_listening(each)] == [22]


def test_a_connection_is_no_listener() -> None:
    each = host("00000000:0016 4711")
    table = each.files["/proc/net/tcp"]
    table.text = table.text.replace(" 0A ", " 01 ") + "broken line\n"
    assert find_listening(each) == ()


def test_the_list_is_bounded() -> None:
    every = find_listening(host(*(f"00000000:{port:04X} {port}" for port in range(1000, 2000))))
    assert (len(every), every[0].port) == (100, 1000)


def test_a_host_without_these_tables_has_no_listeners() -> None:
    assert find_listening(VerifiedHost()) == ()
