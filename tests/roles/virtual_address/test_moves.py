"""Two hosts with one address: each a network namespace with the real HAProxy and the real keepalived, and a client on
the wire between them. What is not real is systemd: tests begin and end both as its unit does.
"""

from __future__ import annotations

import itertools
import os
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path

import pytest

from llamaherd.layout import ADDRESS_RUN, ASK_USER
from llamaherd.plan import Plan
from tests.support.gateway import HAPROXY, KEYS, gateway_of, keys_of, until, write_files
from tests.support.stores import needs_root
from tests.support.virtual_address import (
    ADDRESS,
    KEEPALIVED,
    OVER_IPV6,
    OWN,
    SHARED,
    shared_by,
    sharing_plans,
)

_NUMBERS = itertools.count()
SOON = 5.0
"""Seconds in which an address has moved."""
PAUSE = 0.2
"""Seconds between two inspections of the hosts: each starts five processes."""


def _namespaces() -> bool:
    """Whether this machine lets us make hosts of our own."""
    probe = ["unshare", "-n", "ip", "link", "add", "herd0", "type", "veth", "peer", "name", "herd1"]
    with suppress(OSError):
        return subprocess.run(probe, capture_output=True, check=False).returncode == 0
    return False


needs_keepalived = pytest.mark.skipif(KEEPALIVED is None, reason="keepalived is not installed")
pytestmark = [
    needs_root,
    needs_keepalived,
    pytest.mark.skipif(HAPROXY is None, reason="HAProxy is not installed"),
    pytest.mark.skipif(not _namespaces(), reason="no network namespaces here"),
]


def ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True, capture_output=True)


@dataclass
class Node:
    """A host: its namespace, its files, and what runs on it."""

    space: str
    folder: Path
    plan: Plan
    gateway: subprocess.Popen[bytes] | None = None
    keepalived: subprocess.Popen[bytes] | None = None

    def inside(self, *words: str, check: bool = True) -> str:
        command = ["ip", "netns", "exec", self.space, *words]
        return subprocess.run(command, check=check, capture_output=True, text=True, timeout=30).stdout

    def program(self, *words: str, check: bool = True) -> str:
        """What our program on the host prints."""
        return self.inside("sh", str(self.folder / "virtual-address"), *words, check=check).strip()

    @property
    def has(self) -> bool:
        return self.program("where").endswith(" here")

    def begin(self) -> None:
        self.begin_gateway()
        self.begin_keepalived()

    def _run(self, name: str, *words: str) -> subprocess.Popen[bytes]:
        with (self.folder / f"{name}.log").open("ab") as log:
            command = ["ip", "netns", "exec", self.space, *words]
            return subprocess.Popen(command, stdout=log, stderr=log, start_new_session=True)

    def begin_gateway(self) -> None:
        assert HAPROXY
        self.gateway = self._run("haproxy", HAPROXY, "-C", str(self.folder), "-f", str(self.folder / "haproxy.cfg"))

    def begin_keepalived(self) -> None:
        """As the unit does, but for its user: the one that asks is no account of this machine."""
        shared, folder = shared_by(self.plan), self.folder
        asking = shared.config.text.replace(f"script_user {ASK_USER}\n", "script_user nobody\n")
        (folder / "keepalived.conf").write_text(asking)
        self.program("configure", str(folder / "keepalived.conf"), str(folder / "whole.conf"))
        (started,) = [line for line in shared.unit.text.splitlines() if line.startswith("ExecStart=")]
        words = started.replace(f"{ADDRESS_RUN}/keepalived.conf", str(folder / "whole.conf"))
        words = words.replace(str(ADDRESS_RUN), str(folder)).removeprefix("ExecStart=/usr/sbin/keepalived ")
        assert KEEPALIVED
        self.keepalived = self._run("keepalived", KEEPALIVED, *words.split())

    def end(self, process: subprocess.Popen[bytes] | None, by: signal.Signals) -> None:
        """End it with all that it began, as systemd ends a unit; then what the unit does."""
        if process is None or process.poll() is not None:
            return
        if by == signal.SIGKILL:
            os.killpg(process.pid, by)
        else:
            process.send_signal(by)
        process.wait(10)

    def end_keepalived(self, by: signal.Signals = signal.SIGTERM) -> None:
        self.end(self.keepalived, by)
        if by == signal.SIGKILL:
            # What keepalived began has sessions of its own.
            for name in ("vrrp.pid", "keepalived.pid"):
                with suppress(OSError, ValueError):
                    os.kill(int((self.folder / name).read_text()), signal.SIGKILL)
        self.program("leave", check=False)

    def stop(self) -> None:
        """End all of it."""
        if self.keepalived:
            self.end_keepalived()
        self.end(self.gateway, signal.SIGKILL)


