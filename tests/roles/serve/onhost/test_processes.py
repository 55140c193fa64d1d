"""Processes by /proc: where they listen, and what they compute. Its files are as kernels write them."""

from __future__ import annotations

import os
import socket
import sys
from ipaddress import ip_address
from pathlib import Path

import pytest

from roles.serve.onhost.processes import ROOT, Load, listening_addresses, process_family, read_load, valid_pids
from roles.serve.onhost.proof import STEPS, SkippedError
from roles.serve.onhost.session import Session
from roles.serve.onhost.wire import DeclaredServer, NotServingError

HEADER = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n"


def word(number: int) -> str:
    """Return 32 bits of an address as this machine's kernel writes them."""
    return f"{int.from_bytes(number.to_bytes(4, 'big'), sys.byteorder):08X}"


def address(text: str) -> str:
    """Return an address as a kernel writes it."""
    packed = ip_address(text).packed
    return "".join(word(int.from_bytes(packed[n : n + 4], "big")) for n in range(0, len(packed), 4))


class Machine:
    """Files of /proc."""

    def __init__(self, root: Path) -> None:
        self.root, self.tables = root, {"tcp": HEADER, "tcp6": HEADER}
        self.in_network("self", "net:[1]")

    def in_network(self, pid: str, name: str) -> None:
        """Let a process be in a network."""
        (self.root / "proc" / pid / "ns").mkdir(parents=True, exist_ok=True)
        (self.root / "proc" / pid / "ns/net").symlink_to(name)

    def runs(self, pid: str, parent: str = "1", network: str = "net:[1]", sockets: tuple[int, ...] = ()) -> None:
        """Run a process with open sockets."""
        self.in_network(pid, network)
        (self.root / "proc" / pid / "stat").write_text(f"{pid} (llama) server) S {parent} 1 1\n")
        (self.root / "proc" / pid / "fd").mkdir()
        for number in sockets:
            (self.root / "proc" / pid / "fd" / str(number)).symlink_to(f"socket:[{number}]")
        (self.root / "proc" / pid / "fd" / "0").symlink_to("/dev/null")

    def has_socket(self, inode: int, where: str, port: int, state: str = "0A") -> None:
        """Add a socket to the kernel's table."""
        table = "tcp6" if ":" in where else "tcp"
        self.tables[table] += f"   0: {address(where)}:{port:04X} 00000000:0000 {state} 0:0 00:0 0 0 0 {inode} 1 0\n"
        (self.root / "proc/self/net").mkdir(exist_ok=True)
        for name, text in self.tables.items():
            (self.root / "proc/self/net" / name).write_text(text)


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


def test_where_a_server_and_its_children_listen(machine: Machine) -> None:
    machine.runs("7", sockets=(11, 12))
    machine.runs("8", parent="7", sockets=(13,))
    machine.runs("9", parent="8", network="net:[2]", sockets=(14,))
    machine.runs("10", sockets=(15,))
    machine.has_socket(11, "127.0.0.1", 8080)
    machine.has_socket(12, "10.0.0.7", 8080, state="01")
    machine.has_socket(13, "fd00::20", 9090)
    machine.has_socket(14, "0.0.0.0", 70)
    machine.has_socket(15, "0.0.0.0", 80)
    found = {(ip_address("127.0.0.1"), 8080), (ip_address("fd00::20"), 9090)}
    assert listening_addresses(["7"], machine.root) == found


@pytest.mark.parametrize(
    ("sockets", "closed", "why"),
    [
        ([("127.0.0.1", 8080)], True, ""),
        ([("127.0.0.1", 8080), ("127.0.0.1", 70), ("::1", 71)], True, ""),
        ([("0.0.0.0", 8080)], True, "it listens at 0.0.0.0, port 8080, and 127.0.0.1 is declared"),
        ([("127.0.0.1", 8080), ("::", 70)], True, "it listens at ::, port 70, too, which is not declared"),
        ([("127.0.0.1", 8080), ("::", 70)], False, ""),
        ([], True, ""),
    ],
)
def test_a_server_listens_where_it_is_declared(
    machine: Machine, sockets: list[tuple[str, int]], closed: bool, why: str
) -> None:
    machine.runs("7", sockets=tuple(range(1, len(sockets) + 1)))
    for inode, (where, port) in enumerate(sockets, 1):
        machine.has_socket(inode, where, port)
    server = DeclaredServer(url="http://127.0.0.1:8080/v1", listen="127.0.0.1", closed=closed, pids=("7",))
    session = Session(server, 0.0, root=machine.root)
    (step,) = (each for each in STEPS if each.name == "its addresses")
    if not why:
        step.run(session)
        return
    with pytest.raises(NotServingError) as error:
        step.run(session)
    assert str(error.value) == why


def test_without_processes_no_address_is_compared(machine: Machine) -> None:
    (step,) = (each for each in STEPS if each.name == "its addresses")
    for server in (DeclaredServer(listen="::"), DeclaredServer(pids=("7",))):
        with pytest.raises(SkippedError):
            step.run(Session(server, 0.0, root=machine.root))


def test_this_process_listens_where_it_does() -> None:
    with socket.create_server(("127.0.0.1", 0)) as own:
        assert (ip_address("127.0.0.1"), own.getsockname()[1]) in listening_addresses([str(os.getpid())], ROOT)
    assert str(os.getpid()) in process_family([str(os.getppid())], ROOT)


def test_a_process_that_has_ended(machine: Machine) -> None:
    assert process_family(["7"], machine.root) == {"7"}
    assert listening_addresses(["7"], machine.root) == set()
    (machine.root / "proc/stat").write_text("cpu  5 1 4 50 7 1 1 1 9 9\ncpu0 1\n")
    assert read_load(["7"], machine.root) == Load(70, 13)


@pytest.mark.parametrize("text", ["", "cpu  5 1\n", "cpu  5 1 4 50 7 1 1 x 9 9\n"])
def test_an_odd_kernel_reports_no_load(machine: Machine, text: str) -> None:
    assert read_load([], machine.root) == Load()
    (machine.root / "proc/stat").write_text(text)
    assert read_load([], machine.root) == Load()


def test_ids_of_processes() -> None:
    assert valid_pids(["7", "0", "", "PID", "٣", "12"]) == ("7", "12")