@dataclass(frozen=True)
class Lan:
    """The two hosts, and the client between them."""

    first: Node
    second: Node
    client: str
    address: str

    @property
    def owners(self) -> list[Node]:
        return [each for each in (self.first, self.second) if each.has]

    def answered(self) -> bool:
        """Whether a user's request to the address is answered."""
        host = f"[{self.address}]" if ":" in self.address else self.address
        words = ["curl", "-s", "-f", "--max-time", "1", "-H", f"Authorization: Bearer {KEYS['tom']}"]
        command = ["ip", "netns", "exec", self.client, *words, f"http://{host}:8000/v1/models"]
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=30)
        return done.returncode == 0 and '"chat"' in done.stdout

    def settled(self, owner: Node, seconds: float = SOON) -> float:
        """Seconds until it answers there, and nowhere else."""
        began = time.monotonic()
        until(lambda: self.owners == [owner] and self.answered(), seconds, PAUSE)
        return time.monotonic() - began


def _wire(stack: ExitStack, own: dict[str, str], client: str) -> list[str]:
    """A client's namespace with a bridge, and one for each host."""
    name = f"herd{os.getpid()}n{next(_NUMBERS)}"
    spaces = [f"{name}{each}" for each in ("lan", *own)]
    for space in spaces:
        ip("netns", "add", space)
        stack.callback(subprocess.run, ["ip", "netns", "del", space], check=False)
        ip("-n", space, "link", "set", "lo", "up")
    length = "64" if ":" in client else "24"
    more = ["nodad"] if ":" in client else []
    ip("-n", spaces[0], "link", "add", "br0", "type", "bridge")
    ip("-n", spaces[0], "link", "set", "br0", "up")
    ip("-n", spaces[0], "address", "add", f"{client}/{length}", "dev", "br0", *more)
    for space, (host, address) in zip(spaces[1:], own.items(), strict=True):
        ip("-n", spaces[0], "link", "add", host, "type", "veth", "peer", "name", "lan0", "netns", space)
        ip("-n", spaces[0], "link", "set", host, "master", "br0", "up")
        ip("-n", space, "address", "add", f"{address}/{length}", "dev", "lan0", *more)
        ip("-n", space, "link", "set", "lan0", "up")
    return spaces


def _made(tmp_path: Path, stack: ExitStack, text: str, own: dict[str, str], address: str, client: str) -> Lan:
    spaces = _wire(stack, own, client)
    nodes = []
    for space, (name, plan) in zip(spaces[1:], sharing_plans(text, own).items(), strict=True):
        folder = tmp_path / name
        folder.mkdir()
        write_files(gateway_of(plan), keys_of(gateway_of(plan)), folder)
        (folder / "virtual-address").write_text(shared_by(plan).program.text)
        node = Node(space, folder, plan)
        nodes.append(node)
        stack.callback(node.stop)
    first, second = nodes
    return Lan(first, second, spaces[0], address)


@pytest.fixture
def lan(tmp_path: Path) -> Iterator[Lan]:
    """Both run, and the first one has the address."""
    with ExitStack() as stack:
        made = _made(tmp_path, stack, SHARED, OWN, ADDRESS, "10.77.0.9")
        made.first.begin()
        made.settled(made.first, 15)
        made.second.begin()
        time.sleep(4)
        assert made.owners == [made.first], "who comes later takes nothing away"
        yield made


def test_the_address_moves_when_a_gateway_is_killed_and_stays_when_it_is_back(lan: Lan) -> None:
    lan.first.end(lan.first.gateway, signal.SIGKILL)
    assert lan.settled(lan.second) < SOON
    lan.first.begin_gateway()
    for _ in range(6):
        time.sleep(1)
        assert lan.owners == [lan.second], "a move would end streams for nothing"
        assert lan.answered()
    lan.second.end_keepalived()
    assert lan.settled(lan.first) < SOON
    log = (lan.second.folder / "haproxy.log").read_text()
    assert "user=tom" in log
    assert "user=-" not in log, "that it is asked whether it answers is in no log"


def test_the_address_moves_when_a_host_is_gone_and_when_it_is_back_one_has_it(lan: Lan) -> None:
    ip("-n", lan.first.space, "link", "set", "lan0", "down")
    until(lambda: lan.second.has and lan.answered(), SOON, PAUSE)
    ip("-n", lan.first.space, "link", "set", "lan0", "up")
    until(lambda: lan.owners == [lan.second], 10, PAUSE)
    time.sleep(3)
    assert lan.owners == [lan.second]
    assert lan.answered()


def test_a_gateway_that_stands_still_loses_it(lan: Lan) -> None:
    assert lan.first.gateway
    lan.first.gateway.send_signal(signal.SIGSTOP)
    assert lan.settled(lan.second, 15) < 12


def test_what_keepalived_could_not_let_go_of_is_taken_from_the_host(lan: Lan) -> None:
    lan.first.end_keepalived(signal.SIGKILL)
    assert not lan.first.has
    assert lan.settled(lan.second) < SOON
    lan.first.begin_keepalived()
    time.sleep(5)
    assert lan.owners == [lan.second]


def test_where_no_gateway_answers_nobody_has_it(lan: Lan) -> None:
    for node in (lan.first, lan.second):
        node.end(node.gateway, signal.SIGKILL)
    until(lambda: not lan.owners, 10, PAUSE)
    lan.second.begin_gateway()
    assert lan.settled(lan.second, 10) < 10


def test_it_moves_over_ipv6_as_well(tmp_path: Path) -> None:
    address, own = OVER_IPV6
    with ExitStack() as stack:
        text = SHARED.replace(ADDRESS, address).replace("0.0.0.0", "'::'")
        made = _made(tmp_path, stack, text, own, address, "fd00:77::9")
        made.first.begin()
        made.settled(made.first, 15)
        made.second.begin()
        time.sleep(4)
        assert made.owners == [made.first]
        made.first.end(made.first.gateway, signal.SIGKILL)
        assert made.settled(made.second) < SOON


@pytest.mark.parametrize("rig", list(OWN))
def test_keepalived_takes_the_configuration(tmp_path: Path, rig: str) -> None:
    """As it is tried on a host: by root, since 2.2.7 kills itself otherwise."""
    with ExitStack() as stack:
        spaces = dict(zip(OWN, _wire(stack, OWN, "10.77.0.9")[1:], strict=True))
        node = Node(spaces[rig], tmp_path, sharing_plans()[rig])
        shared = shared_by(node.plan)
        (tmp_path / "virtual-address").write_text(shared.program.text)
        (tmp_path / "keepalived.conf").write_text(shared.config.text)
        node.program("configure", str(tmp_path / "keepalived.conf"), str(tmp_path / "whole.conf"))
        text = (tmp_path / "whole.conf").read_text()
        assert "interface lan0\n" in text
        assert "@" not in text
        (tmp_path / "whole.conf").write_text(text.replace(f"script_user {ASK_USER}\n", "script_user root\n"))
        assert KEEPALIVED
        tried = [KEEPALIVED, "-t", "-f", str(tmp_path / "whole.conf")]
        done = subprocess.run(["ip", "netns", "exec", node.space, *tried], capture_output=True, text=True, check=False)
        assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_a_host_without_a_way_to_the_other_one_says_so(tmp_path: Path) -> None:
    with ExitStack() as stack:
        (_, space, _) = _wire(stack, OWN, "10.77.0.9")
        node = Node(space, tmp_path, sharing_plans()["box"])
        (tmp_path / "virtual-address").write_text(shared_by(node.plan).program.text)
        (tmp_path / "from").write_text("@INTERFACE@\n")
        ip("-n", space, "address", "flush", "dev", "lan0")
        words = ["sh", str(tmp_path / "virtual-address"), "configure", str(tmp_path / "from"), str(tmp_path / "to")]
        done = subprocess.run(["ip", "netns", "exec", space, *words], capture_output=True, text=True, check=False)
        assert (done.returncode, done.stderr) == (1, "no network of this host has 10.77.0.2 in it\n")
        assert not (tmp_path / "to").exists()
